"""Model divergence, the paper's subject, measured: the clients' drift, and how well a search direction estimates ∇f.

Every method runs with the paper's settings; after some rounds, and when its loss has fallen to a common value, the
probe plays possible next rounds: the spread of the local models, and the directions against ∇f at the local models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac_reproduction.claims import Headline, JudgedClaim, Statement, judge
from losac_reproduction.frame import cells
from losac_reproduction.panels import Panel, draw, line_of, mark
from losac_reproduction.problems import algorithm, paper_task
from losac_reproduction.study import Figure, Findings, Job, JobResult, Options, ResultTable, Study

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing


class Contender(NamedTuple):
    """A method: its legend, the algorithm, its settings, and those that go with n_i where f_i is a sum."""

    title: str
    name: str
    settings: Mapping[str, Any] = {}
    scaled: Mapping[str, float] = {}


PAPER: dict[str, Contender] = {
    "losac": Contender("LoSAC", "losac"),
    "exact": Contender("LoSAC, exact, δ = 1", "losac", {"scaling": "exact", "correction": 1.0}),
    "scaffold": Contender("SCAFFOLD", "scaffold"),
    "mime_svrg": Contender("MimeSVRG", "mime_svrg"),
    "fedcm": Contender("FedCM", "fedcm"),
    "fedavg": Contender("FedAvg", "fedavg"),
    "fedsaga_printed": Contender("FedSaga (1/N, as printed)", "fedsaga", {"average": "all"}),
    "fedsaga": Contender("FedSaga (1/S)", "fedsaga"),
    "fedprox": Contender("FedProx", "fedprox", {}, {"mu": 0.1}),
}
OTHERS: dict[str, Contender] = {
    "damped": Contender("LoSAC, exact, δ = 0.05", "losac", {"scaling": "exact", "correction": 0.05}),
    "mime": Contender("Mime", "mime"),
    "mime_lite": Contender("MimeLite", "mime_lite"),
    "local_svrg": Contender("S-Local-SVRG", "local_svrg", {"refresh": 0.5}),
    "scaffold_momentum": Contender("SCAFFOLD-M", "scaffold_momentum"),
    "fedavg_momentum": Contender("FedAvg-M", "fedavg_momentum"),
    "feddyn": Contender("FedDyn", "feddyn", {}, {"alpha": 0.1}),
    "fedadmm": Contender("FedADMM, exact", "fedadmm", {"variant": "exact"}, {"rho": 0.1}),
    "mfl": Contender("MFL", "mfl"),
    "ghbm": Contender("GHBM", "ghbm"),
}
MEMBERS = PAPER | OTHERS
"""FedAdam, FedVARP, MIFA and their like take FedAvg's local steps, and need no line of their own here."""
CLIENTS, SAMPLED, STEPS, BLOCKS, ETA = 100, 10, 6, 5, 1e-4
GRADED = (0, 2, 5)
AT, BELOW = (20, 100), 0.7
PLACES = (("har", "sorted"), ("har", "iid"), ("mnist", "sorted"))
NAMES = {("har", "sorted"): "HAR, non-IID", ("har", "iid"): "HAR, IID", ("mnist", "sorted"): "MNIST, non-IID"}
ACCURATE = Statement(
    "LoSAC estimates the global gradient more accurately than SCAFFOLD.",
    "Ablation, communication efficiency",
    "holds if min(shares) >= 0.8 | holds in part if max(shares) >= 0.8 | fails",
    "The cosine between its direction and ∇f at the broadcast model is {angle}, with ∇f at the local model {local}; "
    "as printed ‖d − ∇f‖ is {raw:.2g} times as large as SCAFFOLD's, with c = {along:.2g} along ∇f (its scaling alone "
    "gives MN/S).{unbiased}",
    "Holds if in four of five looks its direction has the larger cosine with ∇f at the broadcast model and at the "
    "local model, and is nearer to ∇f itself; in part if one of the three is so.",
)
DRIFT = Statement(
    "LoSAC mitigates the model divergence on non-IID data.",
    "Handling model divergence",
    "holds if share >= 0.8 | holds in part if share > 0 | fails",
    "Spread of the local models as a share of their way, against FedAvg's: {drift:.2g} times (median; smaller in "
    "{wins} looks), SCAFFOLD's {other:.2g} times. In absolute terms LoSAC's spread is {spread:.2g} times FedAvg's.",
    "Holds if the spread of the local models, as a share of the way that their mean goes in the round, is smaller than "
    "FedAvg's in four of five looks at non-IID data.",
    Headline(
        "model divergence against FedAvg", "mitigated", "spread over way {drift:.2g} times FedAvg's (SCAFFOLD "
        "{other:.2g}); spread itself {spread:.2g} times",
    ),
)  # fmt: skip
BIAS = Statement(
    "FedSaga's variance reduction is local, and its direction biased from the global gradient.",
    "Limitation of FedSaga",
    "holds if biased >= 0.8 * of | holds in part if biased | fails",
    "On non-IID data the cosine between FedSaga's direction and ∇f against LoSAC's is {ours}, against FedAvg's "
    "{local}{iid}. This is with the mean over the sampled clients (1/S); as printed (1/N) against LoSAC's {printed}.",
    "Holds if in four of five looks at non-IID data its direction has a smaller cosine with ∇f than LoSAC's, with 1/S "
    "and with 1/N together.",
)
STALE = Statement(
    "SCAFFOLD and Mime work with outdated information during the local steps, while LoSAC keeps it refreshed.",
    "Related work",
    "holds if stale == rivals and fresher | holds in part if fresher or stale | fails",
    "Cosine between direction and ∇f at the first and at the last local step (medians over the looks): {shown}.",
    "Holds if the cosine with ∇f at the local model falls over the local steps, by more than 5 %, for SCAFFOLD and "
    "MimeSVRG, and by less for LoSAC than for both.",
)
_COST = {"har": 1.0, "mnist": 5.0}


