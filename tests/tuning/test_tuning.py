"""Tuning: one program's numbers are single runs' numbers, scores come from rows set aside, edges are told."""

from __future__ import annotations

import dataclasses
import math
import sys
import tomllib

import numpy as np
import pytest

import losac
from losac._costs import COSTS
from losac.algorithms import ALGORITHMS
from losac.simulation.sweep import run_members
from losac.tuning import AllDivergedError, Trial, choice, default_space, log_range, tune, uniform
from losac.tuning.draws import draw_points
from losac.tuning.grid import grid_search
from losac.tuning.optuna_search import optuna_search
from losac.tuning.space import TRIALS, edge
from losac.tuning.trials import Goal, make_trial, ranked
from problems import quadratic

A = losac.algorithms
PROBLEM = quadratic(clients=6, samples=10, dim=3)
ETA = 0.1 / PROBLEM.curvature
SCAFFOLD = A.scaffold(ETA, 3, 2)
RUN = {"rounds": 20, "clients_per_round": 3, "dtype": "float64"}
MODULE = sys.modules["losac.tuning.members"]


def scores(tuning):
    return {tuple(trial.settings.values()): trial.score for trial in tuning.trials}


def pretend(function, seen):
    """An evaluation that runs nothing: the cost of a point is a function of it; infinite means diverged."""

    def evaluate(points):
        seen.extend(points)
        costs = [function(**point) for point in points]
        return [Trial(p, (c,), None if math.isfinite(c) else 1, None, c, c) for p, c in zip(points, costs)]

    return evaluate


@pytest.mark.parametrize("search", ["random", "optuna"])
def test_a_trial_is_the_mean_of_single_runs_on_the_rows_left(search):
    space = {"step_size": log_range(ETA / 10, ETA), "server_step": choice(0.5, 1.0)}
    options = {"search": search, "trials": 2, "seeds": [0, 3], **RUN}
    tuning = tune(PROBLEM.task, SCAFFOLD, space, **options)
    train, aside = PROBLEM.data.split(0.2, 0)
    task = dataclasses.replace(PROBLEM.task, data=train, test=aside)
    assert len(tuning.trials) == 2
    for trial in tuning.trials:
        runs = [losac.simulate(task, SCAFFOLD.replace(**trial.settings), seed=s, eval_every=20, **RUN) for s in (0, 3)]
        finals = [run.final("test_loss") for run in runs]
        np.testing.assert_allclose(trial.values, finals, rtol=1e-9)
        assert trial.score == pytest.approx(np.mean(finals))
        assert trial.spread == pytest.approx(np.std(finals, ddof=1))
    assert tuning.best == min(tuning.trials, key=lambda t: t.score).settings
    assert tuning.edges == {name: edge(axis, tuning.best[name]) for name, axis in space.items()}
    assert tune(PROBLEM.task, SCAFFOLD, space, **options).trials == tuning.trials
    assert scores(tune(PROBLEM.task, SCAFFOLD, space, seed=1, **options)).keys() != scores(tuning).keys()


def test_scores_come_from_rows_that_are_not_trained_on_and_never_from_the_test_rows(monkeypatch):
    data = losac.data.load("digits", clients=10, partition="sorted")
    task = losac.classification(losac.models.softmax_regression(64, 10), data)
    seen = []

    def watched(task, jobs, **options):
        seen.append(task)
        return run_members(task, jobs, **options)

    monkeypatch.setattr(MODULE, "run_members", watched)
    tuning = tune(task, A.fedavg(1e-3, 2, 5), {"step_size": [1e-4, 1e-3]}, rounds=2, widen=False)
    (used,) = seen
    train, aside, test = ({row.tobytes() for row in part} for part in (used.data.x, used.test[0], data.test[0]))
    assert len(used.data) + len(used.test[0]) == len(data)
    assert not train & aside
    assert not aside & test
    assert tuning.metric == "accuracy"
    assert tuning.best_trial.score == max(scores(tuning).values())


def test_without_validation_the_training_loss_decides():
    tuning = tune(PROBLEM.task, SCAFFOLD, {"step_size": [ETA, ETA / 4]}, validation=None, widen=False, **RUN)
    single = losac.simulate(PROBLEM.task, SCAFFOLD, eval_every=20, **RUN)
    assert tuning.metric == "loss"
    assert scores(tuning)[ETA,] == pytest.approx(single.final("loss"))


def test_a_grid_follows_its_best_point():
    tuning = tune(PROBLEM.task, SCAFFOLD, {"step_size": [ETA / 400, ETA / 100]}, most_widenings=20, **RUN)
    assert tuning.edges == {"step_size": "inside"}
    steps = tuning.space["step_size"]
    assert len(tuning.trials) == len(steps) > 3
    np.testing.assert_allclose(np.divide(steps[1:], steps[:-1]), 4)
    assert tuning.best_trial.score == min(scores(tuning).values())


