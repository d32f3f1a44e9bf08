"""What a defence costs and what it buys: accuracy and recovered rows, against ε, with the same clipping and noise.

Softmax regression on digits, clients of eight rows. For the accuracy there are 1000 of them, of which 100 take part in
each of 100 rounds, every client in ten; for the recovery two of ten are attacked that all take part in ten rounds. So
every client sends the same number of uploads in both, and one ε holds for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac import privacy
from losac.algorithms import gaussian, qsgd, random_k, top_k
from losac.attacks.audit import RECOGNISED, Plan, audit
from losac.data import FederatedData
from losac.models import softmax_regression
from losac.simulation import sweep
from losac.task import Task, classification
from losac_reproduction._random import rows_generator, turns_generator
from losac_reproduction.frame import cells
from losac_reproduction.methods import name_of
from losac_reproduction.panels import Mark, Panel, draw, line_of, mark
from losac_reproduction.problems import paper_data
from losac_reproduction.studies.leakage import ADAPTIVE, CONTROL, KNOWN, Attacked, problem, unpacked
from losac_reproduction.study import Figure, Findings, Job, JobResult, Options, ResultTable, Study
from losac_reproduction.words import mean, none, told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

ROWS, CLIENTS, SAMPLED, UPLOADS = 8, 1000, 100, 10
"""n_i, N and S of the runs for accuracy, and in how many rounds a client takes part."""
ROUNDS = UPLOADS * CLIENTS // SAMPLED
NOISES = (0.0, 0.003, 0.03, 0.3, 3.0)
PLACES: tuple[Any, ...] = ("client", "server")
METHODS = (
    Attacked("fedavg", 5), Attacked("scaffold", 5), Attacked("mime_svrg", 5), Attacked("losac", 1),
    Attacked("losac", 5), Attacked("losac", 5, 5),
)  # fmt: skip
COMPRESSED = {
    "10 % largest": top_k(0.1, error_feedback=False),
    "10 % at random": random_k(0.1, error_feedback=False),
    "8 bits": qsgd(127),
}
"""Compression by itself, of which some expect protection."""


def jobs(options: Options) -> list[Job]:
    """Return three jobs for each method: what is recovered, what is learnt, and what that is worth."""
    seeds = list(options.seeds[:1] if options.quick else options.seeds)
    noises = list(NOISES)
    methods = [METHODS[k] for k in (0, 3)] if options.quick else METHODS
    return [
        Job(
            function,
            {"method": list(method), "noises": noises, "seeds": seeds}
            | ({"quick": options.quick} if function is accuracy else {}),
            f"Privacy: {what} with {method.name}, T = {method.steps}, M = {method.blocks}",
            cost,
            version=2,
        )
        for method in methods
        for function, what, cost in ((recovery, "recovery", 1.0), (accuracy, "accuracy", 2.0), (budgets, "ε", 0.1))
    ]


def recovery(method: list[Any], noises: list[float], seeds: list[int]) -> list[dict[str, Any]]:
    """Attack a method under noise of several sizes, and under compression."""
    made = Attacked(*method).make(ROWS)
    plan = Plan(("inverting", "rowspace"), ("paper",), rounds=UPLOADS, steps=150)
    bounds = clips(problem("mnist", "softmax", ROWS, seeds[0])[0], made)
    found: list[dict[str, Any]] = []
    defences = [("noise", z, None) for z in noises] + [(name, None, one) for name, one in COMPRESSED.items()]
    for name, z, transform in defences:
        for seed in seeds:
            task, means = problem("mnist", "softmax", ROWS, seed)
            chosen = made.replace(uploads=(transform,)) if z is None else protected(made, bounds, z)
            one = audit(task, chosen, KNOWN, plan, clients=(0, 1), class_means=means, seed=seed)
            found.append({"defence": name, "noise": z, "seed": seed, "psnr": dict(one.psnr), "labels": one.labels,
                          "error": one.error})  # fmt: skip
    return found


def accuracy(method: list[Any], noises: list[float], seeds: list[int], quick: bool) -> list[dict[str, Any]]:
    """Train with noise of several sizes at the clients, all at once; else also at the server, and under compression."""
    made = Attacked(*method).make(ROWS)
    task = _task()
    bounds = clips(problem("mnist", "softmax", ROWS, seeds[0])[0], made)
    groups: list[tuple[str, list[float | None], list[Any]]] = [
        (where, [*noises], [protected(made, bounds, z, where) for z in noises]) for where in PLACES
    ]
    groups += [(name, [None], [made.replace(uploads=(one,))]) for name, one in COMPRESSED.items()]
    groups = [("nothing", [None], [made]), *(groups[:1] if quick else groups)]
    found = []
    for where, sizes, chosen in groups:
        runs = sweep(
            task, chosen[0], {"uploads": [one.uploads for one in chosen]}, seeds, rounds=ROUNDS,
            clients_per_round=SAMPLED, sampling=schedule(), eval_every=ROUNDS, loss_every=ROUNDS,
        )  # fmt: skip
        for place, z in enumerate(sizes):
            members = runs.members[place * len(seeds) : (place + 1) * len(seeds)]
            reached = [None if run.diverged is not None else run.final("accuracy") for run in members]
            found.append({"where": where, "noise": z, "accuracy": reached})
    return found


def clips(task: Task, method: Any) -> list[tuple[float, ...]]:
    """Return the median norm of every part of the first upload, phase by phase: what to clip at.

    Of methods that send changes of what they keep, the first upload is the largest.
    """
    return [tuple(phase.values()) for phase in privacy.typical_norms(task, method, rounds=1)]


def protected(method: Any, bounds: list[tuple[float, ...]], noise: float, where: Any = "client") -> Any:
    """Return the method with clipped and noisy uploads; a method's own phase is its last."""
    other = bounds[0][0] if len(bounds) > 1 else None
    return method.replace(uploads=(gaussian(bounds[-1], noise, noise_at=where, other_clip=other),))


