"""Options travel as values: read, checked and passed on whole; kept states of earlier versions still open."""

from __future__ import annotations

import dataclasses
import inspect
import zipfile
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest

import losac
import losac.algorithms as A
from losac._costs import COSTS, Cost
from losac.runs import open_run, record
from losac.simulation import ComputeOptions, RunOptions
from losac.simulation.engines import residence
from losac.simulation.options import (
    ComputeKeywords,
    RunKeywords,
    SimulateKeywords,
    SimulationOptions,
    SweepKeywords,
)
from losac.simulation.program import setup
from losac.simulation.sweep import ONE_RUN_ONLY
from losac.testing.problems import quadratic
from losac.tuning import SearchOptions
from losac.tuning.options import TuneKeywords
from losac.tuning.tune import NOT_TUNED

TASK = quadratic(clients=6, dim=3).task
METHOD = A.scaffold(1e-3, 2, 2)
RUN = RunOptions(rounds=4, clients_per_round=3, seed=5, eval_every=2)
COMPUTE = ComputeOptions(dtype="float64", gradients="formed")
OLD_RUNS = Path(__file__).parent / "data" / "runs_0_1_0.zip"


def types(*kinds, without=()):
    return {name: hint for kind in kinds for name, hint in get_type_hints(kind).items() if name not in without}


@pytest.mark.parametrize(
    ("keywords", "values", "without"),
    [
        (RunKeywords, (RunOptions,), ()),
        (ComputeKeywords, (ComputeOptions,), ()),
        (SimulateKeywords, (RunOptions, ComputeOptions), ()),
        (SweepKeywords, (RunOptions, ComputeOptions), ONE_RUN_ONLY),
        (TuneKeywords, (RunOptions, ComputeOptions, SearchOptions), NOT_TUNED),
    ],
)
def test_the_keywords_are_the_fields_of_the_values(keywords, values, without):
    assert types(keywords) == types(*values, without=without)


def test_the_keywords_of_the_pytorch_engine_are_the_fields_of_its_values():
    pytest.importorskip("torch")
    from losac.torch.options import TorchKeywords, TorchOptions, TorchProblem

    assert types(TorchKeywords) == types(RunOptions, TorchOptions, TorchProblem)
    fields = {f.name: f.default for f in dataclasses.fields(losac.Task)}
    assert {f.name for f in dataclasses.fields(TorchProblem)} <= set(fields)


@pytest.mark.parametrize("function", [losac.simulate, losac.sweep, losac.tune, record])
def test_help_shows_every_option(function):
    shown = inspect.signature(function).parameters
    hidden = {losac.sweep: ONE_RUN_ONLY, losac.tune: NOT_TUNED}.get(function, ())
    for kind in (RunOptions, ComputeOptions):
        for field in dataclasses.fields(kind):
            assert (field.name in shown) == (field.name not in hidden)
            assert field.metadata["help"].endswith(".")
    assert (
        len(function.__code__.co_varnames[: function.__code__.co_argcount + function.__code__.co_kwonlyargcount]) <= 12
    )


def test_values_and_keywords_are_the_same_run():
    whole = losac.simulate(TASK, METHOD, RUN, COMPUTE)
    named = losac.simulate(TASK, METHOD, **dataclasses.asdict(RUN), **dataclasses.asdict(COMPUTE))
    mixed = losac.simulate(TASK, METHOD, RUN, dtype="float64", gradients="formed", rounds=2)
    np.testing.assert_array_equal(whole.params, named.params)
    assert whole.conditions == named.conditions
    assert mixed.rounds.tolist() == [0, 2]
    (member,) = losac.sweep(TASK, METHOD, {}, [5], dataclasses.replace(RUN, seed=0), COMPUTE).members
    np.testing.assert_allclose(member.params, whole.params, rtol=1e-12)


