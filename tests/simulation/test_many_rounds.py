"""Runs of very many rounds start at once, and go in pieces that fit into memory."""

from __future__ import annotations

import time

import numpy as np
import pytest

import losac
from losac.simulation.engines import schedule
from losac.simulation.engines.intervals import MOST_ROUNDS, EvaluationRounds, evaluation_rounds, longest_interval
from problems import quadratic

PROBLEM = quadratic(clients=3, samples=4, dim=2)
FEDAVG = losac.algorithms.fedavg(0.01)


@pytest.mark.parametrize(
    ("start", "rounds", "every"), [(0, 10, 3), (0, 9, 3), (4, 5, 3), (7, 1, 100), (5, 0, 1), (3, 8, 1)]
)
def test_the_rounds_to_evaluate_at_are_a_sequence_that_is_never_written_out(start, rounds, every):
    wanted = [start, *(r for r in range(start + 1, start + rounds) if r % every == 0), start + rounds]
    found = evaluation_rounds(start, rounds, every)
    assert list(found) == wanted
    assert [found[k] for k in range(len(found))] == wanted
    assert [found[-1], found[0]] == [wanted[-1], wanted[0]]
    assert list(found[1:]) == wanted[1:]
    assert len(found[1:]) == len(wanted) - 1
    assert list(found[2:4]) == wanted[2:4]
    assert longest_interval(start, found) == max(1, *np.diff([start, *wanted]))
    assert longest_interval(start, found[1:]) == max(1, *np.diff([start, *wanted[1:]]))
    with pytest.raises(IndexError):
        found[len(wanted)]


def test_the_largest_number_of_rounds_takes_no_room():
    assert len(evaluation_rounds(0, MOST_ROUNDS, 1)) == MOST_ROUNDS + 1
    assert isinstance(evaluation_rounds(0, MOST_ROUNDS, 1)[5:], EvaluationRounds)


class Enough(losac.Callback):
    def on_evaluation(self, moment):
        moment.stop()


@pytest.mark.parametrize("every", [1, 2**20])
@pytest.mark.parametrize("store", ["device", "memory"])
def test_a_run_of_more_rounds_than_anybody_waits_for_starts_and_stops_at_once(store, every):
    began = time.perf_counter()
    history = losac.simulate(
        PROBLEM.task, FEDAVG, rounds=MOST_ROUNDS, eval_every=every, store=store, callbacks=[Enough()]
    )
    assert history.rounds.tolist() == [0]
    assert time.perf_counter() - began < 60


@pytest.mark.parametrize("rounds", [2**31, 2**40, 10**30])
def test_more_rounds_than_the_counter_holds_are_refused(rounds):
    for run in (losac.simulate, lambda *args, **options: losac.sweep(*args, {}, **options)):
        with pytest.raises(ValueError, match=f"rounds={rounds} .* at most {MOST_ROUNDS}"):
            run(PROBLEM.task, FEDAVG, rounds=rounds)
    half = losac.simulate(PROBLEM.task, FEDAVG, rounds=1, keep_state=True)
    with pytest.raises(ValueError, match=f"at most {MOST_ROUNDS}"):
        losac.simulate(PROBLEM.task, FEDAVG, rounds=MOST_ROUNDS, state=half)


def test_a_loss_that_is_next_evaluated_after_the_last_round_there_can_be():
    history = losac.simulate(PROBLEM.task, FEDAVG, rounds=2, loss_every=10**30)
    assert np.isfinite(history.metric("loss")).tolist() == [True, False, False]


def test_pieces_between_evaluations_change_nothing(monkeypatch):
    """An interval whose schedule would be too large goes in pieces, bit for bit as at once."""
    losac_ = losac.algorithms.losac(0.001, 2, 2)
    run = {"rounds": 23, "eval_every": 10, "clients_per_round": 2}
    whole = losac.simulate(PROBLEM.task, losac_, **run)
    (swept,) = losac.sweep(PROBLEM.task, losac_, {}, **run).members
    monkeypatch.setattr(schedule, "LARGEST_SCHEDULE", 2 * 2 * 3)
    pieces = losac.simulate(PROBLEM.task, losac_, **run)
    (cut,) = losac.sweep(PROBLEM.task, losac_, {}, **run).members
    for one, other in ((whole, pieces), (swept, cut)):
        assert one.rounds.tolist() == other.rounds.tolist() == [0, 10, 20, 23]
        np.testing.assert_array_equal(one.params, other.params)
        np.testing.assert_array_equal(one.metric("loss"), other.metric("loss"))
        np.testing.assert_array_equal(one.gradients, other.gradients)
        np.testing.assert_array_equal(one.bytes_up, other.bytes_up)