def jobs(options: Options) -> list[Job]:
    """Return one job for each place and method; MNIST and the methods that the paper does not compare have one seed."""
    found = []
    for data, partition in PLACES[:1] if options.quick else PLACES:
        members = MEMBERS if data == "har" else PAPER
        for member in ("losac", "scaffold", "fedavg") if options.quick else members:
            several = data == "har" and member in PAPER and not options.quick
            seeds = list(options.seeds if several else options.seeds[:1])
            arguments = {
                "data": data,
                "partition": partition,
                "member": member,
                "at": [10] if options.quick else list(AT),
                "below": None if options.quick else BELOW,
                "seeds": seeds,
                "plays": 4 if options.quick else 8 if data == "har" else 4,
            }
            label = f"Divergence: {NAMES[data, partition]}, {MEMBERS[member].title}"
            found.append(Job(measure, arguments, label, _COST[data] * len(seeds)))
    return found


def measure(
    data: str, partition: str, member: str, at: list[int], below: float | None, seeds: list[int], plays: int
) -> list[list[dict[str, Any]]]:
    """Return, for every seed, what the probe saw."""
    from losac_reproduction.probe import trace

    task = paper_task(data, CLIENTS, partition)
    _, name, settings, scaled = MEMBERS[member]
    rows = float(np.mean(task.data.sizes))
    own = dict(settings) | {key: value * rows for key, value in scaled.items()}
    chosen = algorithm(name, step_size=ETA, local_steps=STEPS, blocks=BLOCKS, **own)
    return [
        trace(task, chosen, seed, sampled=SAMPLED, at=at, plays=plays, graded=GRADED, below=below) for seed in seeds
    ]


# What the probe saw of one method at one place, averaged over the seeds


class Key(NamedTuple):
    """Which data, dealt how, looked at when (a round, or ``"equal"`` loss), and whose."""

    data: str
    partition: str
    when: Any
    member: str


class Look(NamedTuple):
    """Means over the seeds; lists are over the local steps, ``cosine`` over the graded ones.

    ``scalar``, ``raw``, ``scaled`` and ``heading`` compare all directions with ∇f at the broadcast model, as
    :func:`losac_reproduction.probe.accuracy` has them (heading is the cosine); ``cosine`` is that with ∇f at the
    local model.
    """

    round: float
    loss: float
    scalar: list[float]
    raw: list[float]
    scaled: list[float]
    heading: list[float]
    cosine: list[float]
    spread: list[float]
    drift: list[float]
    bias: float

    @property
    def likeness(self) -> float:
        """The cosine between the directions and ∇f at the broadcast model, over the local steps."""
        return float(np.mean(self.heading))


