"""What Figs. 2 to 5 share: one problem, a few algorithms at one step size, and their curves over the rounds.

Beside the paper's six algorithms runs SCAFFOLD with a server step of M, whose steps are as long as LoSAC's at equal η:
a lead that LoSAC has over SCAFFOLD but not over this one is the step's, not the method's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from losac.history import History, sweep
from losac.reproduce.names import NAMES
from losac.reproduce.problems import SHAPES, algorithm, paper_task, reached
from losac.reproduce.study import Job, Measured, Options, Table

BLOCKS, TARGET, POINTS, QUICK_CLIENTS = 5, 0.85, 21, 100
LONG = "scaffold_long"
PAPER = ("losac", "scaffold", "mime_svrg", "fedcm", "fedavg", "fedsaga")
MEMBERS = {name: NAMES[name] for name in PAPER} | {LONG: "SCAFFOLD (server step M)"}
NOTE = (
    "Mean ± standard deviation over the seeds, at the last round. FedCM has the library's α = 0.1, as the paper states "
    "none; SCAFFOLD with server step M takes steps as long as LoSAC's at equal η."
)


class Panel(NamedTuple):
    """One panel of a figure: a data set, how it is dealt, and S and T."""

    data: str
    partition: str
    s: int
    t: int


Runs = list[dict[str, Any]]
Cells = Mapping[Panel, Mapping[str, Runs]]


def job(figure: str, data: str, method: str, partitions: Sequence[str], s: int, t: int, options: Options) -> Job:
    """Return the job of one algorithm on a data set dealt in several ways, which share a compiled program."""
    shape = SHAPES[data]
    rounds = 6 if options.quick else shape.rounds
    arguments = {
        "data": data,
        "method": method,
        "partitions": list(partitions),
        "clients": QUICK_CLIENTS if options.quick else shape.clients,
        "s": s,
        "t": t,
        "rounds": rounds,
        "seeds": list(options.seeds[:1] if options.quick else options.seeds),
        "every": 3 if options.quick else 1,
    }
    label = f"{figure}: {data} {MEMBERS[method]} S={s} T={t}"
    return Job(measure, arguments, label, 3 + len(partitions) * rounds * s * t / 2000)


def measure(
    data: str,
    method: str,
    partitions: list[str],
    clients: int,
    s: int,
    t: int,
    rounds: int,
    seeds: list[int],
    every: int,
) -> dict[str, Any]:
    """Return the curves of every seed on every partition, at the paper's step size.

    With fewer clients than the paper's the step is shortened, so that η·n_i stays.
    """
    shape = SHAPES[data]
    eta = shape.step_size * clients / shape.clients
    name, extra = ("scaffold", {"server_step": float(BLOCKS)}) if method == LONG else (method, {})
    chosen = algorithm(name, step_size=eta, local_steps=t, blocks=BLOCKS, **extra)
    kept = max(1, rounds // (POINTS - 1), every)
    at = [*range(0, rounds, kept), rounds]
    found = {}
    for partition in partitions:
        task = paper_task(data, clients, partition)
        members = sweep(
            task, chosen, {}, seeds, rounds=rounds, clients_per_round=s, eval_every=every, loss_every=kept
        ).members
        found[partition] = [_run(history, at) for history in members]
    return {"round": at, "runs": found}


def _run(history: History, at: Sequence[int]) -> dict[str, Any]:
    """Keep a run's curves at some rounds (None beyond a divergence) and how its accuracy went up and down."""
    where = {int(r): place for place, r in enumerate(history.rounds)}
    accuracy, half = history.metric("accuracy"), at[-1] // 2
    first = reached(history, TARGET)
    return {
        "seed": history.seed,
        "diverged": history.diverged,
        "reached": first and first["round"],
        "early": fluctuation(accuracy[: max(int(np.sum(history.rounds <= at[-1] // 10)), 3)]),
        "late": fluctuation(accuracy[history.rounds >= half]) if history.diverged is None else None,
        **{name: [_at(history, name, where.get(r)) for r in at] for name in ("loss", "accuracy")},
    }


def _at(history: History, metric: str, place: int | None) -> float | None:
    value = math.nan if place is None else float(history.metric(metric)[place])
    return float(f"{value:.4g}") if math.isfinite(value) else None


def fluctuation(series: Sequence[float] | np.ndarray) -> float | None:
    """Return the back and forth of a series per step: its total variation less its net change.

    >>> fluctuation([0.1, 0.3, 0.6]), fluctuation([0.5, 0.4, 0.5])
    (0.0, 0.1)
    """
    steps = np.diff(np.asarray(series, float))
    return round(float((np.abs(steps).sum() - abs(steps.sum())) / len(steps)), 6) if len(steps) else None


def cells_of(measured: Iterable[Measured]) -> tuple[dict[Panel, dict[str, Runs]], dict[str, list[int]]]:
    """Return the runs of every panel by algorithm, and the rounds of each data set's curves."""
    cells: dict[Panel, dict[str, Runs]] = {}
    rounds: dict[str, list[int]] = {}
    for one in measured:
        rounds[one.arguments["data"]] = one.result["round"]
        for partition, runs in one.result["runs"].items():
            panel = Panel(one.arguments["data"], partition, one.arguments["s"], one.arguments["t"])
            cells.setdefault(panel, {})[one.arguments["method"]] = runs
    return cells, rounds


def last(runs: Runs, metric: str = "loss") -> float:
    """Return the mean of a metric at the last round; infinity (for an accuracy 0) where a run diverged."""
    values = [run[metric][-1] for run in runs]
    return float(np.mean(values)) if None not in values else math.inf if metric == "loss" else 0.0


def mean(runs: Runs, name: str) -> float:
    """Return the mean of a number over the seeds; infinity where one of them has none."""
    values = [run[name] for run in runs]
    return math.inf if None in values else float(np.mean(values))


def number(value: float, form: str = "{:.3f}") -> str:
    """Return a mean as text, or that there is none.

    >>> number(0.25), number(float("inf"))
    ('0.250', 'diverged')
    """
    return form.format(value) if math.isfinite(value) else "diverged"


def spread(runs: Runs, get: Callable[[Mapping[str, Any]], float | None], form: str, none: str) -> str:
    """Return the mean and standard deviation over the seeds that have a value, and how many do not."""
    values = [value for run in runs if (value := get(run)) is not None]
    if not values:
        return none
    text = form.format(np.mean(values)) + (f" ± {form.format(np.std(values))}" if len(values) > 1 else "")
    return text + (f" ({none} in {len(runs) - len(values)} of {len(runs)})" if len(values) < len(runs) else "")


def tables(cells: Cells, name: Callable[[Panel], str]) -> list[Table]:
    """Return the last losses and accuracies, the rounds to 85 % and the fluctuations, a row for each panel."""
    members = [method for method in MEMBERS if any(method in found for found in cells.values())]
    columns = ["setting", *(MEMBERS[method] for method in members)]
    kinds: list[tuple[str, str, str, str, Callable[[Mapping[str, Any]], float | None], str]] = [
        ("loss", "Training loss", "{:.4f}", "diverged", lambda run: run["loss"][-1], NOTE),
        ("accuracy", "Test accuracy, %", "{:.2f}", "diverged", lambda run: _percent(run["accuracy"][-1]), NOTE),
        ("rounds", "Rounds to 85 % test accuracy", "{:.0f}", "never", lambda run: run["reached"],
         "The first round at 85 % or more, mean ± standard deviation over the seeds that reach it."),
        (
            "fluctuation", "Fluctuation of the test accuracy, points per round", "{:.3f}", "diverged",
            lambda run: _percent(run["late"]),
            "Total variation less net change over the second half of the rounds, per evaluation: 0 for a curve that "
            "only rises.",
        ),
    ]  # fmt: skip
    return [
        Table(
            kind, title, columns,
            [
                [name(panel), *(spread(found[m], get, form, none) if m in found else None for m in members)]
                for panel, found in cells.items()
            ],
            note,
        )
        for kind, title, form, none, get, note in kinds
    ]  # fmt: skip


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def diverged(cells: Cells, name: Callable[[Panel], str]) -> str:
    """Return a sentence that names the runs that diverged; empty where none did."""
    lost = [
        f"{MEMBERS[method]} at {name(panel)} ({sum(run['diverged'] is not None for run in runs)} of {len(runs)})"
        for panel, found in cells.items()
        for method, runs in found.items()
        if any(run["diverged"] is not None for run in runs)
    ]
    return f" Diverged: {'; '.join(lost)}." if lost else " No run diverged."
