"""HAR by person and ESR by recording, with all algorithms: each tuned on the same budget, and judged on five seeds.

Every seed splits the clients again: six in ten for training, two in ten for choosing settings, and two in ten, unseen
by any run, for judging. The page says how methods are compared. Takes about half an hour on one core. Each finished job
is a file in the folder of --jobs; if you start the command again, it runs only what is missing:

    LOSAC_DATA_DIR=path/to/data python examples/gallery/table.py --jobs gallery-jobs --out docs/gallery_table.md
"""

import argparse
import functools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from federations import Federation, esr, har, linear_task
from table_page import page, rows_of_all

import losac
from losac.algorithms.one_gradient import OneGradient
from losac.simulation import RunOptions
from losac.simulation.sweep import run_members
from losac.tuning.grid import grid_search
from losac.tuning.trials import Goal, Trial, make_trial, ranked

SAMPLED = {"har": 5, "esr": 24}
TITLES = {"har": "HAR, a client is a person", "esr": "ESR, a client is a recording"}
SEEDS = (0, 1, 2, 3, 4)
TUNING_SEEDS = (100, 101)
WINDOWS = 90
WIDENINGS = 2
AT_ONCE = 8


@functools.cache
def problem(name: str, seed: int) -> tuple[Federation, float]:
    """Return the clients of a seed, and the step size around which every grid is laid: 0.6 over the curvature."""
    found = har(seed, WINDOWS) if name == "har" else esr(seed)
    return found, 0.6 * found.train.num_clients / float(np.linalg.norm(found.train.x, 2)) ** 2


def start(name: str) -> losac.algorithms.Algorithm:
    """Return an algorithm with five local steps on five blocks, if it has both."""
    made = losac.algorithms.ALGORITHMS[name]
    if issubclass(made, OneGradient):
        return made(1.0)
    return made(1.0, blocks=5) if made.example.local_steps is None else made(1.0, local_steps=5, blocks=5)


def job(data: str, name: str, seed: int, rounds: int) -> dict[str, Any]:
    """Tune an algorithm on the clients of a seed and judge it: what the search chose, and each test client's accuracy.

    The run that is judged has another seed than those that choose; both go through the same programs.
    """
    found, step = problem(data, seed)
    task, algorithm = linear_task(found), start(name)
    sampled = SAMPLED[data] if algorithm.partial else found.train.num_clients
    options = RunOptions(rounds=rounds, clients_per_round=sampled, eval_every=rounds, loss_every=rounds)
    space = losac.tuning.default_space(name, step)
    goal = Goal("accuracy", "accuracy", "test_loss", None, rounds)
    judged: dict[tuple[Any, ...], losac.History] = {}

    def evaluate(points: Sequence[dict[str, Any]]) -> list[Trial]:
        jobs = [(*point.values(), one) for point in points for one in (*TUNING_SEEDS, seed)]
        jobs.sort(
            key=lambda values: values[:0:-1]
        )  # methods with equal draws run together, and none waits for longer rounds
        padded = (jobs * AT_ONCE)[: -(-len(jobs) // AT_ONCE) * AT_ONCE]  # every batch is the same program
        members = [(algorithm.replace(**dict(zip(space, values))), values[-1]) for values in padded]
        runs = dict(zip(jobs, run_members(task, members, options, at_once=AT_ONCE)))
        judged.update({key[:-1]: run for key, run in runs.items() if key[-1] == seed})
        return [make_trial(point, [runs[(*point.values(), one)] for one in TUNING_SEEDS], goal) for point in points]

    def allows(point: dict[str, Any]) -> bool:
        try:
            algorithm.replace(**point)
        except ValueError:
            return False
        return True

    _, trials, edges = grid_search({axis: tuple(values) for axis, values in space.items()}, evaluate, allows, WIDENINGS)
    best = ranked(trials)[0]
    run = judged[tuple(best.settings.values())]
    return {
        "settings": best.settings,
        "edge": [axis for axis, end in edges.items() if end in ("low", "high")],
        "trials": len(trials),
        "validation": best.score,
        "diverged": run.diverged,
        "accuracy": losac.evaluate(task, run.params, data=found.test).metric("accuracy").tolist(),
    }


def done(folder: Path, data: str, name: str, seed: int, rounds: int) -> dict[str, Any]:
    """Return a job's result: from its file, or by running it and writing the file."""
    path = folder / f"{data}-{name}-{seed}.json"
    asked = {"data": data, "algorithm": name, "seed": seed, "rounds": rounds}
    if path.exists():
        stored = json.loads(path.read_text(encoding="utf-8"))
        if {key: stored[key] for key in asked} != asked:
            raise ValueError(f"{path} holds a job with rounds={stored['rounds']}, not {rounds}; give another --jobs")
        return dict(stored)
    result = asked | job(data, name, seed, rounds)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result), encoding="utf-8")
    os.replace(part, path)
    print(data, name, seed, result["settings"], f"{np.mean(result['accuracy']):.3f}", flush=True)
    return result


def caption(data: str) -> str:
    """Say how many clients there are of each kind."""
    train, validation, test = (part.num_clients for part in problem(data, 0)[0])
    sampled = f"{SAMPLED[data]} of the first take part in a round, or all where the method needs all"
    return f"{train} clients to train on, {validation} to tune on, {test} to judge on; {sampled}."


def main(
    folder: Path,
    algorithms: tuple[str, ...] = tuple(losac.algorithms.ALGORITHMS),
    rounds: int = 40,
    out: Path | None = None,
) -> str:
    """Run what is missing in the folder and return the page; write it, with a CSV file next to it, if asked."""
    folder.mkdir(parents=True, exist_ok=True)
    jobs = [done(folder, data, name, seed, rounds) for name in algorithms for data in SAMPLED for seed in SEEDS]
    text = page(jobs, {data: caption(data) for data in SAMPLED}, TITLES)
    if out is not None:
        out.write_text(text, encoding="utf-8")
        rows_of_all(jobs).to_csv(out.with_suffix(".csv"), index=False)
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=Path, required=True, help="folder of finished jobs")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    main(arguments.jobs, rounds=arguments.rounds, out=arguments.out)