def test_widening_goes_on_along_all_axes_and_runs_nothing_twice():
    seen = []
    evaluate = pretend(lambda a, b: (math.log10(a) - 2) ** 2 + (b - 7) ** 2, seen)
    grid, trials, edges = grid_search({"a": (1, 10), "b": (1.0, 2.0, 3.0)}, evaluate, lambda point: True, 20)
    assert ranked(trials)[0].settings == {"a": 100, "b": 7.0}
    assert grid == {"a": (1, 10, 100, 1000), "b": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)}
    assert edges == {"a": "inside", "b": "inside"}
    assert len(seen) == len({tuple(point.values()) for point in seen}) == len(trials) == 4 * 8


def test_widening_stops_when_told_and_where_a_setting_has_no_more_values():
    seen = []
    evaluate, small = pretend(lambda a: -a, seen), lambda point: point["a"] <= 1
    assert grid_search({"a": (0.1, 0.2)}, evaluate, small, 0)[2] == {"a": "high"}
    assert grid_search({"a": (0.1, 0.2)}, evaluate, small, 1)[0] == {"a": (0.1, 0.2, 0.4)}
    grid, _, edges = grid_search({"a": (0.5, 0.75, 1.0)}, evaluate, small, 9)
    assert (grid, edges) == ({"a": (0.5, 0.75, 1.0)}, {"a": "high limit"})
    assert grid_search({"a": (3,)}, evaluate, small, 9)[2] == {"a": "fixed"}


def test_a_grid_stops_at_points_that_diverge():
    evaluate = pretend(lambda a: -a if a < 100 else math.inf, [])
    grid, trials, edges = grid_search({"a": (1, 10)}, evaluate, lambda point: True, 9)
    assert (grid, edges) == ({"a": (1, 10, 100)}, {"a": "inside"})
    assert [trial.diverged for trial in trials] == [None, None, 1]


def test_the_diverged_are_marked_and_never_best():
    space = {"step_size": [ETA, 1e30], "server_step": [0.5, 1.0]}
    tuning = tune(PROBLEM.task, SCAFFOLD, space, widen=False, **RUN)
    assert tuning.diverged == 2
    assert tuning.best["step_size"] == ETA
    assert all((t.diverged is not None) == (t.settings["step_size"] == 1e30) for t in tuning.trials)
    assert all(math.isnan(t.score) and t.cost == math.inf for t in tuning.trials if t.diverged is not None)
    assert tuning.to_frame()["diverged"].isna().tolist() == [True, True, False, False]
    assert tuning.edges["step_size"] == "low"


def test_where_all_diverge_the_error_says_so():
    with pytest.raises(AllDivergedError, match=r"all 2 trials diverged, even with step_size=1e\+30.* smaller steps"):
        tune(PROBLEM.task, SCAFFOLD, {"step_size": [1e30, 1e31]}, seeds=[0, 1], **RUN)


def test_a_target_is_reached_soon_or_else_nearly():
    space = {"step_size": [ETA / 1000, ETA / 4, ETA, 1e30]}
    run = {**RUN, "eval_every": 1, "widen": False}
    target = 1.2 * scores(tune(PROBLEM.task, SCAFFOLD, space, **run))[ETA / 4,]
    tuning = tune(PROBLEM.task, SCAFFOLD, space, target=target, **run)
    order = ranked(tuning.trials)
    assert [t.settings["step_size"] for t in order] == [ETA, ETA / 4, ETA / 1000, 1e30]
    assert [t.rounds_to is None for t in order] == [False, False, True, True]
    assert order[0].rounds_to < order[1].rounds_to <= 20
    assert "rounds_to" in tuning.to_frame()


def test_trials_that_never_reach_the_target_are_ordered_by_where_they_ended():
    goal = Goal("accuracy", "accuracy", "test_loss", 0.9, rounds=5)
    ends = {name: history(accuracy) for name, accuracy in {"soon": 0.95, "near": 0.8, "far": 0.2}.items()}
    trials = [make_trial({"name": name}, [run], goal) for name, run in ends.items()]
    assert [t.settings["name"] for t in ranked(trials[::-1])] == ["soon", "near", "far"]
    one_of_two = make_trial({"name": "half"}, [ends["soon"], ends["far"]], goal)
    assert one_of_two.rounds_to is None
    assert one_of_two.cost > 5


def test_equal_scores_are_told_apart_by_the_loss():
    goal = Goal("accuracy", "accuracy", "test_loss", None, rounds=5)
    trials = [make_trial({"loss": loss}, [history(0.9, loss)], goal) for loss in (2.0, 1.0, 3.0)]
    assert ranked(trials)[0].settings == {"loss": 1.0}