def budgets(method: list[Any], noises: list[float], seeds: list[int]) -> list[dict[str, Any]]:
    """Return ε for both adversaries and both places of the noise; it does not depend on the data."""
    made = Attacked(*method).make(ROWS)
    chosen = [(where, z, gaussian(1.0, z, noise_at=where, other_clip=None)) for where in PLACES for z in noises if z]
    return [
        {"where": where, "noise": z, "epsilon": epsilons(made.replace(uploads=(noise,)))} for where, z, noise in chosen
    ]


def epsilons(method: Any) -> dict[str, float]:
    """Return ε for both adversaries; from the server itself noise that it adds is no protection."""
    run = {"rounds": ROUNDS, "clients": CLIENTS, "clients_per_round": SAMPLED, "participations": UPLOADS}
    run["fewest"] = SAMPLED  # in the simulator all answer
    adversaries: tuple[privacy.Adversary, ...] = (
        ("outside",) if method.uploads[-1].on_the_sum else ("server", "outside")
    )
    return {adversary: privacy.epsilon(method, adversary=adversary, **run) for adversary in adversaries}


def schedule() -> list[np.ndarray]:
    """Return who takes part: all clients in turn, in a new order each time: each has the same number."""
    rng = turns_generator()
    return [part for _ in range(UPLOADS) for part in rng.permutation(CLIENTS).reshape(-1, SAMPLED)]


def _task() -> Task:
    every = paper_data("mnist", 2, "iid")
    x, y = np.asarray(every.x).reshape(len(every.x), -1), np.asarray(every.y)
    order = rows_generator(0).permutation(len(x))[: CLIENTS * ROWS].reshape(CLIENTS, ROWS)
    test = every.test
    assert test is not None
    held = FederatedData.from_clients([(x[mine], y[mine]) for mine in order], num_classes=10, name="mnist")
    return classification(softmax_regression(784, 10), held, test=(np.reshape(test[0], (len(test[0]), -1)), test[1]))


Key = tuple[str, int, int]


class Defended(NamedTuple):
    """One method under one defence: means over seeds; None where it was not measured, or diverged."""

    method: Key
    where: str
    noise: float | None
    epsilon: Mapping[str, float]
    accuracy: float | None
    psnr: float | None
    labels: float | None


def by_defence(one: JobResult) -> JobResult:
    """Say where the noise is added also of what was recovered: at the clients."""
    names = {"noise": "client"}
    found = [
        {("where" if name == "defence" else name): names.get(v, v) if name == "defence" else v for name, v in e.items()}
        for e in one.result
    ]
    return unpacked(one._replace(result=found))


