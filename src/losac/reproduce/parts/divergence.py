"""Model divergence, the paper's subject, measured: the clients' drift, and how well a search direction estimates ∇f.

Every method runs with the paper's settings; after some rounds, and when its loss has fallen to a common value, the
probe plays possible next rounds: the spread of the local models, and the directions against ∇f at the local models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.reproduce.parts.divergence_claims import claims
from losac.reproduce.parts.divergence_looks import Key, Look, looks
from losac.reproduce.problems import algorithm, paper_task
from losac.reproduce.study import Figure, Findings, Job, Measured, Options, Study, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


class Member(NamedTuple):
    """A method: its legend, the algorithm, its settings, and those that go with n_i where f_i is a sum."""

    title: str
    name: str
    settings: Mapping[str, Any] = {}
    scaled: Mapping[str, float] = {}


PAPER: dict[str, Member] = {
    "losac": Member("LoSAC", "losac"),
    "exact": Member("LoSAC, exact, δ = 1", "losac", {"scaling": "exact", "correction": 1.0}),
    "scaffold": Member("SCAFFOLD", "scaffold"),
    "mime_svrg": Member("MimeSVRG", "mime_svrg"),
    "fedcm": Member("FedCM", "fedcm"),
    "fedavg": Member("FedAvg", "fedavg"),
    "fedsaga": Member("FedSaga", "fedsaga"),
    "fedprox": Member("FedProx", "fedprox", {}, {"mu": 0.1}),
}
OTHERS: dict[str, Member] = {
    "damped": Member("LoSAC, exact, δ = 0.05", "losac", {"scaling": "exact", "correction": 0.05}),
    "mime": Member("Mime", "mime"),
    "mime_lite": Member("MimeLite", "mime_lite"),
    "local_svrg": Member("S-Local-SVRG", "local_svrg", {"refresh": 0.5}),
    "scaffold_momentum": Member("SCAFFOLD-M", "scaffold_momentum"),
    "fedavg_momentum": Member("FedAvg-M", "fedavg_momentum"),
    "feddyn": Member("FedDyn", "feddyn", {}, {"alpha": 0.1}),
    "fedadmm": Member("FedADMM, exact", "fedadmm", {"variant": "exact"}, {"rho": 0.1}),
    "mfl": Member("MFL", "mfl"),
    "ghbm": Member("GHBM", "ghbm"),
}
MEMBERS = PAPER | OTHERS
"""FedAdam, FedVARP, MIFA and their like take FedAvg's local steps, and need no line of their own here."""
CLIENTS, SAMPLED, STEPS, BLOCKS, ETA = 100, 10, 6, 5, 1e-4
GRADED = (0, 2, 5)
AT, BELOW = (20, 100), 0.7
PLACES = (("har", "sorted"), ("har", "iid"), ("mnist", "sorted"))
NAMES = {("har", "sorted"): "HAR, non-IID", ("har", "iid"): "HAR, IID", ("mnist", "sorted"): "MNIST, non-IID"}
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
    from losac.reproduce.probe import trace

    task = paper_task(data, CLIENTS, partition)
    _, name, settings, scaled = MEMBERS[member]
    rows = float(np.mean(task.data.sizes))
    own = dict(settings) | {key: value * rows for key, value in scaled.items()}
    chosen = algorithm(name, step_size=ETA, local_steps=STEPS, blocks=BLOCKS, **own)
    return [
        trace(task, chosen, seed, sampled=SAMPLED, at=at, plays=plays, graded=GRADED, below=below) for seed in seeds
    ]


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Say who drifts, and whose direction is ∇f's."""
    found = looks(measured)
    last = max(key.when for key in found if isinstance(key.when, int))
    tables = [
        _table(found, place, when) for place in NAMES for when in ("equal", 10, *AT) if _members(found, place, when)
    ]
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


def _table(found: Mapping[Key, Look], place: tuple[str, str], when: Any) -> Table:
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
    return Table(name, f"{NAMES[place]}, {head}", columns, rows, note)


def _draw(found: Mapping[Key, Look], last: int) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    from losac.reproduce.looks import look_of

    places = [place for place in NAMES if _members(found, place, last)]
    drawing = Drawing((3.3 * len(places) + 2.2, 7.6), layout="constrained")
    panels = drawing.subplots(3, len(places), squeeze=False, sharey="row")
    for column, place in enumerate(places):
        above, middle, below = panels[:, column]
        for member, one in PAPER.items():
            if (key := Key(*place, last, member)) not in found:
                continue
            look, shape = found[key], look_of("losac_exact" if member == "exact" else member)
            form = {"color": shape.colour, "marker": shape.marker, "linestyle": shape.dashes, "markersize": 4}
            above.plot(range(len(look.heading)), look.heading, label=one.title, **form)
            middle.plot(GRADED, look.cosine, **form)
            below.plot(range(1, len(look.drift) + 1), look.drift, **form)
        for panel in (above, middle):
            panel.axhline(0, color="0.6", linewidth=0.8, zorder=0)
            panel.set_xlabel("local step t")
        above.set_title(NAMES[place])
        below.set(yscale="log", xlabel="local steps taken", ylim=(0.03, None))
    panels[0, 0].set_ylabel(r"cosine with $\nabla f(x)$")
    panels[1, 0].set_ylabel(r"cosine with $\nabla f(x_i)$")
    panels[2, 0].set_ylabel("spread over way")
    drawing.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside right center")
    return drawing


STUDY = Study("divergence", "Model divergence: drift, and the direction against ∇f", jobs, conclude, ("har", "mnist"))
