"""Compiled programs are kept in one place, and the oldest forgotten before the process runs out of memory maps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import losac
from losac.simulation.program import cache as programs
from problems import quadratic

PROBLEM = quadratic(clients=3, samples=4, dim=2)
FEDAVG = losac.algorithms.fedavg(0.01)


@pytest.fixture(autouse=True)
def _empty():
    programs._PROGRAMS.clear()


def task_of(number: int) -> losac.Task:
    """Each is a program of its own."""

    def loss(params: Any, batch: Any) -> Any:
        return (number + 1) * ((batch[0] @ params - batch[1]) ** 2).mean()

    return losac.Task(loss, np.zeros(2), PROBLEM.data)


def run(task: losac.Task) -> np.ndarray:
    return losac.simulate(task, FEDAVG, rounds=2, eval_every=2).params


def test_the_oldest_programs_are_forgotten_and_results_stay(monkeypatch):
    tasks = [task_of(number) for number in range(3)]
    wanted = [run(task) for task in tasks]
    assert programs.count() == 9  # the check of the loss, the state before the first round, and the rounds
    programs._PROGRAMS.clear()
    monkeypatch.setattr(programs, "MOST", 4)
    for _ in range(2):
        for task, params in zip(tasks, wanted):
            np.testing.assert_array_equal(run(task), params)
            assert programs.count() <= 4


def test_a_program_that_is_used_again_is_not_made_again():
    task = task_of(0)
    for _ in range(3):
        run(task)
    assert programs.count() == 3


def test_memory_maps_make_room_too(monkeypatch):
    run(task_of(0))
    monkeypatch.setattr(programs, "memory_maps", lambda: programs.most_memory_maps())
    run(task_of(1))
    assert programs.count() <= 3


def test_programs_of_evaluate_and_personalize_are_kept_here_too():
    for number in range(2):
        before = programs.count()
        losac.evaluate(task_of(number), np.zeros(2))
        assert programs.count() == before + 1
        losac.personalize(task_of(number), np.zeros(2), steps=1, step_size=0.1)
        assert programs.count() > before + 1


def test_precisions_have_programs_of_their_own():
    task = task_of(0)
    single, double = (losac.simulate(task, FEDAVG, rounds=2, dtype=dtype).params for dtype in ("float32", "float64"))
    assert (single.dtype, double.dtype) == (np.float32, np.float64)


def test_forgetting_gives_the_memory_maps_back(monkeypatch):
    if not programs.memory_maps():
        pytest.skip("this system does not say how many memory maps there are")
    monkeypatch.setattr(programs, "MOST", 4)
    for number in range(3):
        run(task_of(number))
    before = programs.memory_maps()
    for number in range(3, 8):
        run(task_of(number))
    assert programs.memory_maps() < before + 300