def history(accuracy, loss=1.0):
    """A run of five rounds that starts at an accuracy of 0.1."""
    metrics = {"accuracy": np.array([0.1, accuracy]), "test_loss": np.array([5.0, loss])}
    two = np.zeros(2)
    return losac.History("fedavg", {}, "task", 0, np.array([0, 5]), metrics, dict.fromkeys(COSTS, two), two)


def test_optuna_prunes_what_diverges_and_runs_a_point_once():
    seen = []
    evaluate = pretend(lambda a, b: math.inf if a == 9 else a, seen)
    found = optuna_search({"a": (4, 1, 9), "b": ("x",)}, 12, 0, 4, evaluate)
    assert len(seen) == len({tuple(point.values()) for point in seen}) == len(found) <= 3
    assert ranked(found)[0].settings["a"] < 9


def test_optuna_finds_better_points_than_chance():
    axes = {"a": log_range(1e-4, 1e4), "b": uniform(-1, 1)}
    function = lambda a, b: (math.log10(a) - 1) ** 2 + b**2  # noqa: E731
    best = [ranked(optuna_search(axes, 48, seed, 8, pretend(function, [])))[0].cost for seed in range(3)]
    drawn = [min(function(**point) for point in draw_points(axes, 48, seed)) for seed in range(3)]
    assert np.mean(best) < np.mean(drawn)


def test_without_optuna_the_way_to_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match=r"pip install 'losac\[tune\]'"):
        tune(PROBLEM.task, SCAFFOLD, {"step_size": [ETA]}, search="optuna", **RUN)


@pytest.mark.parametrize(
    ("space", "options", "said"),
    [
        ({}, {}, "the space is empty"),
        ({"step_sise": [1.0]}, {}, "did you mean 'step_size'"),
        ({"step_size": []}, {}, "no values"),
        ({"step_size": 1.0}, {}, "must be a list"),
        ({"step_size": [-1.0]}, {}, "must be a positive number"),
        ({"step_size": log_range(1e-3, 1)}, {}, "a grid needs values"),
        ({"local_steps": uniform(1.5, 3.5)}, {"search": "random"}, "must be a whole number"),
        ({"step_size": [1.0]}, {"search": "gird"}, "did you mean 'grid'"),
        ({"step_size": [1.0]}, {"trials": 3}, "a grid runs all its points"),
        ({"step_size": [1.0]}, {"metric": "accurcy"}, "must be one of loss"),
        ({"step_size": [1.0]}, {"validation": 1.5}, "share between 0 and 1"),
        ({"step_size": [1.0]}, {"seeds": [1, 1]}, "each once"),
    ],
)
def test_errors_name_the_value_and_the_way_out(space, options, said):
    with pytest.raises(ValueError, match=said):
        tune(PROBLEM.task, SCAFFOLD, space, **{**RUN, **options})


def test_an_empty_range_is_refused():
    with pytest.raises(ValueError, match="positive numbers with low < high"):
        log_range(0.0, 1.0)


@pytest.mark.parametrize(
    ("space", "options"),
    [
        ({"step_size": [ETA, 1e30]}, {}),
        ({"step_size": [ETA, 1e30], "option": [2]}, {"target": 1e6}),
        ({"step_size": log_range(ETA / 10, ETA), "server_step": [1], "option": [2]}, {"search": "random", "trials": 2}),
    ],
)
def test_results_are_saved_with_a_figure(space, options, tmp_path):
    tuning = tune(PROBLEM.task, SCAFFOLD, space, widen=False, seeds=[0, 1], **RUN, **options)
    files = tuning.save(tmp_path / "new", {"problem": {"data": "quadratic"}})
    assert [path.name for path in files] == ["trials.csv", "tuning.png", "tuning.svg", "best.toml"]
    assert all(path.stat().st_size > 0 for path in files)
    best = tomllib.loads(files[-1].read_text())
    assert best["problem"]["data"] == "quadratic"
    assert best["algorithm"].pop("name") == "scaffold"
    assert A.scaffold(**best["algorithm"]).settings() == tuning.algorithm.settings()
    assert "Tuning(scaffold on quadratic" in repr(tuning)


def test_default_spaces_are_equally_large_and_valid_for_every_algorithm():
    for name, algorithm in ALGORITHMS.items():
        space = default_space(name, 1e-3)
        assert math.prod(len(values) for values in space.values()) == TRIALS
        assert len(space) <= 2
        assert any(step == pytest.approx(1e-3) for step in space["step_size"])
        for setting, value in ((setting, value) for setting, values in space.items() for value in values):
            assert setting in algorithm(**{"step_size": 1e-3, setting: value}).numbers()


def test_there_is_no_default_space_for_what_is_not_there():
    with pytest.raises(ValueError, match="did you mean 'scaffold'"):
        default_space("scafold", 1e-3)
