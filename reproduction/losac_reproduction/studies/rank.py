"""Every algorithm, tuned for what it is ranked by, and those that need no tuning as they come.

The protocol, the same for all, was written down before anything was run:

- A method is ranked by the rounds, and by the bytes sent up, until the target is *sustained*: the first of five
  evaluations in a row at or above it. A run that never gets there counts as worse than all that do.
- Ten seeds on each of two draws of the partition give the numbers (``--seeds 0,1,2,3,4,5,6,7,8,9``).
- Settings are tuned on rows set aside from training (a fifth of every client's; none where the target is a distance
  from the optimum), with two other seeds on each draw.
- Every method gets the same number of trials: a few step sizes first, then the neighbours of the best points
  (``losac.tune(search="refine")``), beyond an end where the best lies there. The search goes by rounds. For the bytes
  the trial that needs the fewest counts.
- A method's natural settings are searched, not its step alone: those that it declares, δ and γ of LoSAC in its exact
  scaling, the share of the entries or the rank that a compressor sends. Where they need programs of their own (the
  scaling, the share, the rank), the trials are divided among them, and the best one is picked by the same rows that are
  set aside.
- Methods that contact only sampled clients are ranked by themselves. S-Local-SVRG and PP-MARINA, which ask all clients
  in some rounds, are not among them. Methods that coincide count once.
- Where Dirichlet leaves a client with fewer than ten rows, it gets more, drawn at random from the largest clients:
  M = 5 blocks need five rows after a fifth is set aside.
- Synthetic(α, β) comes with its clients, whose rows differ in number: they count by their rows, as FedProx's authors
  weigh them. Its target is a share of the accuracy of the model that is fitted to all rows at once. With 30 clients a
  tenth are 3, and there is no hundredth.
- Scaffnew, TAMUNA and LoCoDL are left out: they draw their number of local steps, often many times T.

*Untuned* methods run as they come, with the settings of their papers. Step sizes that suit a mean over rows are divided
by the mean number of a client's rows, since f_i is a sum here. Rounds of measuring count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from losac.algorithms import ALGORITHMS, power_sgd, top_k
from losac.algorithms.contract import Algorithm
from losac.algorithms.transform import Transform
from losac.data import FederatedData, load
from losac.data.partition import parse
from losac.data.partitioners import Partitioner
from losac.history import History
from losac.models import softmax_regression, two_nn
from losac.simulation.options import ComputeOptions, RunOptions
from losac.task import Task, classification
from losac_reproduction.convex import convex
from losac_reproduction.frame import cells
from losac_reproduction.methods import NAMES, SAME, SAME_WORDS, name_of
from losac_reproduction.panels import DECADE, Panel, draw, look_of, mark, plain_log
from losac_reproduction.problems import DATASETS, OUTPUTS, PREPROCESSING, START, algorithm
from losac_reproduction.studies.fair import TIED_WORDS, random_steps, settings_of
from losac_reproduction.studies.fair import tied as not_told_apart
from losac_reproduction.study import Figure, Findings, Job, Options, ResultTable, Study
from losac_reproduction.synthetic import CLASSES, DIM, accuracy_of, fitted, synthetic
from losac_reproduction.words import Interval, interval, known, mean

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

STEPS, BLOCKS, VALIDATION, TRIALS, BATCH, IN_A_ROW = 5, 5, 0.2, 30, 5, 5
TUNING_SEEDS, DRAWS = (100, 101), (0, 1)
SHARE = 0.1
"""S/N, but in the studies of other shares."""
FACTORS = (0.03, 0.3, 3.0, 30.0, 300.0)
"""The first step sizes of a search, in units of 1/(TL)."""
MEASURING = 10
"""Rounds that the rule of ``losac.tuning.suggest`` measures in: one model up and two down in each."""
FASTER = 10
"""How many times as fast as the uplink the downlink is taken to be."""
UPLINKS = (1, 10, 100)
COLLAPSED = 0.05
"""A run has collapsed if it diverged, or reached the target and ends by more than this below it."""


LEAST_ROWS = 2 * BLOCKS
"""The least rows of a client whose number is drawn."""


class Contest(NamedTuple):
    """A data set with N, the target, and the rounds for each share of sampled clients."""

    clients: int
    target: float
    rounds: Mapping[float, int]
    partitions: tuple[str, ...] = ("sorted", "dirichlet:0.3", "iid")


REAL = {0.01: 1000, 0.1: 200, 0.5: 100}
CONTESTS = {
    "digits": Contest(100, 0.95, {0.01: 1000, 0.1: 300, 0.5: 150}),
    "mnist": Contest(100, 0.95, REAL),
    "har": Contest(100, 0.9, REAL),
    "esr": Contest(100, 0.85, REAL),
    "a9a": Contest(50, 6.0, {0.1: 600}, ("sorted", "iid")),
    "w8a": Contest(50, 6.0, {0.1: 600}, ("sorted", "iid")),
    "synthetic": Contest(30, 0.95, {0.1: 200, 0.5: 100}, ("1,1", "0.5,0.5", "0,0", "iid")),
}
CONVEX = ("a9a", "w8a")
"""Here the target is 1e-6: the distance from the optimum over that at the start."""
METRIC = dict.fromkeys(CONTESTS, "accuracy") | dict.fromkeys(CONVEX, "digits") | {"synthetic": "share"}
LEVELS = {"accuracy": "accuracy, %", "digits": "digits at the end", "share": "% of the accuracy of all rows together"}


class Form(NamedTuple):
    """A form of a method that is compiled by itself: fixed settings, and the axes of its search."""

    name: str
    settings: Mapping[str, Any]
    axes: Mapping[str, Sequence[float]]


DELTAS = (0.02, 0.06, 0.2, 0.6)
SHARES = (0.05, 0.01)
"""Of the entries of the whole model, the shares that methods called sparse send: the largest, in one byte each."""
RANKS = (1, 2)
"""Of the matrices that methods called low-rank send, by PowerSGD, in one byte for each number."""
REMEMBERS = {"fedavg": False, "fedcm": False, "scaffold": True, "losac_lean": True}
"""Methods with compressed forms, and whether they record what was sent; the others need error feedback."""
COMPRESSED = tuple(f"{name}_{kind}" for kind in ("sparse", "lowrank") for name in REMEMBERS)
OURS = ("losac", "losac_lean", "losac_lean_sparse", "losac_lean_lowrank")


def forms_of(method: str, data: str = "digits") -> list[Form]:
    """Return the forms of a method; where clients count by their rows, it averages by them if it can."""
    forms = _forms_of(method)
    return [form._replace(settings={**form.settings, **_weighting(form.name, data)}) for form in forms]


def _weighting(name: str, data: str) -> dict[str, Any]:
    weighs = data == "synthetic" and hasattr(ALGORITHMS[name], "weighting")
    return {"weighting": "average"} if weighs else {}


def _forms_of(method: str) -> list[Form]:
    exact = {"correction": DELTAS, "server_step": (1.0, 3.0)}
    if method == "losac":
        return [Form("losac", {}, ALGORITHMS["losac"].tuned), Form("losac", {"scaling": "exact"}, exact)]
    if method in COMPRESSED:
        name, kind = method.rsplit("_", 1)
        axes = exact if name == "losac_lean" else ALGORITHMS[name].tuned
        made = [_largest(share, not REMEMBERS[name]) for share in SHARES]
        if kind == "lowrank":
            made = [_low_rank(rank, not REMEMBERS[name]) for rank in RANKS]
        return [Form(name, {"uploads": (transform,)}, axes) for transform in made]
    if method == "losac_lean":
        return [Form(method, {}, exact)]
    if method == "ef21_pp":
        return [Form(method, {"ratio": ratio}, {}) for ratio in (20, 100)]
    return [Form(method, {}, ALGORITHMS[method].tuned)]


def _largest(share: float, error_feedback: bool = False) -> Transform:
    return top_k(share, error_feedback=error_feedback, over="model", bits=8)


def _low_rank(rank: int, error_feedback: bool = False) -> Transform:
    return power_sgd(rank, error_feedback=error_feedback, bits=8)


def _by_rule(task: Task, sampled: int, rows: float, rounds: int) -> Algorithm:
    from losac.tuning import suggest

    return suggest(task, local_steps=STEPS, blocks=BLOCKS, clients_per_round=sampled)


def _as_it_comes(name: str, step: Any, task: Task, sampled: int, rows: float, rounds: int, **settings: Any) -> Any:
    eta = step if isinstance(step, str) else step(rows)
    settings |= _weighting(name, task.name)
    if name.startswith("padamfed"):
        settings["horizon"] = rounds
    return algorithm(name, step_size=eta, local_steps=STEPS, blocks=BLOCKS, **settings)


def _one(rows: float) -> float:
    return 1.0


UNTUNED: dict[str, Callable[[Task, int, float, int], Algorithm]] = {
    "losac_lean_auto": partial(_as_it_comes, "losac_lean", "auto"),
    "losac_lean_auto_sparse": partial(_as_it_comes, "losac_lean", "auto", uploads=(_largest(SHARES[0]),)),
    "losac_lean_auto_lowrank": partial(_as_it_comes, "losac_lean", "auto", uploads=(_low_rank(RANKS[0]),)),
    "losac_rule": _by_rule,
    "delta_sgd": partial(_as_it_comes, "delta_sgd", lambda rows: 0.2 / rows),
    "fedsps": partial(_as_it_comes, "fedsps", lambda rows: 1 / rows),
    "padamfed": partial(_as_it_comes, "padamfed", _one),
    "padamfed_vr": partial(_as_it_comes, "padamfed_vr", _one),
    "local_dog": partial(_as_it_comes, "local_dog", _one),
    "local_dowg": partial(_as_it_comes, "local_dowg", _one),
    "local_prodigy": partial(_as_it_comes, "local_prodigy", _one),
    **{
        f"{name}_untuned": partial(_as_it_comes, name, lambda rows: 0.01 / rows)
        for name in ("server_dog", "server_dowg", "server_prodigy", "fedhyper")
    },
}
"""What claims to need no tuning, from (task, S, mean rows of a client, rounds)."""
QUICK = ("fedavg", "losac", "losac_lean_auto")


def tuned_methods() -> list[str]:
    """Return all methods that are tuned: the public algorithms that are no other one, and the compressed forms."""
    left_out = {*SAME, *UNTUNED}
    return [*(name for name in ALGORITHMS if name not in left_out and not random_steps(name)), *COMPRESSED]


def jobs(options: Options, data: str, shares: bool) -> list[Job]:
    """Return one job for each method in each setting; the short form has three methods in one."""
    contest = CONTESTS[data]
    settings = [(contest.partitions[0], share) for share in contest.rounds if share != SHARE]
    if not shares:
        settings = [(partition, SHARE) for partition in contest.partitions]
    names = [*tuned_methods(), *UNTUNED]
    for name in names:
        if name not in UNTUNED:
            forms_of(name)  # an algorithm without facts, say, is refused before hours are spent on the others
    if options.quick:
        settings, names = settings[:1], list(QUICK)
    return [
        Job(
            measure,
            {"data": data, "partition": partition, "share": share, "method": name,
             "rounds": 20 if options.quick else contest.rounds[share],
             "seeds": list(options.seeds[:1] if options.quick else options.seeds),
             "trials": BATCH if options.quick else TRIALS},
            f"rank: {name} on {data}, {partition}, {100 * share:g} %",
            contest.rounds[share] * (0.2 if name in UNTUNED else 1.0) * (1 if partial_of(name) else 5) / 300
            / (10 if options.quick else 1),
        )
        for partition, share in settings
        for name in names
    ]  # fmt: skip


def partial_of(method: str) -> bool:
    """Whether a method contacts only the sampled clients."""
    if method in UNTUNED:
        return True
    return ALGORITHMS[forms_of(method)[0].name].partial


def asks_all(method: str) -> bool:
    """Whether a method contacts all clients, in every round or in some."""
    if method in UNTUNED:
        return False
    name = forms_of(method)[0].name
    phases = algorithm(name, step_size=1.0, **settings_of(name)).phases()
    return not ALGORITHMS[name].partial or any(phase.clients == "all" for phase in phases)


class Digits:
    """How many digits of the optimum are right: −log10 of a distance."""

    coupled = True

    def __init__(self, distance: Callable[..., Any]) -> None:
        self.distance = distance

    def __call__(self, params: Any, batch: Any) -> Any:
        """Return the digits; the batch does not matter."""
        return -jnp.log10(jnp.maximum(self.distance(params, batch), 1e-300))


@lru_cache(maxsize=2)
def contest_tasks(data: str, partition: str, partition_seed: int) -> tuple[Task, Task]:
    """Return the task to tune on, whose test rows are set aside from training, and the task to judge on."""
    contest = CONTESTS[data]
    if data in CONVEX:
        task = convex(data, partition, partition_seed).task
        distance = task.metrics["distance"]
        one_row = task.data.x[:1], task.data.y[:1]  # the distance needs none, and would go over all
        task = dataclasses.replace(task, metrics={METRIC[data]: Digits(distance)}, test=one_row)
        return task, task
    if data == "synthetic":
        return _relative(synthetic(partition, partition_seed), partition_seed)
    more: dict[str, Any] = {"preprocessing": PREPROCESSING[data]} if data in PREPROCESSING else {}
    dealt = enough(parse(partition)) if partition.startswith("dirichlet") else partition
    whole = load(data, contest.clients, dealt, seed=partition_seed, **more)
    if data == "digits":
        task = classification(softmax_regression(64, 10), whole)
    else:
        about = DATASETS[data]
        task = classification(two_nn(about.inputs, OUTPUTS.get(data, about.classes), start=START), whole)
    train, aside = whole.split(VALIDATION, seed=partition_seed)
    judged = dataclasses.replace(task, data=train)
    return dataclasses.replace(judged, test=aside), judged


def enough(partitioner: Partitioner) -> Partitioner:
    """Return a partitioner that gives clients with too few rows some, drawn at random from the largest ones."""

    def deal(labels: Any, clients: Any, rng: np.random.Generator, groups: Any = None) -> list[np.ndarray]:
        parts = [np.asarray(rows) for rows in partitioner(labels, clients, rng, groups)]
        for client, rows in enumerate(parts):
            for _ in range(len(rows), LEAST_ROWS):
                giver = max(range(len(parts)), key=lambda k: len(parts[k]))
                at = int(rng.integers(len(parts[giver])))
                parts[client] = np.append(parts[client], parts[giver][at])
                parts[giver] = np.delete(parts[giver], at)
        return parts

    return deal


class RelativeAccuracy:
    """The accuracy, in units of that of another model."""

    def __init__(self, accuracy: Callable[..., Any], reference: float) -> None:
        self.accuracy, self.reference = accuracy, reference

    def __call__(self, params: Any, batch: Any) -> Any:
        """Return the share."""
        return self.accuracy(params, batch) / self.reference


def _relative(whole: FederatedData, seed: int) -> tuple[Task, Task]:
    train, aside = whole.split(VALIDATION, seed=seed)
    best = fitted(train)

    def task(test: Any) -> Task:
        made = classification(
            softmax_regression(DIM, CLASSES), train, test=test, reduction="mean", weights="samples"
        )  # fmt: skip
        share = RelativeAccuracy(made.metrics["accuracy"], accuracy_of(best, test))
        return dataclasses.replace(made, metrics={METRIC["synthetic"]: share})

    return task(aside), task(whole.test)


def measure(
    data: str, partition: str, share: float, method: str, rounds: int, seeds: list[int], trials: int
) -> dict[str, Any]:
    """Tune a method (or take it as it comes), then run its best settings with fresh seeds on both draws."""
    from losac.simulation.sweep import run_members
    from losac.tuning import AllDivergedError

    contest = CONTESTS[data]
    tasks = [contest_tasks(data, partition, partition_seed) for partition_seed in DRAWS]
    sampled = round(share * contest.clients) if partial_of(method) else contest.clients
    run = RunOptions(
        rounds=rounds, clients_per_round=sampled, eval_every=max(1, rounds // 300), loss_every=rounds
    )  # fmt: skip
    compute = ComputeOptions(dtype="float64" if data in CONVEX else "float32")
    runs = partial(run_members, run=run, compute=compute)

    def judge(made: Sequence[Algorithm], extra: int = 0) -> list[dict[str, Any]]:
        found = []
        for draw_index, (one, (_, task)) in enumerate(zip(made, tasks)):
            histories = runs(task, [(one, seed) for seed in seeds])
            found += [{"draw": draw_index, **_entry(data, history, sampled, extra)} for history in histories]
        return found

    if method in UNTUNED:
        made = [UNTUNED[method](task, sampled, _rows(task), rounds) for _, task in tasks]
        extra = MEASURING if method == "losac_rule" else 0
        return {"sampled": sampled, "picked": [{"criterion": "untuned", "runs": judge(made, extra)}]}
    try:
        length = 1 / (STEPS * _curvature(data, partition, sampled))
        picked = _tuned(data, method, [task for task, _ in tasks], sampled, length, runs, trials)
    except AllDivergedError as error:
        return {"sampled": sampled, "failed": str(error)}
    found, done = [], dict[str, Any]()
    for criterion, (best, about) in picked.items():
        if repr(best) not in done:
            done[repr(best)] = judge([best] * len(tasks))
        found.append({"criterion": criterion, **about, "runs": done[repr(best)]})
    return {"sampled": sampled, "picked": found}


@lru_cache(maxsize=4)
def _curvature(data: str, partition: str, sampled: int) -> float:
    from losac.tuning import curvature

    return curvature(contest_tasks(data, partition, DRAWS[0])[0], clients_per_round=sampled)


def _rows(task: Task) -> float:
    """Return the rows that f_i is a sum over, on average; 1 where it is a mean."""
    return len(task.data) / task.data.num_clients if task.reduction == "sum" else 1.0


def _tuned(
    data: str, method: str, tasks: Sequence[Task], sampled: int, length: float,
    runs: Callable[..., list[History]], trials: int,
) -> dict[str, tuple[Algorithm, dict[str, Any]]]:  # fmt: skip
    """Return the best algorithm for each criterion, with how it was found; steps are searched around 1/(TL)."""
    from losac.tuning import AllDivergedError
    from losac.tuning.refine import refine_search
    from losac.tuning.space import check_space, edge
    from losac.tuning.trials import Goal, Trial, make_trial, ranked

    goal = Goal(METRIC[data], METRIC[data], "loss", CONTESTS[data].target, 10**6, IN_A_ROW)
    found: list[tuple[Trial, float, Algorithm, dict[str, Any]]] = []
    forms = forms_of(method, data)
    for form in forms:
        printed = form.name == "losac" and "scaling" not in form.settings
        unit = (sampled / (tasks[0].data.num_clients * BLOCKS) if printed else 1.0) * length
        first = {name: values[0] for name, values in form.axes.items()}
        start = algorithm(form.name, step_size=unit, **{**settings_of(form.name), **form.settings, **first})
        axes = check_space({"step_size": [factor * unit for factor in FACTORS], **form.axes}, start)
        spent: list[float] = []

        def evaluate(points: Sequence[Mapping[str, Any]], start: Any = start, spent: list[float] = spent) -> Any:
            members = [(start.replace(**point), seed) for point in points for seed in TUNING_SEEDS]
            histories = [runs(task, members, at_once=BATCH * len(TUNING_SEEDS)) for task in tasks]
            each, tried = len(TUNING_SEEDS), []
            for k, point in enumerate(points):
                mine = [one for part in histories for one in part[k * each : (k + 1) * each]]
                tried.append(make_trial(dict(point), mine, goal))
                spent.append(mean([_at_target(data, one)["up"] for one in mine], missing=np.inf))
            return tried

        space, tried = refine_search(axes, evaluate, partial(_allowed, start), trials // len(forms), BATCH)
        for trial, up in zip(tried, spent):
            ends = {name: edge(values, trial.settings[name]) for name, values in space.items()}
            on_edge = [f"{name} {end}" for name, end in ends.items() if end in ("low", "high")]
            found.append((trial, up, start.replace(**trial.settings), {"edges": ", ".join(on_edge) or "inside"}))
    if all(trial.diverged is not None for trial, *_ in found):
        raise AllDivergedError(f"all {len(found)} trials diverged")
    order = ranked([trial for trial, *_ in found])
    by_rounds = min(found, key=lambda one: order.index(one[0]))
    by_bytes = min(found, key=lambda one: (one[1], order.index(one[0])))
    return {
        criterion: (best, {**about, "trials": len(found), "settings": _told(best, trial.settings)})
        for criterion, (trial, _, best, about) in (("rounds", by_rounds), ("bytes", by_bytes))
    }


def _allowed(start: Algorithm, point: Mapping[str, Any]) -> bool:
    try:
        start.replace(**point)
    except ValueError:
        return False
    return True


def _told(best: Algorithm, point: Mapping[str, Any]) -> str:
    """Return settings in words, with the form that was picked."""
    form = [f"{name} {value}" for name, value in best.settings().items() if name in ("scaling", "ratio")]
    form += [f"top {100 * each.fraction:g} %" for each in best.uploads if hasattr(each, "fraction")]
    form += [f"rank {each.rank}" for each in best.uploads if hasattr(each, "rank")]
    return ", ".join([*(f"{name} {value:.3g}" for name, value in point.items()), *form])


def _at_target(data: str, history: History) -> dict[str, Any]:
    """Return the round, bytes up and down and gradients at which a run came to stay at the target."""
    when = history.rounds_to(METRIC[data], CONTESTS[data].target, sustained=IN_A_ROW)
    if history.diverged is not None or when is None:
        return dict.fromkeys(("round", "up", "down", "gradients"))
    at = int(np.searchsorted(history.rounds, when))
    return {"round": when} | {
        name: float(series[at])
        for name, series in (("up", history.bytes_up), ("down", history.bytes_down), ("gradients", history.gradients))
    }


def _entry(data: str, history: History, sampled: int, extra: int) -> dict[str, Any]:
    """Return what a run reached; ``extra`` rounds of measuring come on top, with a model up and two down in each."""
    reached, lost = _at_target(data, history), history.diverged is not None
    if reached["round"] is not None and extra:
        model = sum(np.asarray(leaf).nbytes for leaf in _leaves(history.params))
        rows = float(history.gradients[-1]) / max(1, int(history.rounds[-1])) / STEPS * BLOCKS
        once = {"round": 1, "up": sampled * model, "down": 2 * sampled * model, "gradients": 2 * rows}
        reached = {name: value + extra * once[name] for name, value in reached.items()}
    end = None if lost else history.final(METRIC[data])
    return {
        "seed": history.seed, "stayed": reached, "end": end, "diverged": history.diverged,
        "loss": None if lost or "test_loss" not in history.metrics else history.final("test_loss"),
        "collapsed": float(
            lost or (reached["round"] is not None and end is not None and end < CONTESTS[data].target - COLLAPSED)
        ),
    }  # fmt: skip


def _leaves(tree: Any) -> Any:
    import jax

    return jax.tree.leaves(tree)


# What the runs say


class Row(NamedTuple):
    """One method in one setting, by what it was tuned for."""

    method: str
    sampled: int
    all_clients: bool
    settings: str
    edges: str
    trials: int
    stayed: Mapping[str, Sequence[float | None]]
    end: Sequence[float | None]
    collapsed: int
    runs: int

    def reached(self, name: str) -> Interval | None:
        """Return what was spent up to the target; None where a run did not get there."""
        return interval(self.stayed[name]) if self.runs else None

    def seconds(self, uplink: float) -> float:
        """Return the mean seconds that the messages of one client take up to the target, at so many Mbit/s up."""
        up, down = (mean(self.stayed[name]) / self.sampled for name in ("up", "down"))
        return 8e-6 * (up / uplink + down / (FASTER * uplink))


Where = tuple[str, str, float]


def rows_of(frame: pd.DataFrame, criterion: str) -> dict[Where, list[Row]]:
    """Return the methods of every setting, as they were tuned for a criterion."""
    by = ("data", "partition", "share", "method")
    one = cells(frame, "sampled", by)
    failed = cells(frame, "failed", by)
    names = ("settings", "edges", "trials", "end", "collapsed", *(f"stayed {n}" for n in _SPENT))
    found = {name: cells(frame, name, by, criterion=criterion) for name in names}
    rows: dict[Where, list[Row]] = {}
    for key, (sampled, *_) in one.items():
        if key not in found["end"] and key not in failed:
            continue
        first = {name: found[name].get(key, [None])[0] for name in ("settings", "edges", "trials")}
        ends = found["end"].get(key, [])
        row = Row(
            key[3], int(sampled), asks_all(key[3]), first["settings"] or failed.get(key, [""])[0],
            first["edges"] or "", int(first["trials"] or 0),
            {name: found[f"stayed {name}"].get(key, []) for name in _SPENT}, ends,
            int(sum(found["collapsed"].get(key, []))), len(ends),
        )  # fmt: skip
        rows.setdefault(key[:3], []).append(row)
    return rows


_SPENT = ("round", "up", "down", "gradients")


def ordered(rows: Sequence[Row], name: str) -> list[Row]:
    """Return rows, the fewest spent first; those of which a run did not get there last, by how many did."""

    def key(row: Row) -> tuple[float, float, float]:
        there = known(row.stayed[name])
        missing = row.runs - len(there) if row.runs else np.inf
        return (1.0 if missing else 0.0, missing, float(np.mean(there)) if there else np.inf)

    return sorted(rows, key=key)


def tied(rows: Sequence[Row], name: str) -> list[Row]:
    """Return, of ordered rows, the best and those not told apart from it: see ``fair.tied``."""
    best = rows[0].reached(name) if rows else None
    if best is None:
        return []
    values = [(row, row.reached(name)) for row in rows]
    return [row for row, value in values if value is not None and not_told_apart(value, best)]


def title_of(method: str) -> str:
    """Return what tables call a method."""
    own = {
        "losac_lean_auto": "LoSAC-lean, automatic step",
        "losac_lean_auto_sparse": "LoSAC-lean, automatic step, top 5 %",
        "losac_lean_auto_lowrank": "LoSAC-lean, automatic step, rank 1",
    }
    if method in own:
        return own[method]
    name, _, kind = method.rpartition("_")
    if method in COMPRESSED:
        return f"{NAMES[name]}, {'low rank' if kind == 'lowrank' else kind}"
    if kind == "untuned":
        return NAMES[name]
    return name_of(method)


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Rank the methods in every setting, and compare the untuned with the tuned."""
    rounds, up, untuned = (rows_of(frame, name) for name in ("rounds", "bytes", "untuned"))
    tables = [_winners(rounds, up), _untuned(rounds, untuned)]
    for where in rounds:
        tables += _tables(where, rounds[where], up.get(where, []))
    caption = (
        "Rounds and MB sent up until the target was sustained, every method tuned for rounds (left) and for bytes "
        "(right), the best at the top: those that contact only sampled clients. Points: mean; bars: 95 % interval over "
        "seeds and draws; blue: LoSAC. Methods with a run that did not reach the target are left out."
    )
    figures = [
        Figure(f"rank-{data}-{_file(where)}", f"{_title(where)}. {caption}", partial(_draw, where, rounds, up))
        for where in rounds
        for data in [where[0]]
    ]
    return Findings(_summary(rounds, up, untuned), (), tables, figures)