def cases_of(frame: pd.DataFrame) -> tuple[list[Defended], float]:
    """Return all methods under all defences, and the PSNR of the class mean."""
    by = ("method", "steps", "blocks", "where", "noise")
    accuracy, labels = cells(frame, "accuracy", by), cells(frame, "labels", by)
    psnr = cells(frame, "psnr", (*by, "seed", "attack"))
    epsilon = cells(frame, "epsilon", (*by, "adversary")) if "adversary" in frame else {}
    strongest: dict[Any, dict[int, float]] = {}
    for (*key, seed, attack), [value] in psnr.items():
        if attack in ADAPTIVE:
            runs = strongest.setdefault(tuple(key), {})
            runs[seed] = max(value, runs.get(seed, -np.inf))
    found = [
        Defended(
            key[:3], key[3], key[4], {k[-1]: v for k, [v] in epsilon.items() if k[:-1] == key},
            none(mean(accuracy.get(key, []))), none(mean(strongest.get(key, {}).values())),
            none(mean(labels.get(key, []))),
        )
        for key in dict.fromkeys([*accuracy, *labels])
    ]  # fmt: skip
    return found, float(np.mean([value for key, [value] in psnr.items() if key[-1] == CONTROL]))


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Compare accuracy and recovery."""
    cases, control = cases_of(frame)
    caption = (
        "Accuracy on the test data (left) and how well a client's digits are recovered by the strongest attack "
        "(right), against the noise that clients add to their clipped uploads; above, ε for the server itself at "
        "δ = 10⁻⁵ (one upload a round; MimeSVRG's two a round make it about twice that). At the left edge: "
        "clipping without noise. The grey line is the class mean, which needs no attack."
    )
    tables = [_noise_table(cases), _compression_table(cases, control)]
    return Findings(_summary(cases, control), (), tables, [Figure("privacy", caption, lambda: _draw(cases, control))])


def label(method: Key) -> str:
    """Return the method with its T, and M where it matters."""
    name, steps, blocks = method
    return f"{name_of(name)}, T = {steps}" + (f", M = {blocks}" if name == "losac" else "")


def _summary(cases: Sequence[Defended], control: float) -> str:
    noisy = [c for c in cases if c.where == "client" and c.noise and c.psnr is not None and c.accuracy is not None]
    plain = {c.method: c for c in cases if c.where == "nothing"}
    parts = []
    for method, whole in plain.items():
        stops = [c for c in noisy if c.method == method and (c.psnr or 0) < control]
        if not stops or whole.accuracy is None:
            continue
        first = min(stops, key=lambda c: c.noise or 0)
        cost = 100 * (whole.accuracy - (first.accuracy or 0))
        parts.append(
            f"{label(method)}: from z = {first.noise:g} on, which costs {cost:.1f} points of accuracy and is worth "
            f"ε = {first.epsilon['server']:.2g} against the server"
        )
    ends = (
        "Noise at the clients brings the recovery of their rows below the class mean; what it costs is against runs "
        f"with neither clipping nor noise. {'; '.join(parts)}. "
    )
    return (ends if parts else "") + " ".join(
        _proven(cases, adversary, who)
        for adversary, who in (("server", "the server itself"), ("outside", "whoever sees only what the server sends"))
    )


def _proven(cases: Sequence[Defended], adversary: str, who: str, limit: float = 10.0) -> str:
    """Say how much accuracy is left where a small ε is proven."""
    sure = [c for c in cases if c.accuracy is not None and (c.epsilon.get(adversary) or np.inf) <= limit]
    if not sure:
        return f"No setting here has ε ≤ {limit:g} against {who}."
    best = max(sure, key=lambda c: c.accuracy or 0)
    return (
        f"With ε ≤ {limit:g} against {who} the best accuracy is {100 * (best.accuracy or 0):.0f} % "
        f"({label(best.method)}, noise at the {best.where}, z = {best.noise:g})."
    )


def _noise_table(cases: Sequence[Defended]) -> ResultTable:
    columns = ("method", "noise at", "z", "ε, server", "ε, outside", "accuracy", "recovered, dB", "labels")
    rows = [
        [label(c.method), c.where if c.noise else "nowhere", f"{c.noise:g}",
         *(_or_none(c.epsilon.get(who), ".3g") for who in ("server", "outside")), _or_none(c.accuracy, ".1%"),
         _or_none(c.psnr, ".1f"), _or_none(c.labels, ".1%")]
        for c in cases
        if c.noise is not None and not (c.where == "server" and not c.noise)
    ]  # fmt: skip
    note = (
        "z: the noise multiplier. ε at δ = 10⁻⁵, for ten rounds that a client takes part in, of 100 with 100 of 1000 "
        "clients: against the server, and against whoever sees only what it sends out (docs/privacy.md). Recovered: "
        "PSNR of the strongest attack, in ten rounds with all clients; noise at the server is no protection from it. "
        "The clipping bounds are medians of clients' own first uploads, which ε does not cover; the attacks do not "
        "reckon with clipping."
    )
    return ResultTable("noise", "Clipping and Gaussian noise", columns, rows, note)


def _or_none(value: float | None, form: str) -> str | None:
    return None if value is None else told(value, form)


def _compression_table(cases: Sequence[Defended], control: float) -> ResultTable:
    columns = ("method", "upload", "accuracy", "recovered, dB", "labels")
    # clipping at the median norm is next to nothing, where nothing protects
    clipped = {c.method: f"{c.psnr:.1f} (clipped)" for c in cases if c.where == "client" and c.noise == 0 and c.psnr}
    rows = [
        [label(c.method), "as it is" if c.where == "nothing" else c.where, _or_none(c.accuracy, ".1%"),
         _or_none(c.psnr, ".1f") or (clipped.get(c.method) if c.where == "nothing" else None),
         _or_none(c.labels, ".1%")]
        for c in cases
        if c.noise is None
    ]  # fmt: skip
    note = (
        f"Compression is no protection one can count on: the class mean has {control:.1f} dB, {RECOGNISED:.0f} dB are "
        "easily recognised. It acts on the method's own uploads only: MimeSVRG's full gradients travel as they are."
    )
    return ResultTable("compression", "Compression as a defence", columns, rows, note)


def _draw(cases: Sequence[Defended], control: float) -> Drawing:
    noisy = [c for c in cases if c.where == "client" and c.noise is not None]
    sizes = sorted({c.noise for c in noisy if c.noise})
    edge, ticks = sizes[0] / 3, sizes if len(sizes) < 6 else sizes[1::2]
    epsilon = {c.noise: c.epsilon.get("server") for c in noisy if c.noise and c.method[0] != "mime_svrg"}
    learnt: list[Mark] = []
    recovered: list[Mark] = []
    for index, method in enumerate(dict.fromkeys(c.method for c in noisy)):
        mine = sorted((c for c in noisy if c.method == method), key=lambda c: c.noise or 0)
        look = line_of(index, marker=True, markersize=5, label=label(method))
        for marks, values in ((learnt, [c.accuracy for c in mine]), (recovered, [c.psnr for c in mine])):
            y = [np.nan if v is None else v for v in values]
            marks.append(mark("plot", [c.noise or edge for c in mine], y, **look))
    recovered.append(mark("axhline", control, color="0.5", linewidth=0.8))

    def finish(panel: Axes) -> None:
        panel.set_xscale("log")
        panel.set_xticks([edge, *ticks], ["0", *(f"{z:g}" for z in ticks)])
        panel.minorticks_off()
        panel.set_xlabel("noise multiplier z")
        above = panel.secondary_xaxis("top")
        above.set_xticks(ticks, [_power(epsilon.get(z)) for z in ticks])
        above.minorticks_off()
        above.set_xlabel("ε against the server")

    panels = [
        Panel(learnt, {"ylabel": "accuracy", "ylim": (0, 1), "title": "What is learnt"}, finish=finish),
        Panel(recovered, {"ylabel": "recovered rows, PSNR in dB", "title": "What is recovered"}, finish=finish),
    ]
    return draw([panels], (9, 4.2), legend={"loc": "outside lower center", "ncols": 3})


def _power(epsilon: float | None) -> str:
    if epsilon is None:
        return "–"
    return f"{epsilon:.3g}" if epsilon < 1000 else f"$10^{{{np.log10(epsilon):.1f}}}$"


STUDY = Study(
    "privacy", "What a defence costs, and what it buys", jobs, conclude, ("mnist",), place=10.5,
    keys={"where": "where", "noise": "noise", "psnr": "attack", "epsilon": "adversary"}, reshape=by_defence,
)  # fmt: skip
