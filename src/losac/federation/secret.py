"""Random keys that nobody else knows: those of the noise that protects a client, or the sum of all."""

from __future__ import annotations

import os
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from losac.algorithms.transform import Transform
from losac.trees import Array


def secret_key() -> Array:
    """Return a new key from the operating system's generator; it is kept nowhere."""
    shape = jax.random.key_data(jax.random.key(0)).shape
    data = np.frombuffer(os.urandom(4 * int(np.prod(shape))), np.uint32).reshape(shape)
    return jax.random.wrap_key_data(jnp.asarray(data))


def secret_for(transforms: Sequence[Transform]) -> Array | None:
    """Return a new secret key where a transform is private; else None: all that is random follows from the seed."""
    return secret_key() if any(transform.private for transform in transforms) else None