def _title(where: Where) -> str:
    data, partition, share = where
    kind = f"({partition.replace(',', ', ')})" if "," in partition else partition.replace("dirichlet:", "Dirichlet ")
    return f"{data.upper()}, {kind}, {100 * share:g} % of the clients a round"


def _file(where: Where) -> str:
    return f"{where[1].replace(':', '').replace(',', '-')}-{100 * where[2]:g}"


def _winners(rounds: Mapping[Where, list[Row]], up: Mapping[Where, list[Row]]) -> ResultTable:
    lines: list[list[Any]] = []
    for where, rows in rounds.items():
        for label, found, name in (("rounds", rows, "round"), ("bytes up", up[where], "up")):
            order = ordered([row for row in found if not row.all_clients], name)
            near = [title_of(row.method) for row in tied(order, name)]
            ours = next((k for k, row in enumerate(order) if row.method in OURS and row.reached(name)), None)
            best = mean(order[0].stayed[name])
            away = None if ours is None else mean(order[ours].stayed[name]) / best
            lines.append(
                [_title(where), label, near[0] if near else "nobody", ", ".join(near[1:]) or None,
                 "not there" if ours is None else f"{title_of(order[ours].method)}: {ours + 1} of {len(order)}", away]
            )  # fmt: skip
    note = (
        "Methods that contact only sampled clients, each tuned for the criterion. *Not told apart*: "
        f"{TIED_WORDS} over seeds and draws. *Times the best's*: LoSAC's mean over the best's."
    )
    columns = ("setting", "criterion", "best", "not told apart from it", "LoSAC's best place", "times the best's")
    return ResultTable("winners", "Who wins where", columns, lines, note)