def by_seed(one: JobResult) -> JobResult:
    """Name the seed of every look, and whether it was after a fixed round, at an equal loss, or at both."""
    looks = [
        {"seed": seed, "when": when, "at": record["round"], **{name: record[name] for name in (*NUMBERS, *LISTS)}}
        for seed, run in zip(one.arguments["seeds"], one.result)
        for record in run
        for when, wanted in ((f"round {record['round']}", record["fixed"]), ("equal", record["reached"]))
        if wanted
    ]
    return one._replace(result=looks)


NUMBERS = ("loss", "bias", "slope")
LISTS = ("square", "towards", "inner", "length", "gradient", "spread", "way")


def looks(frame: pd.DataFrame) -> dict[Key, Look]:
    """Return what was seen, by data, partition, time and method; a method that did not come so far is left out."""
    records: dict[Key, dict[int, dict[str, Any]]] = {}
    for name in ("at", *NUMBERS, *LISTS):
        values = cells(frame, name, ("data", "partition", "when", "method", "seed"))
        for (data, partition, when, method, seed), row in values.items():
            key = Key(data, partition, when if when == "equal" else int(when.split()[1]), method)
            records.setdefault(key, {}).setdefault(seed, {})[name] = row if name in LISTS else row[0]
    found = {key: list(seeds.values()) for key, seeds in records.items()}
    return {key: look(seeds) for key, seeds in found.items() if all(map(_whole, seeds))}


def _whole(record: Mapping[str, Any]) -> bool:
    return all(np.isfinite(value).all() for value in record.values()) and min(record["way"]) > 0


def look(records: Sequence[Mapping[str, Any]]) -> Look:
    """Average the records of several seeds; the errors are those of their mean squares."""
    from losac_reproduction.probe import accuracy

    middle = {name: np.mean([record[name] for record in records], axis=0) for name in records[0]}
    slope = np.full(len(records[0]["towards"]), middle["slope"])
    everybody = accuracy({"inner": middle["towards"], "length": middle["square"], "gradient": slope})
    graded = accuracy(middle)
    drift = np.mean([np.divide(record["spread"], record["way"]) for record in records], axis=0)
    return Look(
        float(middle["at"]), float(middle["loss"]), everybody["scalar"], everybody["raw"], everybody["scaled"],
        everybody["cosine"], graded["cosine"], middle["spread"].tolist(), drift.tolist(), float(middle["bias"]),
    )  # fmt: skip


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Say who drifts, and whose direction is ∇f's."""
    found = looks(frame)
    last = max(key.when for key in found if isinstance(key.when, int))
    times = [(place, when) for place in NAMES for when in ("equal", 10, *AT)]
    tables = [_table(found, place, when) for place, when in times if _members(found, place, when)]
    figures = [Figure("divergence", _CAPTION.format(last), lambda: _draw(found, last))]
    return Findings(_summary(found, last), claims(found), tables, figures)


_CAPTION = (
    "After round {} with the paper's settings. Above: cosine between the search direction of step t and ∇f at the "
    "broadcast model, over all clients played; 1 is a perfect estimate up to the step size. Middle: the same with ∇f "
    "at the local model of the step, over fewer clients. Below: the spread of the local models after t steps as a "
    "share of the way their mean has gone."
)


def _members(found: Mapping[Key, Look], place: tuple[str, str], when: Any) -> list[str]:
    return [member for member in MEMBERS if Key(*place, when, member) in found]


def _summary(found: Mapping[Key, Look], last: int) -> str:
    place = next(place for place in NAMES if _members(found, place, last))
    parts = []
    for member in ("losac", "exact", "scaffold", "fedavg"):
        if (key := Key(*place, last, member)) in found:
            look = found[key]
            parts.append(
                f"{MEMBERS[member].title}: cosine {look.likeness:.2f}, c = {look.scalar[0]:.2g}, spread "
                f"{look.drift[-1]:.2g}"
            )
    return (
        f"The cosine between the search direction and ∇f(x), the scalar c for which c∇f(x) is nearest to it, and the "
        f"spread of the local models as a share of their way. {NAMES[place]} after round {last}: {'; '.join(parts)}."
    )


