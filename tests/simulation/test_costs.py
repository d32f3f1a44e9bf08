"""What a history counts is what was computed, row by row and round by round."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import losac
from losac._random import chance_uniform as lot
from losac.federation.compiled import CompiledWorker
from losac.federation.work import Assignment, Message
from losac.simulation.engines.resident import precision
from losac.simulation.program.costs import luck
from problems import drawn_clients, quadratic

SIZES = [5, 4, 9]
UNEVEN = quadratic(clients=3, samples=SIZES, dim=2)


def rows_of(size: int, batch: int, steps: int) -> int:
    """Go through a client's batches one by one."""
    lengths = [min(batch, size - start) for start in range(0, size, batch)]
    return sum(lengths[t % len(lengths)] for t in range(steps))


BATCHES = {
    "one epoch": losac.algorithms.fedavg(0.01, batch_size=4),
    "three epochs": losac.algorithms.fedavg(0.01, batch_size=2, epochs=3),
    "seven steps": losac.algorithms.fedavg(0.01, local_steps=7, batch_size=2),
    "larger than a client": losac.algorithms.fedavg(0.01, local_steps=2, batch_size=100),
}


def expected(algorithm) -> int:
    draw = algorithm.draw
    steps = [draw.steps or draw.epochs * -(-size // draw.batch_size) for size in SIZES]
    return sum(rows_of(size, draw.batch_size, count) for size, count in zip(SIZES, steps))


@pytest.mark.parametrize("name", BATCHES)
def test_a_short_last_batch_counts_its_own_rows(name):
    algorithm, task = BATCHES[name], UNEVEN.task
    wanted = [0, expected(algorithm), 2 * expected(algorithm)]
    assert losac.simulate(task, algorithm, rounds=2).gradients.tolist() == wanted
    assert losac.simulate(task, algorithm, rounds=2, store="memory").gradients.tolist() == wanted
    (member,) = losac.sweep(task, algorithm, {}, rounds=2).members
    assert member.gradients.tolist() == wanted


@pytest.mark.parametrize("name", BATCHES)
def test_pytorch_counts_the_same(name):
    torch = pytest.importorskip("torch")
    import losac.torch

    module, loss = torch.nn.Linear(2, 1, bias=False).double(), lambda out, y: ((out[:, 0] - y) ** 2).mean()
    history = losac.torch.simulate(module, loss, UNEVEN.data, BATCHES[name], rounds=1)
    assert history.gradients.tolist() == [0, expected(BATCHES[name])]


def test_a_federations_client_counts_the_same():
    algorithm = BATCHES["three epochs"]
    worker = CompiledWorker(_alone(2), algorithm)
    params = np.zeros_like(UNEVEN.optimum, np.float32)
    result = worker.work(Assignment(0, 0, 0, 0, 0, 1, 1, 1.0), Message(params), worker.start(params))
    assert result.gradients == 3 * SIZES[2]


def _alone(client: int) -> losac.Task:
    return losac.Task(UNEVEN.task.loss, UNEVEN.task.params, UNEVEN.data.subset([client]))


def test_own_numbers_of_steps_count_their_batches():
    history = losac.simulate(UNEVEN.task, losac.algorithms.fedavg(0.01, batch_size=2), rounds=1, local_steps=[1, 4, 6])
    assert history.gradients[-1] == sum(rows_of(n, 2, k) for n, k in zip(SIZES, [1, 4, 6]))


def one_by_one(algorithm, seed: int, rounds: int) -> tuple[list[int], list[bool]]:
    """Draw the numbers of local steps, and whether the first phase takes place, a round at a time."""
    steps, took = [], []
    for r in range(rounds):
        key = jax.random.fold_in(jax.random.key(seed), r)
        uniform = jax.random.uniform(jax.random.fold_in(key, 2**31 - 1), (), jnp.float32)
        number = algorithm.at(r).draw_steps(uniform)
        steps.append(0 if number is None else int(number))
        chance = algorithm.at(r).phases()[0].chance
        took.append(chance is None or bool(lot(jax.random.fold_in(key, 0)) < chance))
    return steps, took


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_left_to_chance_is_drawn_at_once_as_one_by_one(dtype):
    scaffnew = losac.algorithms.scaffnew(0.01, probability=0.3)
    svrg = losac.algorithms.local_svrg(0.01, refresh=lambda r: 0.2 + 0.5 * (r % 2))
    with precision(np.dtype(dtype)):
        found, wanted = luck(scaffnew, 7, 0, 100), one_by_one(scaffnew, 7, 100)
        assert found.steps.tolist() == wanted[0]
        assert [took.tolist() for took in found.took_place] == [wanted[1]]
        assert luck(scaffnew, 7, 40, 13).steps.tolist() == wanted[0][40:53]
        assert luck(svrg, 7, 0, 100).took_place[0].tolist() == one_by_one(svrg, 7, 100)[1]
        assert luck(losac.algorithms.fedavg(0.01), 7, 0, 3).steps is None


def test_random_steps_count_for_the_clients_that_took_them():
    """Rounds differ in their steps and their clients in size: the mean of one times the sum of the other is wrong."""
    tamuna, rounds = losac.algorithms.tamuna(0.01, probability=0.3), 12
    history = losac.simulate(UNEVEN.task, tamuna, rounds=rounds, clients_per_round=2, eval_every=5)
    steps = one_by_one(tamuna, 0, rounds)[0]
    cost = [steps[r] * sum(SIZES[i] for i in drawn_clients(0, r, 3, 2)) for r in range(rounds)]
    assert history.gradients.tolist() == [sum(cost[:r]) for r in (0, 5, 10, 12)]


def test_phases_by_chance_count_when_they_took_place():
    svrg, rounds = losac.algorithms.local_svrg(0.01, refresh=0.4), 12
    history = losac.simulate(UNEVEN.task, svrg, rounds=rounds, clients_per_round=1, eval_every=5)
    took = one_by_one(svrg, 0, rounds)[1]
    own = [2 * SIZES[drawn_clients(0, r, 3, 1)[0]] for r in range(rounds)]
    cost = [took[r] * sum(SIZES) + own[r] for r in range(rounds)]
    assert history.gradients.tolist() == [sum(cost[:r]) for r in (0, 5, 10, 12)]