def test_a_sweep_takes_the_clients_own_numbers_of_steps():
    steps = [1, 2, 3, 1, 2, 3]
    (member,) = losac.sweep(TASK, METHOD, {}, [5], rounds=3, clients_per_round=3, local_steps=steps).members
    alone = losac.simulate(TASK, METHOD, rounds=3, clients_per_round=3, local_steps=steps, seed=5)
    np.testing.assert_array_equal(member.gradients, alone.gradients)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: losac.simulate(TASK, METHOD, rouns=3), r"simulate\(\) .*'rouns' \(did you mean 'rounds'\?\)"),
        (lambda: losac.simulate(TASK, METHOD, RUN, keep_sate=True), "did you mean 'keep_state'"),
        (lambda: losac.simulate(TASK, METHOD), r"simulate\(\) missing .*'rounds'"),
        (lambda: losac.simulate(TASK, METHOD, {"rounds": 3}), "run must be"),
        (lambda: losac.simulate(TASK, METHOD, RUN, RUN), "compute must be"),
        (lambda: losac.sweep(TASK, METHOD, {}, rounds=1, seed=3), r"'seed' \(did you mean"),
        (lambda: losac.tune(TASK, METHOD, {"step_size": [0.1]}, rounds=1, serch="grid"), "did you mean 'search'"),
    ],
)
def test_wrong_names_and_kinds_are_refused_with_the_nearest_right_one(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_a_sweep_refuses_what_is_of_a_single_run():
    with pytest.raises(ValueError, match="sweep takes no seed"):
        losac.sweep(TASK, METHOD, {}, [0], RUN)
    with pytest.raises(ValueError, match="sweep takes no store"):
        losac.sweep(TASK, METHOD, {}, [0], dataclasses.replace(RUN, seed=0), ComputeOptions(store="memory"))


@pytest.mark.parametrize("store", ["auto", "device", "memory"])
def test_a_run_is_checked_and_shaped_once(monkeypatch, store):
    seen = []
    for name in ("check", "program_shape", "with_factoring"):
        own = getattr(setup, name)
        monkeypatch.setattr(setup, name, lambda *args, own=own, name=name: seen.append(name) or own(*args))
    losac.simulate(TASK, METHOD, rounds=1, gradients="factored", store=store)
    assert sorted(seen) == ["check", "program_shape", "with_factoring"]


def test_engines_take_options_that_were_checked_against_the_task():
    options = SimulationOptions.of(TASK, RUN, ComputeOptions(store="memory"))
    assert (options.sampled, options.seed, options.dtype) == (3, 5, np.dtype("float32"))
    assert isinstance(residence.make_engine(TASK, METHOD, options, None, False), residence.PagedEngine)


@pytest.mark.parametrize("name", ["losac", "scaffold"])
def test_run_folders_of_version_0_1_0_open_and_go_on(name, tmp_path):
    """Their first rounds were another program's, so that the numbers are equal to rounding only."""
    with zipfile.ZipFile(OLD_RUNS) as archive:
        archive.extractall(tmp_path)
    rng = np.random.default_rng(5)
    parts = [
        (rng.standard_normal((n, 3)).astype(np.float32), rng.standard_normal(n).astype(np.float32))
        for n in (4, 5, 6, 5)
    ]
    task = losac.regression(losac.models.linear(3), losac.FederatedData.from_clients(parts))
    algorithm = {"losac": A.losac(0.01, 2, 2), "scaffold": A.scaffold(0.01, 2, 2)}[name]
    options = {"clients_per_round": 2, "eval_every": 2, "seed": 3}
    assert open_run(tmp_path / name).history().rounds[-1] == 8
    longer = record(task, algorithm, tmp_path / name, rounds=12, resume=True, **options)
    whole = losac.simulate(task, algorithm, rounds=12, **options)
    np.testing.assert_allclose(longer.params, whole.params, rtol=1e-5)
    np.testing.assert_allclose(longer.metric("loss"), whole.metric("loss"), rtol=1e-5)
    assert longer.conditions == whole.conditions


def test_run_folders_from_before_a_cost_was_counted_open(monkeypatch, tmp_path):
    with zipfile.ZipFile(OLD_RUNS) as archive:
        archive.extractall(tmp_path)
    monkeypatch.setitem(COSTS, "flops", Cost("gradients", "gigaflops", "GFLOP", 1e9, later=True))
    history = open_run(tmp_path / "losac").history()
    assert np.isnan(history.costs["flops"]).all()
    assert history.bytes_up[-1] > 0
