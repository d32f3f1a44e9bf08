"""The simulator's numbers between real processes, with TLS, some of which are killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from losac.deploy.app import write_app
from losac.deploy.demo import conclude, hurt, round_of
from losac.deploy.local import LocalFederation

pytestmark = pytest.mark.processes
METHODS = ("losac", "scaffold", "mime_svrg")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("federation")
    caching = {"LOSAC_PROGRAMS": "on", "LOSAC_CACHE": str(folder / "cache")}  # every message starts a process
    with LocalFederation(folder, 2, environment=caching, timeout=120) as running:
        yield running


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
    until(federation, runs["losac"], outs["losac"], 1)
    federation.kill("node-1")
    federation.restart("node-1")
    until(federation, runs["losac"], outs["losac"], 2)
    runs["losac"] = hurt(federation, "server", apps["losac"], outs["losac"], runs["losac"])
    for method in METHODS[1:]:  # meanwhile
        runs[method] = federation.submit(apps[method], {"out": str(outs[method]), "rounds": 2})
    for method in METHODS:
        assert federation.wait(runs[method], 300)["status"] == "finished:completed", federation.log(runs[method])
        outcome = conclude(apps[method], outs[method])
        assert outcome.rounds == (3 if method == "losac" else 2)
        assert outcome.difference < 1e-5
        assert outcome.invariant < 1e-6