def _table(found: Mapping[Key, Look], place: tuple[str, str], when: Any) -> ResultTable:
    rows: list[list[Any]] = []
    for member in _members(found, place, when):
        look = found[Key(*place, when, member)]
        rows.append(
            [
                MEMBERS[member].title, round(look.round), look.loss, look.scalar[0], look.raw[0],
                look.scaled[0] if look.scalar[0] > 0 else None,
                *(f"{value:.3f}" for value in (look.heading[0], look.heading[-1], *look.cosine)),
                look.spread[-1], look.drift[-1], look.bias,
            ]
        )  # fmt: skip
    columns = [
        "method", "round", "loss", "c", "raw error", "error after c", "cosine with ∇f(x), first step", "last step",
        *(f"with ∇f(x_i), t = {t}" for t in GRADED), "spread",
        "spread over way", "error of the mean",
    ]  # fmt: skip
    head = f"when the loss has fallen to {BELOW}" if when == "equal" else f"after round {when}"
    note = (
        "c, raw error ‖d − ∇f(x)‖/‖∇f(x)‖ and error after c ‖d − c∇f(x)‖/‖c∇f(x)‖ are those of the first local step, "
        "with ∇f at the broadcast model x and the c that is best; x_i is the local model. Spread: mean ‖x_i − x̄‖ after "
        "the last local step. Error of the mean: ‖d̄ − c∇f(x)‖/‖c∇f(x)‖ of the mean direction of all clients played."
    )
    name = f"{'-'.join(place)}-{when}"
    return ResultTable(name, f"{NAMES[place]}, {head}", columns, rows, note)


def _draw(found: Mapping[Key, Look], last: int) -> Drawing:
    grid: list[list[Panel]] = [[], [], []]
    level, label = mark("axhline", 0, color="0.6", linewidth=0.8, zorder=0), {"xlabel": "local step t"}
    for place in (place for place in NAMES if _members(found, place, last)):
        marks: list[list[Any]] = [[], [], []]
        for member, one in PAPER.items():
            if (key := Key(*place, last, member)) in found:
                seen, form = found[key], line_of("losac_exact" if member == "exact" else member, marker=True)
                curves = (range(len(seen.heading)), seen.heading), (GRADED, seen.cosine)
                for lines, (x, y) in zip(marks, (*curves, (range(1, len(seen.drift) + 1), seen.drift))):
                    lines.append(mark("plot", x, y, **form, label=one.title))
        marks[2].append(mark("set", yscale="log", ylim=(0.03, None)))
        names = (r"cosine with $\nabla f(x)$", r"cosine with $\nabla f(x_i)$", "spread over way")
        axes = (label | {"title": NAMES[place]}, label, {"xlabel": "local steps taken"})
        for row, lines, settings, name in zip(grid, ([*marks[0], level], [*marks[1], level], marks[2]), axes, names):
            row.append(Panel(lines, settings | ({} if row else {"ylabel": name})))
    size = (3.3 * len(grid[0]) + 2.2, 7.6)
    return draw(grid, size, legend={"loc": "outside right center"}, sharey="row")


# What the paper says of drift and of estimates of ∇f


def claims(found: Mapping[Key, Look]) -> list[JudgedClaim]:
    """Judge what can be judged by the methods that were measured."""
    made = ((ACCURATE, _accuracy(found)), (DRIFT, _drift(found)), (BIAS, _bias(found)), (STALE, _stale(found)))
    return [claim for statement, numbers in made if numbers is not None for claim in judge([statement], numbers)]


def _pairs(
    found: Mapping[Key, Look], first: str, second: str, value: Callable[[Look], float], where: str | None = None
) -> list[tuple[float, float]]:
    """Return a quantity of two methods wherever both were looked at."""
    return [
        (value(found[key]), value(found[other]))
        for key in found
        if key.member == first and where in (None, key.partition) and (other := key._replace(member=second)) in found
    ]


def _share(pairs: Sequence[tuple[float, float]]) -> float:
    return float(np.mean([a < b for a, b in pairs])) if pairs else 0.0