def _untuned(rounds: Mapping[Where, list[Row]], untuned: Mapping[Where, list[Row]]) -> ResultTable:
    lines: list[list[Any]] = []
    for where, rows in untuned.items():
        rivals = ordered([r for r in rounds.get(where, []) if not r.all_clients and r.method not in OURS], "round")
        best = mean(rivals[0].stayed["round"]) if rivals else np.nan
        level = max((mean(row.end) for row in rivals if np.isfinite(mean(row.end))), default=np.nan)
        for row in ordered(rows, "round"):
            there, end = known(row.stayed["round"]), interval(row.end)
            spent = row.reached("round")
            lines.append(
                [_title(where), title_of(row.method), f"{len(there)} of {row.runs}",
                 spent and spent.shown("{:.0f}"), mean(row.stayed["round"]) / best if spent else None,
                 mean(row.stayed["up"]) / 1e6 if spent else None, end and _level(where[0], end),
                 None if end is None or where[0] in CONVEX else round(100 * (end.mean - level), 1), row.collapsed]
            )  # fmt: skip
    note = (
        "As they come, with no setting tuned. *Times the best tuned rival's*: rounds over those of the best tuned "
        "method, LoSAC aside, that contacts only sampled clients. *Points to the best rival*: its final accuracy less "
        "the best tuned rival's. *Collapsed*: diverged, or ended more than 5 points below the target after reaching it."
    )
    columns = (
        "setting", "method", "reached", "sustained rounds", "times the best tuned rival's", "MB up", "end",
        "points to the best rival", "collapsed",
    )  # fmt: skip
    return ResultTable("untuned", "Without tuning", columns, lines, note)


