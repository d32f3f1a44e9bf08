"""A Flower client that protects itself, and what comes of noise that is added too late."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod

import losac
from flower_loop import loop
from losac.federation.book import RefusedError
from losac.federation.numpy import numpy_worker
from losac.flower import Rules, Strategy, client_app, private
from problems import quadratic

A = losac.algorithms
PROBLEM = quadratic(clients=4, samples=8)
SCAFFOLD = A.scaffold(0.1 / PROBLEM.curvature, 2)
LOSAC = A.losac(0.02 / PROBLEM.curvature, 2, 2, scaling="exact")
NOISE = A.gaussian(1e3, 1e-5)


def federate(algorithm: Any, folder: Path, rounds: int, change: Any = None, **options: Any) -> tuple[Any, float]:
    """Return the history, and how far the server's sums are from what the clients hold."""
    rules = Rules(clients=4, clients_per_round=3, dtype="float64")
    grid = loop(
        PROBLEM.task, algorithm, folder / "clients", "float64", options.pop("spoil", None), options.pop("mods", ())
    )
    if change is not None:
        change(grid)
    strategy = Strategy(algorithm, rules, out=folder / "server", evaluate_every=rounds, patience=0.0, **options)
    history = strategy.start(grid, PROBLEM.task, rounds)
    return history, json.loads((folder / "server" / "invariant.json").read_text())["relative_error"]


@pytest.mark.parametrize("algorithm", [SCAFFOLD, LOSAC, A.mime_svrg(0.01 / PROBLEM.curvature, 2)], ids=str)
def test_a_client_clips_and_noises_whatever_the_server_runs(algorithm, tmp_path):
    plain, _ = federate(algorithm, tmp_path / "plain", 6)
    one, error = federate(algorithm, tmp_path / "one", 6, mods=[private(NOISE)])
    other, _ = federate(algorithm, tmp_path / "other", 6, mods=[private(NOISE)])
    assert error < 1e-10, "the clients' states record what was sent"
    assert np.all(one.params != plain.params)
    assert np.all(one.params != other.params), "no seed decides this noise"
    np.testing.assert_allclose(one.params, plain.params, atol=1.0)
    assert one.bytes_up[-1] == pytest.approx(plain.bytes_up[-1], rel=0.02)
    frozen, _ = federate(algorithm, tmp_path / "frozen", 3, mods=[private(A.gaussian(1e-12))])
    assert np.abs(frozen.params).max() < 1e-9


def test_one_client_of_many_may_protect_itself_also_in_numpy(tmp_path):
    def change(grid: Any) -> None:
        for node, mods in ((100, [private(NOISE)]), (101, ())):
            x, y = PROBLEM.data.client(node - 100)
            worker = numpy_worker(
                SCAFFOLD, lambda w, x, y: x.T @ (x @ w - y) / len(x), x, y, params=np.zeros(4),
            )  # fmt: skip
            app = client_app(lambda n, r, worker=worker: worker, lambda run: SCAFFOLD, mods=mods)
            grid.nodes[node] = app, grid.nodes[node][1]

    history, error = federate(SCAFFOLD, tmp_path, 6, change)
    assert error < 1e-10
    assert np.isfinite(history.params).all()


def test_a_private_client_tells_no_loss(tmp_path, caplog):
    history, _ = federate(A.fedavg(1e-3), tmp_path, 2, mods=[private(NOISE)], evaluate_clients=True)
    assert np.isnan(history.final("loss"))
    assert "unprotected" in caplog.text


def test_what_a_client_cannot_do_alone_is_refused(tmp_path, caplog):
    with pytest.raises(ValueError, match="leaves the noise to the server"):
        private(A.gaussian(1.0, 1.0, noise_at="server"))
    for coded in (A.qsgd(3), A.top_k(0.5)):
        with pytest.raises(ValueError, match="needs a server that decodes it"):
            private(coded)
    with pytest.raises(RefusedError):
        federate(A.fedpaq(1e-3), tmp_path, 2, mods=[private(NOISE)])
    assert "compresses its uploads before" in caplog.text


def late_noise(message: Any, context: Any, call_next: Any) -> Any:
    """What a mod of Flower's kind does: change the reply on its way out, after the client has stored its state."""
    reply = call_next(message, context)
    if message.metadata.message_type == "train" and "message" in reply.content:
        record = reply.content["message"]
        noisy = {k: a.numpy() + 1e-3 * np.random.default_rng().normal(size=a.shape) for k, a in record.items()}
        reply.content["message"] = ArrayRecord({name: Array(value) for name, value in noisy.items()})
    return reply


def test_noise_added_to_the_reply_lets_the_sums_walk_away(tmp_path):
    """As √R, where the same noise through `private` leaves them exact: 16 times the rounds, 4 times the error.

    Sixteen entries (four runs) make each measured size good to a sixth, so that their ratio lies within a factor of 2.
    """
    few, many = (
        np.sqrt(np.mean([federate(SCAFFOLD, tmp_path / f"{r} {i}", r, mods=[late_noise])[1] ** 2 for i in range(4)]))
        for r in (5, 80)
    )
    assert few > 1e-6
    assert 2 < many / few < 8


@pytest.mark.parametrize("mod", [LocalDpMod(1.0, 1.0, 1.0, 1e-5), fixedclipping_mod, adaptiveclipping_mod])
def test_flowers_own_mods_let_no_client_in(mod, tmp_path):
    """They refuse every message without exactly one array record, and so the question who a client is."""
    with pytest.raises(RefusedError, match="0 clients came"):
        federate(A.fedavg(1e-3), tmp_path, 2, mods=[mod])


def test_flowers_secure_aggregation_reads_legacy_messages_only(tmp_path):
    from flwr.client.mod import secaggplus_mod

    with pytest.raises(KeyError):
        federate(A.fedavg(1e-3), tmp_path, 2, mods=[secaggplus_mod])


def test_flowers_local_mod_takes_a_difference_for_a_model(tmp_path):
    """Let through to the training messages alone it clips Δx − x instead of Δx: a bound of nothing sends x back."""
    tiny = LocalDpMod(clipping_norm=1e-12, sensitivity=0.0, epsilon=1.0, delta=1e-5)

    def only_training(message: Any, context: Any, call_next: Any) -> Any:
        if message.metadata.message_type != "train":
            return call_next(message, context)
        return tiny(message, context, call_next)

    method = A.fedavg(0.01 / PROBLEM.curvature)
    uploads = []

    def spoil(node: int, reply: Any) -> Any:
        if "message" in reply.content:
            uploads.append(reply.content["message"]["."].numpy())
        return reply

    start = losac.Task(PROBLEM.task.loss, np.ones(4), PROBLEM.data)
    grid = loop(start, method, tmp_path, "float64", spoil, [only_training])
    rules = Rules(clients=4, clients_per_round=4, dtype="float64")
    Strategy(method, rules, evaluate_every=1).start(grid, start, 1)
    for upload in uploads:
        np.testing.assert_allclose(upload, 1.0, atol=1e-9)
