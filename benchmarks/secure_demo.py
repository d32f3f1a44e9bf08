"""Secure aggregation between five real nodes, one of which is killed between shares and unmask, and the server once.

    python benchmarks/secure_demo.py demo --json benchmarks/results/secure_demo.json

A federation with TLS trains LoSAC on the embedded data. In the second round node-1 is killed once it has shared its
keys, before it sends anything; the others tell its masks. In the third round the server's process is killed when the
clients of the sum are in its book, before it is unmasked; it continues there. At the end the model is compared with
the simulator's for the same clients in each round, without masks and in fixed point, and the server's sum with what
the clients hold, in whole numbers. About a quarter of an hour on two cores.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from losac.algorithms import fixed_point
from losac.deploy.app import write_app
from losac.deploy.demo import _config, _problem, conclude, read_log, round_of
from losac.deploy.local import LocalFederation
from losac.federation import durable
from losac.federation.secure.identity import make_identity, write_peers
from losac.federation.secure.rules import PEERS
from losac.history import treefile
from losac.simulation import simulate

NODES, ROUNDS = 5, 4
RANGE = (4.0, 4000.0)
ASK_EVERY = 60.0


def wait(federation: LocalFederation, run: str, what: str, due: Any) -> None:
    """Wait until something is the case."""
    print(f"{time.strftime('%H:%M:%S')} waiting until {what}", flush=True)
    asked = time.monotonic()
    while not due():
        time.sleep(0.05)
        if time.monotonic() > asked + ASK_EVERY:  # it starts a process, and what is waited for may pass meanwhile
            status, asked = federation.status(run)["status"], time.monotonic()
            if status.startswith("finished"):
                raise SystemExit(f"the run ended early ({status}):\n{federation.log(run)[-3000:]}")


def session(federation: LocalFederation, number: int) -> dict[str, Any]:
    """Return what a node knows of its latest session."""
    for path in federation.folder.state(number).glob("runs/*/session"):
        record = durable.read(path)
        return {} if record is None else dict(record.values)
    return {}


def sealed(out: Path) -> bool:
    """Whether the server's book holds a sum that is still masked."""
    record = durable.read(out / "checkpoint")
    return record is not None and "sealed" in record.values


def in_fixed_point(app: Path, log: list[dict[str, Any]]) -> Any:
    """Return the simulator's model for the same clients, with uploads in the wire's whole numbers."""
    module, config = _problem(app), _config(app)
    method = module.algorithm(config)
    accepted = [line["answered"] for line in log if line["round"] and not line["void"]]
    lists = [[int(name.split("-")[1]) for name in answered] for answered in accepted]
    return simulate(
        module.task(module.load(config)), method.replace(uploads=(fixed_point(RANGE),)), rounds=len(lists),
        sampling=lists, clients_per_round=NODES, seed=config["seed"], eval_every=len(lists),
    ).params  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    app, out = arguments.folder / "secure_app", arguments.folder.resolve() / "results"
    write_app(
        app, algorithm="losac", settings={"step_size": 4e-4, "local_steps": 5, "blocks": 3}, data="digits",
        model="softmax", partition="dirichlet:0.3", clients=NODES, clients_per_round=NODES, rounds=ROUNDS,
    )  # fmt: skip
    settings = {
        "out": str(out), "secure-aggregation": True, "secure-range": ", ".join(map(str, RANGE)), "deadline": 300,
    }  # fmt: skip
    began = time.time()
    with LocalFederation(arguments.folder / "federation", NODES, timeout=300) as federation:
        states = [federation.folder.state(number) for number in range(NODES)]
        keys = {f"client-{number}": make_identity(state) for number, state in enumerate(states)}
        for state in states:
            write_peers(state / PEERS, keys)
        run = federation.submit(app, settings)
        wait(federation, run, "the first round is accepted", lambda: round_of(out) >= 1)
        old = session(federation, 1)["session"]
        wait(
            federation, run, "node-1 has shared its keys for the second",
            lambda: session(federation, 1).get("session") != old and "shared" in session(federation, 1),
        )  # fmt: skip
        assert "received" not in session(federation, 1), "it was too late"
        federation.kill("node-1")
        wait(federation, run, "the round is accepted without node-1, which is killed", lambda: round_of(out) >= 2)
        federation.restart("node-1")
        wait(federation, run, "the sum of the third round is in the book, masked", lambda: sealed(out))
        federation.kill("superexec")
        assert sealed(out), "it was too late"
        federation.restart("superexec")
        run = federation.submit(app, settings)
        wait(federation, run, "the server, which was killed, accepts that round", lambda: round_of(out) >= 3)
        status = federation.wait(run, 1800)["status"]
        assert status == "finished:completed", federation.log(run)[-3000:]
        continued = "the round is continued where its clients were fixed" in federation.log(run)
    outcome, log = conclude(app, out), read_log(out)
    model, beside = treefile.load(out / "model.npz")["params"], in_fixed_point(app, log)
    pairs = list(zip(jax.tree.leaves(model), jax.tree.leaves(beside), strict=True))
    largest = max(float(np.abs(b).max()) for _, b in pairs)
    found = {
        "rounds": outcome.rounds, "void": outcome.void, "continued after the kill": continued,
        "answered": [len(line["answered"]) for line in log if line["round"]],
        "accuracy": outcome.accuracy, "simulated": outcome.simulated, "off the plain run": outcome.difference,
        "off the same in fixed point": max(float(np.abs(a - b).max()) for a, b in pairs) / largest,
        "invariant, in whole numbers": outcome.invariant, "seconds per round": outcome.seconds_per_round,
        "seconds": time.time() - began,
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
