"""Runs on given layouts, as a program of its own, since JAX's devices are fixed once it has started.

    python mesh_runs.py found.npz 1x1:scaffold,losac 2x4s:losac -- [coordinator processes process]

Every run is of five rounds, and five more from the state of these; all arrays of its last state are written, and how
many clients' state each device of this process holds. A layout that ends in s shares the clients' state out.
"""

from __future__ import annotations

import sys

import jax
import numpy as np

import losac
from losac.simulation import Layout
from losac.simulation.engines.resident import ResidentEngine
from losac.simulation.options import SimulationOptions
from problems import quadratic

A = losac.algorithms
CLIENTS, SAMPLED = 11, 5  # neither is divisible by 2 or 4
SOME = [[7, 3, 10, 0, 5, 8, 1], [2, 9, 4, 6, 1, 0, 3, 10]]
CASES = {
    "fedavg": (A.fedavg(1e-3, 3, 2), SAMPLED, "uniform"),
    "scaffold": (A.scaffold(1e-3, 3, 2), SAMPLED, "uniform"),
    "losac": (A.losac(1e-4, 2, 4), SAMPLED, "uniform"),
    "fedvarp": (A.fedvarp(1e-3, 3, 2), SAMPLED, "uniform"),
    "fedlin": (A.fedlin(1e-3, 3, 2), CLIENTS, "all"),
    "local_svrg": (A.local_svrg(1e-3, 3, 2, refresh=0.5), SAMPLED, "uniform"),
    "tamuna": (A.tamuna(1e-3, blocks=2, probability=0.3), CLIENTS, SOME),
}


def run(task: losac.Task, case: str, layout: Layout) -> dict[str, np.ndarray]:
    algorithm, sampled, sampling = CASES[case]
    options = {"rounds": 5, "clients_per_round": sampled, "eval_every": 5, "dtype": "float64", "sampling": sampling}
    first = losac.simulate(task, algorithm, layout=layout, keep_state=True, **options)
    last = losac.simulate(task, algorithm, layout=layout, state=first.state, keep_state=True, **options)
    leaves = jax.tree_util.tree_leaves_with_path(last.state._replace(key=()))
    found = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    return found | {"params": last.params, "loss": last.metrics["loss"]}


def held(task: losac.Task, layout: Layout) -> np.ndarray:
    options = SimulationOptions.of(task, rounds=1, clients_per_round=SAMPLED, layout=layout, gradients="formed")
    state = ResidentEngine(task, CASES["scaffold"][0], options).state
    return np.array([shard.data.shape[0] for shard in state.store.rows.state.addressable_shards])


def main() -> None:
    path, *runs = sys.argv[1 : sys.argv.index("--")]
    if join := sys.argv[sys.argv.index("--") + 1 :]:
        losac.distributed(join[0], int(join[1]), int(join[2]))
    task = quadratic(clients=CLIENTS).task
    found = {}
    for name, cases in (each.split(":") for each in runs):
        layout = Layout(*map(int, name.rstrip("s").split("x")), shared=name.endswith("s"))
        found[f"{name} held"] = held(task, layout)
        for case in cases.split(","):
            found |= {f"{name} {case}{leaf}": a for leaf, a in run(task, case, layout).items()}
    np.savez(path, **found)


if __name__ == "__main__":
    main()
