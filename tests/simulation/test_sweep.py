"""Sweeps: the same numbers as single runs, diverged members marked, chunks that fit memory."""

from __future__ import annotations

import numpy as np
import pytest

import losac
from losac.simulation.engines import swept as members
from losac.simulation.options import SimulationOptions
from problems import quadratic

A = losac.algorithms
PROBLEM = quadratic(clients=6, samples=8, dim=3)
ETA = 0.1 / PROBLEM.curvature
RUN = {"rounds": 12, "clients_per_round": 3, "eval_every": 5, "dtype": "float64"}


def test_members_equal_single_runs_whatever_is_at_once():
    grid = {"step_size": [ETA, ETA / 2], "server_step": [0.5, 1.0]}
    for at_once in (None, 3):
        result = losac.sweep(PROBLEM.task, A.scaffold(1.0, 3, 2), grid, [0, 4], **RUN, at_once=at_once)
        assert len(result) == 8
        for member in result.members:
            algorithm = A.scaffold(member.settings["step_size"], 3, 2, server_step=member.settings["server_step"])
            single = losac.simulate(PROBLEM.task, algorithm, seed=member.seed, **RUN)
            assert member.rounds.tolist() == single.rounds.tolist() == [0, 5, 10, 12]
            np.testing.assert_allclose(member.params, single.params, rtol=1e-10)
            np.testing.assert_allclose(member.metrics["loss"], single.metrics["loss"], rtol=1e-10)
            assert member.bytes_up.tolist() == single.bytes_up.tolist()


def test_counts_make_programs_of_their_own():
    result = losac.sweep(PROBLEM.task, A.losac(ETA / 10, 1, 2), {"local_steps": [1, 3], "blocks": [2, 4]}, **RUN)
    settings = [(m.settings["local_steps"], m.settings["blocks"]) for m in result.members]
    assert settings == [(1, 2), (1, 4), (3, 2), (3, 4)]
    single = losac.simulate(PROBLEM.task, A.losac(ETA / 10, 3, 2), **RUN)
    np.testing.assert_allclose(result.members[2].params, single.params, rtol=1e-10)


def test_large_models_are_shared_out_to_the_devices(monkeypatch):
    """The other way to lay members out gives the same numbers, with members that do not divide the devices."""
    vectorised = losac.sweep(
        PROBLEM.task, A.losac(ETA / 10, 3, 2), {"step_size": [ETA / 10, ETA / 20, ETA / 30]}, **RUN
    )
    monkeypatch.setattr(members, "SMALL", 0)
    shared = losac.sweep(PROBLEM.task, A.losac(ETA / 10, 3, 2), {"step_size": [ETA / 10, ETA / 20, ETA / 30]}, **RUN)
    for a, b in zip(vectorised.members, shared.members):
        np.testing.assert_allclose(a.params, b.params, rtol=1e-10)


def test_the_diverged_member_is_marked_and_the_others_go_on():
    run = RUN | {"rounds": 300, "eval_every": 20}
    result = losac.sweep(PROBLEM.task, A.losac(1.0, 5, 2), {"step_size": [ETA / 10, 50.0]}, [0, 1], **run)
    good, bad = result.members[:2], result.members[2:]
    assert all(m.diverged is None and m.rounds[-1] == 300 for m in good)
    assert all(m.diverged is not None and m.rounds[-1] < m.diverged for m in bad)
    frame = result.to_frame()
    assert frame["step_size"].tolist() == [ETA / 10, ETA / 10, 50.0, 50.0]
    assert frame["loss"].isna().tolist() == [False, False, True, True]
    assert result.best("loss") == {"step_size": ETA / 10}
    assert repr(result) == "Sweep(2 step_size × 2 seeds: 4 members, 2 diverged)"


def test_best_knows_which_way_is_better():
    data = losac.data.load("digits", clients=5, partition="iid")
    task = losac.classification(losac.models.softmax_regression(64, 10), data)
    result = losac.sweep(task, A.fedavg(1.0, 2), {"step_size": [1e-6, 1e-3]}, rounds=5, eval_every=5)
    assert result.best("accuracy") == result.best("loss") == {"step_size": 1e-3}


def test_memory_decides_how_many_run_at_once(monkeypatch):
    options = SimulationOptions.of(PROBLEM.task, rounds=1, clients_per_round=3, dtype="float64")

    def fitting(blocks: int) -> int:
        algorithm = A.losac(ETA, 2, blocks)
        shape = members.member_shape(PROBLEM.task, algorithm, options)
        return members.fitting(PROBLEM.task, algorithm, options, shape)

    monkeypatch.setattr(members, "free_memory", lambda: 1e6)
    few, many = fitting(8), fitting(1)
    assert 1 <= few < many
    monkeypatch.setattr(members, "free_memory", lambda: 0.0)
    assert fitting(8) == 1


def test_bad_grids_are_refused():
    with pytest.raises(TypeError, match="did you mean 'step_size'"):
        losac.sweep(PROBLEM.task, A.fedavg(ETA), {"stepsize": [0.1]}, rounds=1)
    with pytest.raises(ValueError, match="at least one value"):
        losac.sweep(PROBLEM.task, A.fedavg(ETA), {"step_size": []}, rounds=1)
    with pytest.raises(ValueError, match="must be a positive number"):
        losac.sweep(PROBLEM.task, A.fedavg(ETA), {"step_size": [-0.1]}, rounds=1)