def _level(data: str, end: Interval) -> str:
    """Return where runs end: the accuracy in per cent, or digits of the optimum."""
    return end.shown("{:.1f}", 1 if data in CONVEX else 100)


def _tables(where: Where, rounds: Sequence[Row], up: Sequence[Row]) -> list[ResultTable]:
    by_bytes = {row.method: row for row in up}
    tables = []
    for all_clients in (False, True):
        lines: list[list[Any]] = []
        for row in ordered([row for row in rounds if row.all_clients is all_clients], "round"):
            cheap = by_bytes.get(row.method, row)
            spent, sent, end = row.reached("round"), cheap.reached("up"), interval(row.end) if row.runs else None
            seconds = [cheap.seconds(uplink) for uplink in UPLINKS]
            lines.append(
                [title_of(row.method), row.settings, row.trials or None, row.edges or None,
                 f"{len(known(row.stayed['round']))} of {row.runs}", spent and spent.shown("{:.0f}"),
                 sent and sent.shown("{:.3g}", 1e-6),
                 sent and (mean(cheap.stayed["up"]) + mean(cheap.stayed["down"])) / 1e6,
                 spent and mean(row.stayed["gradients"]) / 1e3,
                 *(seconds if sent else [None] * len(UPLINKS)), end and _level(where[0], end)]
            )  # fmt: skip
        kind = "asking all clients" if all_clients else "asking only sampled clients"
        note = (
            "Mean ± half of the 95 % interval over seeds and draws; – where a run did not reach the target. The bytes "
            "and seconds are of the settings tuned for bytes, the rest of those tuned for rounds. Seconds: the "
            f"messages of one client at this uplink, with a downlink {FASTER} times as fast, without computing. "
            f"*Reached*: how many runs sustained the target. {SAME_WORDS}."
        )
        columns = (
            "method", "best settings", "trials", "optimum", "reached", "sustained rounds", "MB up", "MB in all",
            "1000 gradients", *(f"s at {uplink} Mbit/s" for uplink in UPLINKS),
            LEVELS[METRIC[where[0]]],
        )  # fmt: skip
        suffix = "-all" if all_clients else ""
        if lines:
            name = f"{where[0]}-{_file(where)}{suffix}"
            tables.append(ResultTable(name, f"{_title(where)}: {kind}", columns, lines, note))
    return tables


