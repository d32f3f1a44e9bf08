"""Histories: what they count, how they answer, that they survive a file."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import losac
from losac._costs import COSTS
from losac.history.history import History
from problems import quadratic

A = losac.algorithms
PROBLEM = quadratic(clients=6, samples=8, dim=3)


def curve(**metrics) -> History:
    count = len(next(iter(metrics.values())))
    arrays = {name: np.array(values, float) for name, values in metrics.items()}
    zero = np.zeros(count)
    return History("losac", {}, "toy", 0, 10 * np.arange(count), arrays, dict.fromkeys(COSTS, zero), zero)


def test_a_cost_is_counted_recorded_and_shown_by_one_table(monkeypatch, tmp_path):
    """A new cost needs its row of the table and its price, and no other file."""
    from losac import _costs
    from losac.report import comparison_frame, group_histories
    from losac.report.groups import axis_values

    monkeypatch.setitem(_costs.COSTS, "flops", _costs.Cost("flops", "gigaflops", "GFLOP", 1e9))
    counted = {name: np.array([0.0, 3e9]) for name in _costs.COSTS}
    run = History("losac", {}, "toy", 0, np.array([0, 1]), {"loss": np.array([2.0, 1.0])}, counted, np.zeros(2))
    assert History.load(run.save(tmp_path / "run.npz")).costs["flops"].tolist() == [0.0, 3e9]
    assert run.to_frame()["flops"].tolist() == [0.0, 3e9]
    assert comparison_frame([run])["gigaflops"].tolist() == [3.0]
    assert axis_values(group_histories([run])[0].runs[0], "flops").tolist() == [0.0, 3e9]


def test_rounds_to_a_target():
    history = curve(loss=[2.0, 1.0, 0.4, 0.6, 0.3], accuracy=[0.1, 0.86, 0.80, 0.87, 0.9])
    assert history.rounds_to("accuracy", 0.85) == 10
    assert history.rounds_to("accuracy", 0.85, sustained=2) == 30
    assert history.rounds_to("loss", 0.5) == 20
    assert history.rounds_to("accuracy", 0.95) is None
    with pytest.raises(KeyError, match="did you mean 'accuracy'"):
        history.rounds_to("acuracy", 0.5)


def test_counts_come_from_the_messages_and_the_calls():
    """SCAFFOLD sends two models each way; option 1 adds a full gradient to the K steps."""
    for option, extra in ((1, 8), (2, 0)):
        run = losac.simulate(
            PROBLEM.task, A.scaffold(1e-3, 3, 4, option=option), rounds=5, clients_per_round=2, eval_every=2
        )
        assert run.rounds.tolist() == [0, 2, 4, 5]
        assert run.bytes_up.tolist() == [2 * 2 * 12 * r for r in run.rounds]
        assert run.gradients.tolist() == [2 * (3 * 8 / 4 + extra) * r for r in run.rounds]


def test_a_history_survives_a_file(tmp_path):
    task = losac.classification(losac.models.Dense((64, 4, 10)), losac.data.load("digits", clients=4))
    run = losac.simulate(task, A.losac(1e-4, 2, 2), rounds=3)
    again = losac.History.load(run.save(tmp_path / "deep" / "run.npz"))
    assert repr(again) == repr(run)
    assert again.settings["blocks"] == 2
    assert jax.tree.structure(again.params) == jax.tree.structure(run.params)
    assert again.to_frame().equals(run.to_frame())
    assert run.to_frame().columns[0] == "round"


def test_a_damaged_or_foreign_file_is_named(tmp_path):
    path = tmp_path / "run.npz"
    path.write_bytes(b"not a file of ours")
    with pytest.raises(ValueError, match=r"run\.npz is not a file that losac saved"):
        losac.History.load(path)
    good = losac.simulate(PROBLEM.task, A.fedavg(1e-3), rounds=1).save(tmp_path / "good.npz")
    good.write_bytes(good.read_bytes()[:-200])
    with pytest.raises(ValueError, match=r"good\.npz"):
        losac.History.load(good)


def test_training_loss_now_and_then():
    run = losac.simulate(PROBLEM.task, A.fedavg(1e-3), rounds=6, loss_every=3)
    assert np.isnan(run.metrics["loss"]).tolist() == [False, True, True, False, True, True, False]
    assert run.final("loss") == run.metrics["loss"][-1]


def test_progress_is_reported():
    seen = []
    losac.simulate(
        PROBLEM.task, A.fedavg(1e-3), rounds=5, progress=lambda history: seen.append(int(history.rounds[-1]))
    )
    assert seen[-1] == 5
    assert seen == sorted(seen)


def test_functions_among_the_settings_are_saved_by_name(tmp_path):
    import optax

    run = losac.simulate(PROBLEM.task, A.fedavg(1e-3, local_optimizer=optax.adam), rounds=1)
    assert losac.History.load(run.save(tmp_path / "run.npz")).settings["local_optimizer"] == "adam"


def test_a_phase_by_chance_is_counted_where_it_took_place():
    """S-Local-SVRG: 3 models down and 1 up for each of S clients; at a renewal 1 and 1 more for each of N."""
    run = losac.simulate(
        PROBLEM.task, A.local_svrg(1e-3, 2, refresh=0.4), rounds=30, clients_per_round=2, eval_every=30
    )
    renewals = (run.bytes_up[-1] / 12 - 30 * 2) / 6
    assert renewals == int(renewals)
    assert 4 <= renewals <= 20
    assert run.bytes_down[-1] == 12 * (30 * 2 * 3 + renewals * 6)


def test_a_divergence_survives_a_process_boundary():
    import pickle

    error = losac.DivergedError("losac diverged", curve(loss=[1.0]))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "losac diverged"
    assert again.history.metrics["loss"].tolist() == [1.0]


def test_a_model_outside_of_a_constraint_has_an_infinite_objective_and_has_not_diverged(tmp_path):
    problem = quadratic(clients=3, samples=6, dim=2, regularizer=losac.prox.box(0.1, 0.2))
    run = losac.simulate(problem.task, losac.algorithms.dsgd(0.1 / problem.curvature), rounds=2)
    assert run.metric("objective")[0] == np.inf, "it starts at zero, outside of the box"
    assert np.isfinite(run.metric("objective")[1:]).all()
    losac.report.write_page([run], tmp_path / "page.html")
    losac.report.plot_histories([run], ["objective"])