def _ratio(pairs: Iterable[tuple[float, float]]) -> float:
    return float(np.exp(np.median([np.log(a / b) for a, b in pairs])))


def _both(pairs: Sequence[tuple[float, float]]) -> str:
    """Describe two cosines, which come with a minus sign: smaller is better."""
    first, second = (-float(np.median(values)) for values in zip(*pairs))
    return f"{first:.2f} against {second:.2f} (median; larger in {_wins(pairs)} looks)"


def _wins(pairs: Sequence[tuple[float, float]]) -> str:
    return f"{sum(a < b for a, b in pairs)} of {len(pairs)}"


Numbers = dict[str, Any] | None


def _accuracy(found: Mapping[Key, Look]) -> Numbers:
    angle = _pairs(found, "losac", "scaffold", lambda look: -look.likeness)
    raw = _pairs(found, "losac", "scaffold", lambda look: float(np.mean(look.raw)))
    local = _pairs(found, "losac", "scaffold", lambda look: -float(np.mean(look.cosine)))
    exact = _pairs(found, "exact", "scaffold", lambda look: -look.likeness)
    return {
        "shares": (_share(angle), _share(local), _share(raw)), "angle": _both(angle), "local": _both(local),
        "raw": _ratio(raw),
        "along": float(np.median([look.scalar[0] for key, look in found.items() if key.member == "losac"])),
        "unbiased": f" In the exact scaling with δ = 1 the cosine is {_both(exact)}." if exact else "",
    } if angle else None  # fmt: skip


def _drift(found: Mapping[Key, Look]) -> Numbers:
    pairs = _pairs(found, "losac", "fedavg", lambda look: look.drift[-1], "sorted")
    spread = _pairs(found, "losac", "fedavg", lambda look: look.spread[-1], "sorted")
    other = _pairs(found, "scaffold", "fedavg", lambda look: look.drift[-1], "sorted")
    return {
        "share": _share(pairs), "drift": _ratio(pairs), "wins": _wins(pairs), "other": _ratio(other),
        "spread": _ratio(spread),
    } if pairs else None  # fmt: skip


def _bias(found: Mapping[Key, Look]) -> Numbers:
    pairs = _pairs(found, "fedsaga", "losac", lambda look: -look.likeness, "sorted")
    iid = _pairs(found, "fedsaga", "losac", lambda look: -look.likeness, "iid")
    local = _pairs(found, "fedsaga", "fedavg", lambda look: -look.likeness, "sorted")
    printed = _pairs(found, "fedsaga_printed", "losac", lambda look: -look.likeness, "sorted")
    return {
        "biased": sum(mine > other for mine, other in [*pairs, *printed]), "of": len(pairs) + len(printed),
        "printed": _both(printed) if printed else "not measured", "ours": _both(pairs),
        "local": _both(local), "iid": f"; on IID data {_both(iid)}" if iid else "",
    } if pairs else None  # fmt: skip


def _stale(found: Mapping[Key, Look]) -> Numbers:
    names = {"losac": "LoSAC", "exact": "LoSAC (exact, δ = 1)", "scaffold": "SCAFFOLD", "mime_svrg": "MimeSVRG"}
    ends = {m: [(look.cosine[0], look.cosine[-1]) for key, look in found.items() if key.member == m] for m in names}
    middle = {m: np.median(values, axis=0) for m, values in ends.items() if values}
    rivals = [m for m in ("scaffold", "mime_svrg") if m in middle]
    if "losac" not in middle or not rivals:
        return None
    lost = {m: float(1 - last / first) for m, (first, last) in middle.items()}
    return {
        "stale": sum(lost[m] > 0.05 for m in rivals), "rivals": len(rivals),
        "fresher": lost["losac"] < min(lost[m] for m in rivals),
        "shown": ", ".join(f"{names[m]} {first:.2f} → {last:.2f}" for m, (first, last) in middle.items()),
    }  # fmt: skip


STUDY = Study(
    "divergence", "Model divergence: drift, and the direction against ∇f", jobs, conclude, ("har", "mnist"), place=13,
    keys={"when": "when"}, reshape=by_seed,
)  # fmt: skip
