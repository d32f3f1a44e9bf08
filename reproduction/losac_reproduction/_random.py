"""All random streams of the studies, except those of losac itself (:mod:`losac._random`), named in one file.

Changing a function here changes the results of the studies that use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from losac.trees import Array

_PROBE = 2**30
"""Far above the rounds of any run, whose keys are folded in from 0 up."""

Generator = np.random.Generator


def probe_generator(seed: int, stop: int) -> Generator:
    """Return the generator that samples the clients of a probe's extra rounds: a function of the seed and the round."""
    return np.random.default_rng([seed, stop, 2**31])


def probe_keys(seed: int, stop: int, plays: int) -> Array:
    """Return the keys of a probe's extra rounds: a function of the run's seed, the round and their number."""
    from jax import random

    return random.split(random.fold_in(random.key(seed), _PROBE + stop), plays)


def points_generator(seed: int) -> Generator:
    """Return the generator of the points at which inequalities are tried: a function of the seed."""
    return np.random.default_rng([seed, 5])


def turns_generator() -> Generator:
    """Return the generator of the order in which clients take turns in the study of privacy, always the same."""
    return np.random.default_rng(0)


def sparse_generator() -> Generator:
    """Return the generator of the LASSO problem, always the same."""
    return np.random.default_rng(0)


def rows_generator(seed: int) -> Generator:
    """Return the generator that picks the rows of attacked clients: a function of the seed."""
    return np.random.default_rng(seed)


def guess_key(seed: Any) -> Array:
    """Return the key of the first guess of an attack: a function of the seed."""
    from jax import random

    return random.key(seed)
