"""What less precision costs: LoSAC's table in fewer bits, and matrix products in TF32 or bfloat16.

    LOSAC_DATA_DIR=path/to/data python benchmarks/precision.py --json benchmarks/results/precision.json

On MNIST (the paper's 2NN, N = 100, S = 10, T = 2, M = 5, half the paper's step, which is near the edge of stability):
the training loss and the test accuracy after 300 rounds, the mean of two seeds. On a9a (l2-regularised logistic
regression, double precision): how near LoSAC comes to the optimum, as a share of the distance at the start. Products of
less precision are tried on a GPU only; a CPU has none.
"""

import argparse
import json
import time
from typing import Any

import jax

import losac
from losac_reproduction.convex import convex, method

TABLES = (None, "bfloat16", "float16")
PRODUCTS = (None, "float32", "tensorfloat32", "bfloat16")


def mnist(rounds: int, **options: Any) -> dict[str, float]:
    """Return loss and accuracy, the mean over two seeds."""
    data = losac.data.load("mnist", clients=100, partition="sorted")
    task = losac.classification(losac.models.two_nn(start="he"), data)
    algorithm = losac.algorithms.losac(step_size=5e-5, local_steps=2, blocks=5)
    runs = [
        losac.simulate(task, algorithm, rounds=rounds, clients_per_round=10, seed=seed, eval_every=rounds, **options)
        for seed in (0, 1)
    ]
    return {name: sum(run.final(name) for run in runs) / len(runs) for name in ("loss", "accuracy")}


def distance(rounds: int, table_dtype: str | None) -> float:
    """Return LoSAC's distance from a9a's optimum at the end, over that at the start."""
    problem = convex("a9a")
    algorithm = method(problem, "losac", 1.0, 5)
    history = losac.simulate(
        problem.task, algorithm, rounds=rounds, clients_per_round=problem.sampled, eval_every=rounds, dtype="float64",
        table_dtype=table_dtype,
    )  # fmt: skip
    values = history.metric("distance")
    return float(values[-1] / values[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    kind = jax.devices()[0].device_kind
    found: dict[str, Any] = {
        "device": kind, "date": time.strftime("%Y-%m-%d"), "rounds": arguments.rounds, "table": {}, "matmul": {},
    }  # fmt: skip
    for table in TABLES:
        row = mnist(arguments.rounds, table_dtype=table) | {"a9a_distance": distance(1000, table)}
        found["table"][table or "float32"] = row
        print(f"table {table or 'as computed'}: {row}", flush=True)
    for product in PRODUCTS if jax.default_backend() == "gpu" else ():
        row = mnist(arguments.rounds, matmul=product)
        found["matmul"][product or "default"] = row
        print(f"products {product or 'default'} on {kind}: {row}", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
