"""The search of a fixed number of trials: it ends at the best point wherever that lies, with exactly its budget."""

from __future__ import annotations

import math

import numpy as np
import pytest

import losac
from losac.testing.problems import quadratic
from losac.tuning.refine import refine_search
from losac.tuning.trials import Trial, ranked

AXES = {"step_size": (1e-3, 1e-2, 1e-1, 1.0), "server_step": (0.3, 1.0, 3.0)}


def valley(best, asked=None):
    """Return what evaluates points by their distance from the best one, in decades, and keeps what was asked."""

    def evaluate(points):
        if asked is not None:
            asked.append(list(points))
        costs = [sum(math.log10(p[name] / best[name]) ** 2 for name in best) for p in points]
        return [Trial(dict(p), (cost,), None, None, cost, cost) for p, cost in zip(points, costs)]

    return evaluate


def search(best, trials=32, batch=4, axes=AXES, allows=lambda point: True, asked=None):
    return refine_search(axes, valley(best, asked), allows, trials, batch)


@pytest.mark.parametrize("step", [2e-6, 0.013, 40.0])
@pytest.mark.parametrize("server", [0.02, 0.9, 25.0])
def test_it_finds_the_best_point_inside_or_far_beyond_the_axes(step, server):
    space, found = search({"step_size": step, "server_step": server})
    best = ranked(found)[0].settings
    assert len(found) == 32
    assert abs(math.log10(best["step_size"] / step)) < 0.2
    assert abs(math.log10(best["server_step"] / server)) < 0.3
    for name, value in best.items():
        assert min(space[name]) < value < max(space[name])


@pytest.mark.parametrize(("trials", "batch"), [(1, 4), (4, 4), (7, 3), (30, 5)])
def test_the_trials_are_as_many_as_asked_and_no_point_runs_twice(trials, batch):
    asked = []
    _, found = search({"step_size": 0.02, "server_step": 1.0}, trials, batch, asked=asked)
    points = [tuple(trial.settings.values()) for trial in found]
    assert len(points) == len(set(points)) == trials
    assert all(len(part) <= batch for part in asked[1:])


def test_it_starts_along_the_first_axis_at_the_middle_of_the_others():
    asked = []
    search({"step_size": 0.02, "server_step": 1.0}, asked=asked)
    assert asked[0] == [{"step_size": step, "server_step": 1.0} for step in AXES["step_size"]]


def test_it_looks_beyond_all_that_was_tried_before_it_looks_between():
    """With more settings than a batch has points, none is left at the only value tried."""
    asked, axes = [], {**AXES, "correction": (0.02, 0.06, 0.2)}
    best = {"step_size": 0.02, "server_step": 10.0, "correction": 0.2}
    search(best, trials=8, batch=4, axes=axes, asked=asked)
    others = [{name: point[name] for name in ("server_step", "correction")} for point in asked[1]]
    assert others == [
        {"server_step": 0.3, "correction": 0.06}, {"server_step": 3.0, "correction": 0.06},
        {"server_step": 1.0, "correction": 0.02}, {"server_step": 1.0, "correction": 0.2},
    ]  # fmt: skip


def test_settings_that_the_algorithm_refuses_are_not_tried():
    space, found = search({"step_size": 0.02, "server_step": 30.0}, allows=lambda point: point["server_step"] <= 3.0)
    assert max(space["server_step"]) == 3.0
    assert len(found) == 32


def test_words_and_whole_numbers_are_axes_too():
    axes = {"blocks": (1, 2, 8), "scaling": ("paper", "exact")}

    def evaluate(points):
        costs = [abs(p["blocks"] - 5) + (p["scaling"] == "paper") for p in points]
        return [Trial(dict(p), (cost,), None, None, cost, cost) for p, cost in zip(points, costs)]

    _, found = refine_search(axes, evaluate, lambda point: point["blocks"] >= 1, 12, 2)
    assert ranked(found)[0].settings == {"blocks": 5, "scaling": "exact"}


def test_a_search_in_which_all_diverge_goes_to_smaller_steps():
    def evaluate(points):
        lost = [p["step_size"] > 1e-6 for p in points]
        ends = [(math.inf, math.inf, 3) if bad else (1.0, 1.0, None) for bad in lost]
        return [Trial(dict(p), (np.nan,), d, None, c, v) for p, (c, v, d) in zip(points, ends)]

    _, found = refine_search({"step_size": (1e-3, 1e-2, 1e-1)}, evaluate, lambda point: True, 16, 4)
    assert ranked(found)[0].diverged is None


def test_tune_gives_every_algorithm_the_same_number_of_trials_and_leaves_no_best_value_at_an_edge():
    problem = quadratic()
    scaffold = losac.algorithms.scaffold(step_size=1.0, local_steps=2, blocks=2)
    tuning = losac.tune(
        problem.task, scaffold, {"step_size": [1e-3, 1e-2], "server_step": [1.0, 2.0]}, search="refine", trials=16,
        batch=4, rounds=5, validation=None,
    )  # fmt: skip
    assert len(tuning.trials) == 16
    assert tuning.search == "refine"
    assert tuning.edges["step_size"] == "inside"


def test_a_target_may_have_to_be_sustained():
    from losac.tuning.trials import Goal, make_trial

    class Run:
        diverged = None

        def final(self, name):
            return 0.9

        def rounds_to(self, name, target, *, sustained):
            return {1: 3, 5: 40}[sustained]

    goals = [Goal("accuracy", "accuracy", "loss", 0.9, 50, sustained) for sustained in (1, 5)]
    assert [make_trial({}, [Run()], goal).rounds_to for goal in goals] == [3.0, 40.0]
