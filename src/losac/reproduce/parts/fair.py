"""Every algorithm, tuned on the same budget: what the paper does not show.

Each method's step size and the setting that makes it what it is (server step, momentum, …: ``losac.tuning.spaces``)
are tuned on a fifth of every client's training rows, which nobody trains on; a grid whose best point lies at an edge is
continued. The best settings then run with fresh seeds and are judged on the test rows. ``LoSAC, by rule`` is not tuned
at all: its step comes from one measurement (``losac.tuning.suggest``). Scaffnew and TAMUNA are left out: they draw
their number of local steps, often many times T, so that the same rounds are not the same budget.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from losac.algorithms import ALGORITHMS
from losac.reproduce.parts.fair_findings import conclude
from losac.reproduce.problems import SHAPES, algorithm, paper_task, run
from losac.reproduce.study import Job, Options, Study

CLIENTS, SAMPLED, STEPS, BLOCKS, ETA, VALIDATION = 100, 10, 5, 5, 1e-4, 0.2
TARGETS = {"mnist": 0.95, "har": 0.9, "esr": 0.85}
ROUNDS = 200
LOSACS: dict[str, dict[str, Any]] = {
    "losac": {},
    "losac_exact": {"scaling": "exact"},
    "losac_rule": {"scaling": "exact"},
}
RANDOM_STEPS = ("scaffnew", "tamuna")
QUICK = ("fedavg", "scaffold", "fedcm", "losac", "losac_rule")
_COST = {"mnist": 3.0, "har": 1.5, "esr": 1.0}


def methods() -> list[str]:
    """Return all public algorithms with T local steps, LoSAC in both scalings and by its rule."""
    return [*LOSACS, *(name for name in ALGORITHMS if name not in ("losac", *RANDOM_STEPS))]


def jobs(options: Options, partition: str) -> list[Job]:
    """Return one job for each method and data set; the short form has five methods on HAR, or two on IID data."""
    few = QUICK if partition == "sorted" else QUICK[-2:]
    names, data = (few, ["har"]) if options.quick else (methods(), list(SHAPES))
    rounds = 30 if options.quick else ROUNDS
    seeds = list(options.seeds[:1] if options.quick else options.seeds)
    return [
        Job(
            measure,
            {"data": one, "partition": partition, "method": name, "rounds": rounds, "seeds": seeds,
             "short": options.quick},
            f"fair: {name} on {one}, {partition}",
            _COST[one] * (1 if name == "losac_rule" else 4) * (1 if _partial(name) else 6),
        )
        for one in data
        for name in names
    ]  # fmt: skip


def _partial(name: str) -> bool:
    return name in LOSACS or ALGORITHMS[name].partial


def measure(data: str, partition: str, method: str, rounds: int, seeds: list[int], short: bool) -> dict[str, Any]:
    """Tune a method, then run its best settings; a method all of whose trials diverge is said to have failed."""
    from losac.report.profile import profile
    from losac.tuning import AllDivergedError, suggest

    whole = paper_task(data, CLIENTS, partition)
    task = dataclasses.replace(whole, data=whole.data.split(VALIDATION, seed=0)[0])
    sampled = SAMPLED if _partial(method) else CLIENTS
    found: dict[str, Any] = {"sampled": sampled}
    if method == "losac_rule":
        best = suggest(task, local_steps=STEPS, blocks=BLOCKS, clients_per_round=sampled)
        found |= {"best": {"step_size": float(best.step_size)}, "edges": {}, "trials": [], "axes": ["step_size"]}
    else:
        try:
            tuning = _tuned(whole, method, sampled, rounds, short)
        except AllDivergedError as error:
            return found | {"failed": str(error)}
        best, axes = tuning.algorithm, list(tuning.space)
        trials = [[*(trial.settings[name] for name in axes), trial.score] for trial in tuning.trials]
        found |= {"best": tuning.best, "edges": dict(tuning.edges), "trials": trials, "axes": axes}
    measured = profile(best)
    found |= {"client_state": measured.client_state + measured.table_state, "up": measured.up, "down": measured.down}
    every = 1 if rounds <= 100 else 2
    runs = run(
        task, best, seeds, rounds=rounds, sampled=sampled, eval_every=every, loss_every=rounds,
        targets=[TARGETS[data]], curve=["accuracy"], points=21,
    )  # fmt: skip
    return found | {"runs": runs}


def _tuned(task: Any, method: str, sampled: int, rounds: int, short: bool) -> Any:
    from losac.tuning import default_space, tune

    name = "losac" if method in LOSACS else method
    space: Mapping[str, Sequence[float]] = default_space(name, ETA)
    if method == "losac_exact":
        space = {"step_size": space["step_size"], "correction": [0.02, 0.06, 0.2, 0.6]}
    if short:
        space = {key: list(values)[2:4] if key == "step_size" else list(values)[1:2] for key, values in space.items()}
    first = {key: values[0] for key, values in space.items()}
    start = algorithm(name, **_settings(name, method), **first)
    return tune(
        task, start, space, rounds=rounds, clients_per_round=sampled, metric="loss", validation=VALIDATION,
        widen=not short, most_widenings=4,
    )  # fmt: skip


def _settings(name: str, method: str) -> dict[str, Any]:
    """Return T and M, but no T for DSGD, which takes one step, and what makes a variant of LoSAC."""
    steps = {} if name == "dsgd" else {"local_steps": STEPS}
    return {"blocks": BLOCKS, **steps, **LOSACS.get(method, {})}


STUDY = Study(
    "fair", "Fair: every method tuned on the same budget, non-IID", partial(jobs, partition="sorted"), conclude,
    tuple(SHAPES),
)  # fmt: skip
IID = Study(
    "fair-iid", "Fair: every method tuned on the same budget, IID", partial(jobs, partition="iid"), conclude,
    tuple(SHAPES),
)  # fmt: skip