def _summary(
    rounds: Mapping[Where, list[Row]], up: Mapping[Where, list[Row]], untuned: Mapping[Where, list[Row]]
) -> str:
    parts = []
    for where, rows in rounds.items():
        said = []
        for label, found, name in (("rounds", rows, "round"), ("bytes up", up[where], "up")):
            near = [title_of(r.method) for r in tied(ordered([r for r in found if not r.all_clients], name), name)]
            more = f" and {len(near) - 3} more" if len(near) > 3 else ""
            said.append(f"fewest {label}: {', '.join(near[:3]) or 'nobody'}{more}")
        parts.append(f"{_title(where)}: {'; '.join(said)}.")
    lost = [(where, row) for where, rows in untuned.items() for row in rows if row.collapsed]
    names = ", ".join(dict.fromkeys(title_of(row.method) for _, row in lost))
    return (
        "The best first, then those not told apart from it, among methods that contact only sampled clients. "
        + " ".join(parts)
        + (f" Untuned, some runs collapsed or diverged: {names}." if lost else " Untuned, no run collapsed.")
    )


def _draw(where: Where, rounds: Mapping[Where, list[Row]], up: Mapping[Where, list[Row]]) -> Drawing:
    panels, most = [], 1
    for rows, name, scale, label in (
        (rounds[where], "round", 1.0, "rounds to the sustained target"),
        (up[where], "up", 1e-6, "MB sent up to the sustained target"),
    ):
        there = [r for r in ordered([r for r in rows if not r.all_clients], name) if r.reached(name) is not None][::-1]
        most = max(most, len(there))
        marks = [
            mark("errorbar", found.mean * scale, k, xerr=found.half * scale, fmt="o", markersize=4, capsize=2,
                 color=look_of("losac").colour if row.method in OURS else "0.4")
            for k, row in enumerate(there) if (found := row.reached(name)) is not None
        ]  # fmt: skip
        panels.append(Panel(marks, {"title": _title(where)}, finish=partial(_finish, there, label)))
    return draw([panels], (10.5, 1.2 + 0.19 * most))


