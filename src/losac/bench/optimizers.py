"""Optimisers that settings name, as ``losac.bench.optimizers:NAME``."""

from __future__ import annotations

from typing import Any

import optax


def sgd_momentum(learning_rate: Any) -> Any:
    """Return SGD with a momentum of 0.9, as PyTorch has it."""
    return optax.sgd(learning_rate, momentum=0.9)
