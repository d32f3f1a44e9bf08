"""The simulator's numbers between real processes, with TLS, some of which are killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("Crypto")

from commands import losac
from losac.deploy.app import write_app
from losac.deploy.demo import conclude, hurt, read_log, round_of, simulated_beside
from losac.deploy.errors import DeployError
from losac.deploy.local import LocalFederation
from losac.deploy.processes import members, read_records, terminate
from losac.federation import durable
from losac.federation.secure.identity import make_identity, write_peers
from losac.federation.secure.rules import PEERS
from losac.federation.status import read_status
from losac.history import treefile

pytestmark = pytest.mark.processes
ROUNDS = {"losac": 3, "scaffold": 2, "mime_svrg": 1}
METHODS = tuple(ROUNDS)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("federation")
    caching = {"LOSAC_PROGRAMS": "on", "LOSAC_CACHE": str(folder / "cache")}  # every message starts a process
    caching["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"  # where nothing is optimised none takes JAX's second
    running = LocalFederation(folder, 3, environment=caching, timeout=120)
    with running:
        yield running
        seen = list(read_records(running.folder.pids).values())
        assert len(seen) == 5
    assert [member for record in seen for member in members(record)] == []
    assert set(running.processes().values()) == {None}


def write(folder: Path, method: str, clients: int = 2) -> Path:
    settings = {"step_size": 2e-4, "local_steps": 3, "blocks": 3}
    app = folder / f"app_{method}_{clients}"
    write_app(
        app, algorithm=method, settings=settings, data="digits", model="softmax",
        partition="dirichlet:0.3", clients=clients, clients_per_round=clients, rounds=3,
    )  # fmt: skip
    return app


def until(federation: LocalFederation, run: str, out: Path, rounds: int, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while round_of(out) < rounds:
        told = read_status(out)  # the file; asking Flower starts a process
        assert told is None or not told["state"].startswith(("finished", "ended")), federation.log(run)[-2000:]
        assert time.monotonic() < end, federation.log(run)[-2000:]
        time.sleep(0.5)


def test_real_processes_sum_under_masks(federation, tmp_path):
    """The model is that of the plain simulation up to the quantiser, and the sums are equal in whole numbers."""
    states = [federation.folder.state(number) for number in range(3)]
    keys = {f"client-{number}": make_identity(state) for number, state in enumerate(states)}
    for state in states:
        write_peers(state / PEERS, keys)
    app, out = write(tmp_path, "losac", clients=3), tmp_path / "results"
    masked = {"secure-aggregation": True, "secure-range": "4.0, 4000.0"}
    run = federation.submit(app, {"out": str(out), "rounds": 1} | masked)
    until(federation, run, out, 1)
    while not (out / "model.npz").exists():
        time.sleep(0.1)
    federation.stop_run(run)  # the run's own check is another masked sum, of 15 messages; here the disks tell the same
    for state in states:
        (state / PEERS).unlink()  # with it, a node sends nothing without masks
    book = durable.read(out / "checkpoint")
    held = [durable.read(path).arrays["held"] for state in states for path in state.glob("runs/*/pending")]
    assert len(held) == 3
    for index, total in enumerate(book.arrays["total"]):
        np.testing.assert_array_equal(sum(levels[index] for levels in held), total)
        assert total.dtype == np.int64
        assert total.any()
    model, plain = treefile.load(out / "model.npz")["params"], simulated_beside(app, read_log(out)).params
    for a, b in zip(*map(jax.tree.leaves, (model, plain)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6 * np.abs(b).max())


@pytest.fixture
def two(federation):
    """The federation without its third node."""
    terminate([read_records(federation.folder.pids)["node-2"]], patience=30)
    return federation


def test_real_processes_arrive_where_the_simulator_does_though_some_are_killed(two, tmp_path):
    federation = two
    apps = {method: write(tmp_path, method) for method in METHODS}
    outs = {method: tmp_path / "results" / method for method in METHODS}
    runs = {"losac": federation.submit(apps["losac"], {"out": str(outs["losac"]), "deadline": 30})}
    first, ids = federation.processes(), federation.node_ids
    assert federation.online() == {"node-0": True, "node-1": True, "node-2": False}
    with pytest.raises(DeployError, match="runs already"):
        LocalFederation(federation.folder.root).start()
    until(federation, runs["losac"], outs["losac"], 1)
    federation.kill("node-1")
    assert federation.processes() == {**first, "node-1": None}
    federation.restart("node-1")
    assert federation.node_ids == ids
    until(federation, runs["losac"], outs["losac"], 2)
    runs["losac"] = hurt(federation, "server", apps["losac"], outs["losac"], runs["losac"])
    for method in METHODS[1:]:  # meanwhile
        runs[method] = federation.submit(apps[method], {"out": str(outs[method]), "rounds": ROUNDS[method]})
    until(federation, runs["scaffold"], outs["scaffold"], 1)
    federation.stop_run(runs["scaffold"])
    assert federation.status(runs["scaffold"])["status"] == "finished:stopped"
    stopped = federation.log(runs["scaffold"])  # it may have got to the last round before it was stopped
    runs["scaffold"] = federation.resume(runs["scaffold"])
    for method in METHODS:
        assert federation.wait(runs[method], 600)["status"] == "finished:completed", federation.log(runs[method])
        outcome = conclude(apps[method], outs[method])
        assert outcome.rounds == ROUNDS[method]
        assert outcome.difference < 1e-5
        assert outcome.invariant < 1e-6
        told = read_status(outs[method])
        assert (told["state"], told["round"], len(told["answered"])) == ("finished", ROUNDS[method], 2)
        logged = federation.log(runs[method]) + (stopped if method == "scaffold" else "")
        assert f" INFO    round={ROUNDS[method]} measured: " in logged
    assert 'round=1 client="client-0" order to train: done' in federation.folder.log("node-0").read_text()
    shown = losac("deploy", "status", str(federation.folder.root)).stdout
    assert all(f"{ROUNDS[method]} of {3 if method == 'losac' else ROUNDS[method]}" in shown for method in METHODS)
    for folder in (federation.folder.root, tmp_path / "results"):
        readable = [path for path in folder.rglob("*") if path.stat().st_mode & 0o077]
        assert not readable, "only their owner reads keys, states, results and the database"