def _finish(there: Sequence[Row], label: str, panel: Axes) -> None:
    panel.set_xlabel(label, fontsize=8)
    panel.set_yticks(range(len(there)), [title_of(row.method) for row in there], fontsize=7)
    panel.set_ylim(-0.7, len(there) - 0.3)
    panel.set_title(panel.get_title(), fontsize=8)
    for text, row in zip(panel.get_yticklabels(), there):
        if row.method in OURS:
            text.set(color=look_of("losac").colour, fontweight="bold")
    if there:
        panel.set_xscale("log")
        plain_log(panel.xaxis, DECADE)


KEYS = {"picked": "picked", "criterion": "criterion", "runs": "runs", "draw": "draw"}


def _study(data: str, place: float, shares: bool = False) -> Study:
    name, more = (f"rank-{data}-shares", ", other shares of clients") if shares else (f"rank-{data}", "")
    return Study(
        name, f"Rank: every method tuned for what it is ranked by, {data.upper()}{more}",
        partial(jobs, data=data, shares=shares), conclude, (data,), place=place, keys=KEYS,
    )  # fmt: skip


DIGITS, DIGITS_SHARES = _study("digits", 16.1), _study("digits", 16.11, shares=True)
MNIST, MNIST_SHARES = _study("mnist", 16.2), _study("mnist", 16.21, shares=True)
HAR, HAR_SHARES = _study("har", 16.3), _study("har", 16.31, shares=True)
ESR, ESR_SHARES = _study("esr", 16.4), _study("esr", 16.41, shares=True)
A9A, W8A = _study("a9a", 16.5), _study("w8a", 16.6)
SYNTHETIC, SYNTHETIC_SHARES = _study("synthetic", 16.7), _study("synthetic", 16.71, shares=True)
