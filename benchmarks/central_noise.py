"""What noise at the server does that noise at the clients does not: the distance from the optimum, round by round.

    python benchmarks/central_noise.py

A strongly convex least-squares problem with clients of different optima (N = 20, S = 10, K = 5 local steps, M = 1,
double precision, 5 seeds). Nothing is clipped, and the noise in the sum of a round has the same variance either way: at
the clients each upload gets N(0, σ²), at the server the sum gets N(0, Sσ²).
"""

import argparse
import math
from dataclasses import replace
from typing import Any

import numpy as np

import losac

A = losac.algorithms
CLIENTS, SAMPLED, STEPS, DIM = 20, 10, 5, 10
SEEDS = range(5)
FAR = 1e3
"""A bound that nothing reaches."""


def methods(curvature: float) -> dict[str, Any]:
    step = 0.1 / curvature
    return {
        "FedAvg": A.fedavg(step, STEPS),
        "SCAFFOLD": A.scaffold(step, STEPS),
        "FedDyn": A.feddyn(step, STEPS, alpha=curvature),
        "LoSAC, paper": A.losac(step * SAMPLED / CLIENTS, STEPS, 1),
        "LoSAC, exact": A.losac(step, STEPS, 1, scaling="exact"),
        "MimeSVRG": A.mime_svrg(step, STEPS),
    }


def bounds(task: Any, algorithm: Any, share: float) -> dict[str, Any]:
    """Return the settings of a Gaussian with noise of a given share of the typical norm of each part."""
    *others, own = losac.privacy.typical_norms(task, algorithm, rounds=1)
    clip = tuple(FAR * norm for norm in own.values())
    given = {"clip": clip, "noise_multiplier": share / FAR / (len(clip) * DIM) ** 0.5}
    return given | ({"other_clip": FAR * others[0]["upload"]} if others else {})


def distances(task: Any, algorithm: Any, rounds: list[int]) -> list[float]:
    """Return the distance from the optimum after some rounds, over that at the start: root mean squares."""
    runs = losac.sweep(
        task, algorithm, {}, list(SEEDS), rounds=rounds[-1], clients_per_round=SAMPLED, eval_every=math.gcd(*rounds),
        dtype="float64",
    ).members  # fmt: skip
    squares = np.mean([run.metric("square") / run.metric("square")[0] for run in runs], 0)
    return [float(squares[list(runs[0].rounds).index(r)] ** 0.5) for r in rounds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, nargs="+", default=[100, 400, 1600])
    parser.add_argument("--share", type=float, default=0.1, help="the noise of an upload over its norm at the start")
    arguments = parser.parse_args()
    data = losac.data.quadratic(clients=CLIENTS, samples=2 * DIM, dim=DIM, seed=0)
    optimum = np.asarray(data.info["optimum"])
    task = replace(
        losac.regression(losac.models.linear(DIM), data),
        metrics={"square": lambda w, batch: ((w - optimum.astype(w.dtype)) ** 2).sum()},
    )
    curvature = max(float(np.linalg.norm(x, 2)) ** 2 for x, _ in map(data.client, range(CLIENTS)))
    heads = [f"{where}, R = {r}" for where in ("no noise", "clients", "server") for r in arguments.rounds]
    print("| | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads))
    for name, algorithm in methods(curvature).items():
        noise = A.gaussian(**bounds(task, algorithm, arguments.share))
        more = noise.replace(noise_multiplier=noise.noise_multiplier * SAMPLED**0.5, noise_at="server")
        row = [
            value
            for uploads in ((), (noise,), (more,))
            for value in distances(task, algorithm.replace(uploads=uploads), arguments.rounds)
        ]
        print(f"| {name} | " + " | ".join(f"{value:.2g}" for value in row) + " |", flush=True)


if __name__ == "__main__":
    main()
