"""Every algorithm on Flower: the simulator's numbers, through really serialised messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

import losac
from catalogue import CATALOGUE, REFUSED, Regime
from flower_loop import loop
from losac.federation.numpy import numpy_worker
from losac.flower import Rules, Strategy
from problems import quadratic
from serving import distance
from serving import federate as serve

A = losac.algorithms
PROBLEM = quadratic(clients=4, samples=8)
QUANTISED = {"fedpaq"}
ROUNDS = 10


def federate(algorithm: Any, folder: Path, sampled: int, dtype: str, task=PROBLEM.task, rounds=ROUNDS, **options: Any):
    rules = Rules(clients=4, clients_per_round=sampled, dtype=dtype, **options.pop("rules", {}))
    grid = loop(task, algorithm, folder / "clients", dtype, options.pop("spoil", None))
    return Strategy(algorithm, rules, out=folder / "server", evaluate_every=rounds, **options).start(grid, task, rounds)


def uncompiled(algorithm: Any) -> list[Any]:
    """The same clients in NumPy."""
    clients = map(PROBLEM.data.client, range(4))
    return [numpy_worker(algorithm, lambda w, x, y: x.T @ (x @ w - y) / len(x), x, y) for x, y in clients]


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_the_numbers_are_the_simulators(entry, tmp_path):
    sampled = 4 if entry.random_blocks == REFUSED else 3
    algorithm = entry.make(PROBLEM.curvature, Regime("", sampled, 2))
    dtype, limit = ("float64", 1e-10) if entry.name in QUANTISED else ("float32", 1e-5)
    here = losac.simulate(
        PROBLEM.task, algorithm, rounds=ROUNDS, clients_per_round=sampled, dtype=dtype, eval_every=ROUNDS
    )
    there = federate(algorithm, tmp_path, sampled, dtype)
    eager = serve(algorithm, uncompiled(algorithm), np.zeros(4, dtype), rounds=ROUNDS, sampled=sampled)
    assert distance(eager.params, here.params) < limit
    assert distance(there.params, here.params) < limit
    assert there.gradients[-1] == pytest.approx(here.gradients[-1], rel=1e-6)
    assert float((tmp_path / "server" / "invariant.json").read_text().split(":")[1].rstrip("}")) < limit
