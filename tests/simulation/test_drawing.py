"""How clients draw their mini-batches, however their number of steps and their size are given."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import losac
from losac._random import chance_uniform
from losac.simulation.program.drawing import order_of
from problems import drawn_blocks, drawn_clients, quadratic

UNEVEN = quadratic(clients=3, samples=[4, 5, 7], dim=2)
RUN = {"rounds": 2, "eval_every": 2, "dtype": "float64", "seed": 5}


def model(algorithm, **options):
    return losac.simulate(UNEVEN.task, algorithm, **RUN, **options).params


@pytest.mark.parametrize("store", ["device", "memory"])
def test_a_clients_own_number_of_steps_draws_as_the_algorithms_does(store):
    """Six steps on batches of two are at least two passes over any client: each must have an order of its own."""
    alone = losac.algorithms.fedavg(0.01, batch_size=2)
    wanted = model(losac.algorithms.fedavg(0.01, local_steps=6, batch_size=2))
    np.testing.assert_array_equal(model(alone, local_steps=[6, 6, 6], store=store), wanted)


def test_a_batch_larger_than_any_integer_of_32_bits_is_the_whole_client():
    whole = model(losac.algorithms.fedavg(0.01, local_steps=3, batch_size=7))
    np.testing.assert_array_equal(model(losac.algorithms.fedavg(0.01, local_steps=3, batch_size=10**10)), whole)


@pytest.mark.quick
def test_what_a_seed_draws_is_frozen():
    """Clients, blocks, orders, numbers of steps and lots: a change of any gives every stored seed another meaning."""
    assert [drawn_clients(7, r, 10, 3).tolist() for r in range(3)] == [[7, 5, 6], [8, 9, 6], [1, 2, 8]]
    assert [drawn_blocks(7, r, 4, 6, 5) for r in range(2)] == [[3, 3, 0, 3, 1, 3], [4, 1, 2, 2, 4, 0]]
    key = jax.random.key(7)
    assert order_of(key, 6, 8)[:6].tolist() == [2, 3, 5, 0, 4, 1]
    assert float(chance_uniform(key)) == pytest.approx(0.97403383)
    assert int(losac.algorithms.scaffnew(0.1, probability=0.3).draw_steps(0.9)) == 7


def test_more_local_steps_than_a_program_can_count_are_refused():
    for algorithm in (losac.algorithms.fedavg(0.01, 2**31), losac.algorithms.fedavg(0.01, batch_size=2, epochs=2**30)):
        with pytest.raises(ValueError, match="local steps"):
            model(algorithm)
    with pytest.raises(ValueError, match="local steps"):
        model(losac.algorithms.fedavg(0.01), local_steps=[1, 2, 2**31])
