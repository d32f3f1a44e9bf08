"""The simulator's numbers between real processes, with TLS, some of which are killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from commands import losac
from losac.deploy.app import write_app
from losac.deploy.demo import conclude, hurt, round_of
from losac.deploy.errors import DeployError
from losac.deploy.local import LocalFederation
from losac.deploy.processes import members, read_records
from losac.federation.status import read_status

pytestmark = pytest.mark.processes
ROUNDS = {"losac": 3, "scaffold": 2, "mime_svrg": 1}
METHODS = tuple(ROUNDS)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("federation")
    caching = {"LOSAC_PROGRAMS": "on", "LOSAC_CACHE": str(folder / "cache")}  # every message starts a process
    caching["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"  # where nothing is optimised none takes JAX's second
    running = LocalFederation(folder, 2, environment=caching, timeout=120)
    with running:
        yield running
        seen = list(read_records(running.folder.pids).values())
        assert len(seen) == 4
    assert [member for record in seen for member in members(record)] == []
    assert set(running.processes().values()) == {None}


def write(folder: Path, method: str) -> Path:
    settings = {"step_size": 2e-4, "local_steps": 3, "blocks": 3}
    write_app(
        folder / f"app_{method}", algorithm=method, settings=settings, data="digits", model="softmax",
        partition="dirichlet:0.3", clients=2, clients_per_round=2, rounds=3,
    )  # fmt: skip
    return folder / f"app_{method}"


def until(federation: LocalFederation, run: str, out: Path, rounds: int, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while round_of(out) < rounds:
        assert not federation.status(run)["status"].startswith("finished"), federation.log(run)[-2000:]
        assert time.monotonic() < end, federation.log(run)[-2000:]
        time.sleep(0.5)


def test_real_processes_arrive_where_the_simulator_does_though_some_are_killed(federation, tmp_path):
    apps = {method: write(tmp_path, method) for method in METHODS}
    outs = {method: tmp_path / "results" / method for method in METHODS}
    runs = {"losac": federation.submit(apps["losac"], {"out": str(outs["losac"]), "deadline": 30})}
    first, ids = federation.processes(), federation.node_ids
    assert federation.online() == {"node-0": True, "node-1": True}
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
    runs["scaffold"] = federation.resume(runs["scaffold"])
    for method in METHODS:
        assert federation.wait(runs[method], 300)["status"] == "finished:completed", federation.log(runs[method])
        outcome = conclude(apps[method], outs[method])
        assert outcome.rounds == ROUNDS[method]
        assert outcome.difference < 1e-5
        assert outcome.invariant < 1e-6
        told = read_status(outs[method])
        assert (told["state"], told["round"], len(told["answered"])) == ("finished", ROUNDS[method], 2)
        assert f" INFO    round={ROUNDS[method]} measured: " in federation.log(runs[method])
    assert 'round=1 client="client-0" order to train: done' in federation.folder.log("node-0").read_text()
    shown = losac("deploy", "status", str(federation.folder.root)).stdout
    assert all(f"{ROUNDS[method]} of {3 if method == 'losac' else ROUNDS[method]}" in shown for method in METHODS)
    for folder in (federation.folder.root, tmp_path / "results"):
        readable = [path for path in folder.rglob("*") if path.stat().st_mode & 0o077]
        assert not readable, "only their owner reads keys, states, results and the database"
