"""A seed means one thing in every precision, and only seeds that can are accepted."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import losac
from losac._seeds import MOST, check_seed
from losac.federation.book import Rules
from losac.simulation.engines.resident import precision
from losac.simulation.program import setup
from problems import quadratic

PROBLEM = quadratic(clients=3, samples=4, dim=2)
FEDAVG = losac.algorithms.fedavg(0.01)
BAD = (-1, 2**32, 2**63, 2**64 + 1, True, 1.5, 0.9, "1", None, float("nan"))


@pytest.mark.parametrize("seed", BAD)
def test_a_seed_outside_32_bits_is_refused_everywhere(seed):
    with pytest.raises(ValueError, match=r"seed=.* must be a whole number from 0 to 4294967295"):
        check_seed(seed)
    with pytest.raises(ValueError, match="seed="):
        losac.simulate(PROBLEM.task, FEDAVG, rounds=1, seed=seed)
    with pytest.raises(ValueError, match="seeds"):
        losac.sweep(PROBLEM.task, FEDAVG, {}, [0, seed], rounds=1)
    with pytest.raises(ValueError, match="seed"):
        losac.tune(PROBLEM.task, FEDAVG, {"step_size": [0.1]}, seeds=[seed], rounds=1, validation=None)
    with pytest.raises(ValueError, match="seed="):
        losac.hold_out(PROBLEM.data, seed=seed)
    with pytest.raises(ValueError, match="seed="):
        Rules(clients=2, clients_per_round=1, seed=seed)


def test_numpy_seeds_are_seeds():
    seed = check_seed(np.uint32(MOST))
    assert seed == MOST
    assert type(seed) is int


@pytest.mark.parametrize("seed", [0, 2**31 - 1, 2**31, MOST])
def test_a_seed_has_one_random_key_in_both_precisions(seed):
    keys = []
    for dtype in (np.float32, np.float64):
        with precision(dtype):
            keys.append(jax.random.key_data(setup.start(PROBLEM.task, seed, np.dtype(dtype))[2]))
    np.testing.assert_array_equal(*keys)
