"""A federation with processes killed on the way, compared with the simulator.

Four clients with TLS and their own keys train LoSAC. A SuperNode is killed and comes back, then the SuperLink, then
the server's own process, which continues from its checkpoint. At the end the server's sum is compared with what the
clients hold, and the model with that of the simulator for the same clients in each round.
"""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from losac.deploy.app import write_app
from losac.deploy.errors import DeployError
from losac.deploy.local import LocalFederation
from losac.federation import durable
from losac.history import History, treefile
from losac.simulation import simulate

NODES = 4
SETTINGS: dict[str, Any] = {
    "mnist": {"model": "2nn", "partition": "sorted", "step": 1e-6, "sampled": 3},
    "digits": {"model": "softmax", "partition": "dirichlet:0.3", "step": 4e-4, "sampled": 3},
}
POLL = 1.0


class DemoOutcome(NamedTuple):
    """The results of a federation, and of the simulator with the same clients in each round."""

    accuracy: float
    simulated: float
    difference: float
    """The largest difference of the two models, relative to the largest parameter."""
    invariant: float
    rounds: int
    void: int
    seconds_per_round: float
    events: tuple[str, ...]


def demo(folder: Path, data: str, rounds: int = 12, tell: Callable[[str], None] = print) -> DemoOutcome:
    """Run the federation in a new or empty folder; return its outcome."""
    chosen = SETTINGS[data]
    app, out = folder / "federated_app", folder / "results"
    write_app(
        app, algorithm="losac", settings={"step_size": chosen["step"], "local_steps": 10, "blocks": 5}, data=data,
        model=chosen["model"], partition=chosen["partition"], clients=NODES, clients_per_round=chosen["sampled"],
        rounds=rounds,
    )  # fmt: skip
    events = []
    with LocalFederation(folder / "federation", NODES) as federation:
        tell(f"{NODES} SuperNodes are online at {federation.address}, with TLS and a key each")
        run = federation.submit(app, {"out": str(out)})
        for what, when in (("node-1", rounds // 4), ("superlink", rounds // 2), ("server", 3 * rounds // 4)):
            _until(federation, run, out, when, tell)
            tell(f"{what} is killed")
            run = hurt(federation, what, app, out, run)
            tell(f"{what} is back")
            events.append(f"{what} killed after round {when}")
        _until(federation, run, out, rounds, tell)
        answer = federation.wait(run, 600)
        if answer["status"] != "finished:completed":
            raise DeployError(f"the run is {answer['status']}; its log is in {federation.folder.logs}")
    return conclude(app, out, tuple(events))


def conclude(app: Path, out: Path, events: tuple[str, ...] = ()) -> DemoOutcome:
    """Compare a run's results with the simulator's for the same clients in each round."""
    history, log = History.load(out / "history.npz"), read_log(out)
    accepted = [line for line in log if line["round"] and not line["void"]]
    beside = simulated_beside(app, log)
    model = treefile.load(out / "model.npz")["params"]
    pairs = list(zip(jax.tree.leaves(model), jax.tree.leaves(beside.params), strict=True))
    largest = max(float(np.abs(b).max()) for _, b in pairs)
    return DemoOutcome(
        history.final("accuracy"),
        beside.final("accuracy"),
        max(float(np.abs(a - b).max()) for a, b in pairs) / largest,
        float(json.loads((out / "invariant.json").read_text())["relative_error"]),
        len(accepted),
        sum(bool(line["void"]) for line in log),
        float(np.median(np.diff([0.0] + [line["seconds"] for line in accepted]))),
        events,
    )


def read_log(out: Path) -> list[dict[str, Any]]:
    """Return the log of a run's rounds from its checkpoint."""
    record = durable.read(out / "checkpoint")
    return [] if record is None else list(record.values["log"])


def simulated_beside(app: Path, log: list[dict[str, Any]]) -> History:
    """Simulate an app's problem with those clients in each round that answered in a run."""
    module, config = _problem(app), _config(app)
    lists = [
        [int(name.split("-")[1]) for name in line["answered"]] for line in log if line["round"] and not line["void"]
    ]
    return simulate(
        module.task(module.load(config)), module.algorithm(config), rounds=len(lists), sampling=lists,
        clients_per_round=config["clients-per-round"], seed=config["seed"], eval_every=len(lists),
    )  # fmt: skip


def _until(federation: LocalFederation, run: str, out: Path, due: int, tell: Callable[[str], None]) -> None:
    """Wait until ``due`` rounds are accepted, and report each."""
    told = round_of(out)
    while (now := round_of(out)) < due:
        if now > told:
            tell(f"round {now}")
            told = now
        status = federation.status(run)["status"]
        if status.startswith("finished"):
            raise DeployError(f"the run ended early ({status}):\n{federation.log(run)[-3000:]}")
        time.sleep(POLL)


def hurt(federation: LocalFederation, what: str, app: Path, out: Path, run: str) -> str:
    """Kill a process and start it again; return the run that continues."""
    name = "superexec" if what == "server" else what
    federation.kill(name)
    federation.restart(name)
    return federation.submit(app, {"out": str(out)}) if what == "server" else run


def round_of(out: Path) -> int:
    """Return how many rounds a run has accepted."""
    record = durable.read(out / "checkpoint")
    return 0 if record is None else int(record.values["round"])


def _config(app: Path) -> dict[str, Any]:
    from losac.deploy.runs import app_config

    return app_config(app)


def _problem(app: Path) -> Any:
    (path,) = app.glob("*/problem.py")
    spec = importlib.util.spec_from_file_location("federated_problem", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
