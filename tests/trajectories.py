"""Trajectories of every algorithm in float64, walked in plain Python and frozen in ``trajectories.json``.

    python tests/trajectories.py          # compare with the file
    python tests/trajectories.py --write  # freeze today's numbers

A trajectory is the model after some rounds of a small least-squares federation whose clients work in NumPy: nothing is
compiled, so that all of them take seconds. They were frozen from code that passes the laws and follows the published
equations; write them again only where a change of the numbers is meant, and say why.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optax

import losac
import losac.algorithms as A
from catalogue import CATALOGUE, ONE_EACH, RANDOM_BLOCKS
from losac import prox
from losac.federation.numpy import numpy_worker
from serving import federate

FILE = Path(__file__).parent / "trajectories.json"
SIZES, ROUNDS, SAMPLED = (7, 4, 9, 5, 6), 6, 3
DATA = losac.data.quadratic(clients=len(SIZES), samples=list(SIZES), dim=3, seed=1)
CLIENTS = [DATA.client(i) for i in range(len(SIZES))]
CURVATURE = max(np.linalg.norm(np.c_[x, np.ones(len(x))], 2) ** 2 for x, _ in CLIENTS)
STEP = 0.1 / CURVATURE
START = {"w": np.array([0.5, -1.0, 2.0]), "b": np.array(0.25)}


class Walk(NamedTuple):
    """An algorithm, and how its federation differs from the usual one."""

    algorithm: Any
    regularizer: Any = None
    weights: Any = None


def gradient(params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    """The gradient of ½ mean (x·w + b − y)²."""
    residual = x @ params["w"] + params["b"] - y
    return {"w": x.T @ residual / len(x), "b": residual.mean()}


def loss(params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    """½ mean (x·w + b − y)²."""
    return 0.5 * np.mean((x @ params["w"] + params["b"] - y) ** 2)


def walks() -> Iterator[Walk]:
    """Every algorithm in every variant of the catalogue, then what else is computed in their files."""
    yield from (Walk(entry.make(CURVATURE, RANDOM_BLOCKS)) for entry in CATALOGUE)
    yield from (Walk(algorithm.replace(server_step=0.7)) for algorithm in plainest(WITH_SERVER_STEP))
    yield from (Walk(make(decaying, 4, 2)) for make in (A.fedcm, A.fedvarp, A.mifa, A.vrl_sgd, A.fedsaga))
    yield Walk(A.scaffnew(decaying, blocks=2, probability=0.3))
    yield Walk(A.tamuna(STEP, blocks=2, probability=0.3, sparsity=2))
    yield Walk(A.fedsaga(STEP, 4, 3, average="all"))
    yield Walk(A.fedmid(STEP, 4, 3, prox="server"), prox.l1(2.0))
    yield Walk(A.losac(STEP / 4, 4, 3, prox_step="printed"), prox.l1(2.0))
    yield Walk(A.losac(STEP, 4, 3, scaling="exact"), prox.group_l2(2.0))
    yield Walk(A.losac_lean(STEP, 4, 3), prox.group_l2(2.0))
    yield Walk(A.fedadmm(STEP, 4, rho=CURVATURE, variant="exact"), prox.l1(2.0))
    yield from (Walk(make(STEP, 4), prox.l1(2.0)) for make in (A.scaffold, A.fedadmm, A.feddualavg, A.fedmid))
    yield Walk(A.dsgd(STEP), prox.l1(2.0))
    yield from (
        Walk(make(STEP, 4, 2, optimizer="adam", momentum=0.8, decay=0.7, epsilon=0.5)) for make in (A.mime, A.mime_lite)
    )
    yield Walk(A.fedavg(STEP, batch_size=2, epochs=2, weighting="average"), weights=np.array([1, 2, 3, 4, 5]) / 15)
    yield Walk(A.fedprox(STEP, 4, 2, mu=1.0, local_optimizer=optax.adam, clip_norm=3.0))
    yield Walk(A.fedavg(STEP, 4, 2, clip_norm=3.0))
    yield from (
        Walk(A.fedavg(STEP, 4, uploads=uploads))
        for uploads in ((A.top_k(0.7), A.qsgd(300)), (A.random_k(0.5),), (A.gaussian(0.05, 0.3),))
    )
    yield Walk(A.mime_svrg(STEP, 4, uploads=(A.gaussian((0.05,), 0.3, other_clip=1.0),)))
    yield from (Walk(algorithm.replace(uploads=(A.qsgd(4),))) for algorithm in plainest(RECORDING))
    yield from (Walk(A.losac_lean(STEP, 4, 3, uploads=(transform,))) for transform in PACKED)
    yield Walk(A.losac_lean("auto", 4, 3, measuring=lambda r: (r < 2) * 1.0), prox.l1(0.01))
    yield Walk(A.losac_lean("auto", 4, 3, server_correction=0.3, uploads=PACKED[1:2]))
    yield Walk(A.losac(STEP / 4, 4, 3, uploads=(A.gaussian((0.05, 1.0), 0.3),)))
    yield Walk(A.losac(STEP, 4, 3, scaling="exact", uploads=(A.random_k(0.5, error_feedback=False),)))


def decaying(r: Any) -> Any:
    return STEP / (1 + 0.5 * r)


def plainest(names: Iterable[str]) -> list[Any]:
    """Return algorithms in their first variant."""
    return [entry.make(CURVATURE, RANDOM_BLOCKS) for entry in ONE_EACH if entry.name in names]


WITH_SERVER_STEP = [key for key, make in A.ALGORITHMS.items() if "server_step" in make(1.0).settings()]
WITH_SERVER_STEP.remove("fedadmm")  # its γ is a step of a server that takes 20
PACKED = (
    A.qsgd(1, shrink=True),
    A.top_k(0.5, error_feedback=False, over="model", bits=8),
    A.random_k(0.5, error_feedback=False, bits=16, same_places=True),
    A.power_sgd(bits=8, error_feedback=False),
)
RECORDING = [key for key, make in A.ALGORITHMS.items() if make.record is not A.Algorithm.record or make.server_rows]
"""Those whose clients or server remember what was really sent."""
RECORDING.remove("tamuna")  # it has its own sparse uplink


def name(walk: Walk) -> str:
    """Return how a walk is called in the file."""
    itself = walk.algorithm.step_size == "auto"
    algorithm = repr(walk.algorithm if itself else walk.algorithm.replace(step_size=1.0)).replace("step_size=1, ", "")
    return " ".join(str(part) for part in (algorithm, walk.regularizer, walk.weights) if part is not None)


def walked(walk: Walk) -> list[float]:
    """Return the model after all rounds."""
    sampled = SAMPLED if walk.algorithm.partial else len(SIZES)
    workers = [
        numpy_worker(walk.algorithm, gradient, *client, loss=loss, regularizer=walk.regularizer) for client in CLIENTS
    ]
    params = federate(
        walk.algorithm, [worker.simulated(0, worker.rows) for worker in workers], START, rounds=ROUNDS,
        sampled=sampled, seed=3, weights=walk.weights, regularizer=walk.regularizer,
    ).params  # fmt: skip
    return [*np.asarray(params["w"]).tolist(), float(params["b"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="freeze today's numbers")
    found = {name(walk): walked(walk) for walk in walks()}
    if parser.parse_args().write:
        lines = ",\n".join(f"{json.dumps(key, ensure_ascii=False)}: {json.dumps(found[key])}" for key in found)
        FILE.write_text(f"{{\n{lines}\n}}\n")
        return
    frozen = json.loads(FILE.read_text())
    for key in sorted({*found, *frozen}):
        if not np.allclose(found.get(key, np.nan), frozen.get(key, np.nan), rtol=1e-9):
            print(f"{key}: {found.get(key)}, frozen {frozen.get(key)}")


if __name__ == "__main__":
    main()
