"""Figure 6: the attack DLG on five methods, and on what LoSAC and SCAFFOLD send in all.

The paper's attack is gradient descent on ‖∇f_i(x; D̃) − observed‖². It leaves open where the guess D̃ starts (here:
standard normal, and uniform on [0, 1]), whether the labels are known (here: yes, and as soft unknowns besides), how the
data is divided (here: sorted by label, and at random) and L (here: 5). The printed quantity (x⁺ − x)/(ηL) is *minus* a
gradient. So the attack is run with the printed and with the right sign.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from losac.attacks.evidence import telescoped
from losac.attacks.replay import true_gradients
from losac.attacks.search import search
from losac.attacks.transcript import Transcript, watch
from losac.models import logistic_regression
from losac.simulation.engines.resident import precision
from losac.task import Task, classification
from losac.trees import Array, Tree, axpy, scale, squared_norm, sub
from losac_reproduction._random import guess_key
from losac_reproduction.claims import Headline, Statement, judge
from losac_reproduction.frame import cells
from losac_reproduction.panels import Panel, draw, handle, line_of, mark
from losac_reproduction.problems import algorithm, paper_data, version
from losac_reproduction.study import Figure, Findings, Job, Options, ResultTable, Study
from losac_reproduction.words import mean, none, span, told

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Drawing

CLIENTS, ROUND, VICTIM, LOCAL_STEPS = 100, 5, 0, 5
ATTACK_STEPS, ATTACK_STEP = 100, 1e-3
MU, BETA = 0.1, 0.5
"""FedProx's μ over n_i, and MFL's momentum; the paper states neither."""
ETA = {"mnist": 1e-4, "har": 1e-4, "esr": 1e-3}
LAST_ZERO = {"mnist": 5, "har": 2, "esr": 0}
"""The greatest label that becomes 0; HAR's are counted from 0 here and from 1 in the paper."""
METHODS = {
    "dsgd": "DSGD",
    "mime_svrg": "MimeSVRG",
    "fedavg": "FedAvg",
    "scaffold": "SCAFFOLD",
    "losac": "LoSAC",
    "losac-1": "LoSAC, L = 1",
    "fedprox": "FedProx",
    "mfl": "MFL",
}
"""The paper's five; the others are in its Table 1, or show what one local step changes."""
TARGETS = {
    "gradient": "the gradient sent",
    "printed": "(x⁺ − x)/(ηL), as printed",
    "signed": "(x − x⁺)/(ηL)",
    "total": "the sum of all Δφ or Δc sent",
    "momentum": "what the local steps added to the momentum",
    "nothing": "zero, whatever was sent",
}
LINES = {"gradient": "-", "printed": "-", "signed": "--", "total": ":"}
VARIANTS = (("normal", "known"), ("uniform", "known"), ("normal", "soft"))
PARTITIONS = ("sorted", "iid")
LARGE = 0.5
"""By how much of its start the distance must fall for the data to be called obtained: half."""
AS_GOOD = 0.5
"""An attack succeeds where it gains at least this share of what it gains on DSGD, both over the attack on zero."""
VULNERABLE = (
    "DSGD and MimeSVRG are vulnerable to DLG, since they send gradients: the estimated data approaches the true data "
    "more and more."
)
SAFE = (
    "LoSAC cannot be attacked by DLG, since its gradients belong to local models that stay with the client and only "
    "increments are sent."
)
COLUMN = "FedAvg, SCAFFOLD, FedProx and LoSAC defend against DLG; MimeSVRG and MFL do not."
"""Claims on which the study ``leakage`` has evidence too."""
DEFENDS = {"fedavg": True, "scaffold": True, "mime_svrg": False, "fedprox": True, "mfl": False, "losac": True}
"""The column DaDLG of Table 1."""
WHERE = "Defense against DLG, Fig. 6"
CLAIMS = (
    Statement(
        VULNERABLE, WHERE, "fails if min(sent) <= 0 | holds if min(sent) >= LARGE | holds in part",
        "‖D̂ − D‖_F falls in {fallen} of {attacked} cases, by {sent_span} of its start. It ends nearer than a guess of "
        "zeros in {nearer} of {number} cases on DSGD.",
        "Vulnerable: the attack as printed brings the guess nearer in every case, and by at least half of its start; "
        "in part if only nearer.",
    ),
    Statement(
        "By matching the gradient the attacker obtains the client's data: when the optimum is reached, D′ = D.",
        "Defense ability to the gradient leakage", "holds if min(sent) >= LARGE | fails",
        "At most {matched:.0%} of the mismatch is left, while {kept_span} of the distance remains: the gradient cannot "
        "tell the data ({sizes}).",
        "Holds if, where the mismatch is nearly gone, at least half of the distance to the data is gone too.",
    ),
    Statement(
        "Under DLG the estimates from FedAvg, SCAFFOLD and LoSAC diverge more and more from the true data.",
        WHERE, "holds if max(printed) <= 0 and max(signed) <= 0 | holds in part if min(printed + signed) <= 0 | fails",
        "On (x⁺ − x)/(ηL) as printed, minus a gradient, the distance rises in {printed_rises} of {cases} cases "
        "(changes of {printed_each}). With the sign of a gradient it rises in {signed_rises} of {cases} "
        "({signed_each}; DSGD {dsgd}).",
        "Holds if the distance rises in every case, with the printed and with the right sign; in part if in some.",
    ),
    Statement(
        SAFE, "Defense ability to the gradient leakage",
        "fails if exact < 1e-9 and alike | holds in part if exact < 1e-9 | holds",
        "At M = 1 the sum of a client's Δφ is its last local gradient to {exact:.0e}, and with one local step the "
        "gradient at the broadcast x to {at_x:.0e}. The same attack on it changes the distance by {losac} (L = 5) and "
        "{losac_1} (L = 1), on DSGD by {dsgd}.",
        "Fails if a gradient of the client follows from its increments to rounding, and the attack on it gains at "
        "least half of what it gains on DSGD in every case; in part if only the first.",
        Headline("LoSAC defends against DLG", "yes", "attack on ΣΔφ {losac}, on DSGD's gradient {dsgd}"),
    ),
    Statement(
        COLUMN, "Related work, Table 1", "holds if agree == of | holds in part if 2 * agree >= of | fails",
        "{agree} of {of} entries agree. An attack on what the server receives gains at least {AS_GOOD:.0%} of what it "
        "gains on DSGD (over the attack on zero, which changes the distance by {blind}) in {as_good_each}.",
        "Holds if all six entries agree, in part if half of them do. An entry agrees if the method is open to the "
        "attack where the paper says so, and only there. Open: in at least half of the cases the attack gains at "
        "least {AS_GOOD:.0%} of what it gains on DSGD. The same measurement judges LoSAC in Table 1 and in Figure 6.",
    ),
)  # fmt: skip


def jobs(options: Options) -> list[Job]:
    """Return one job for each data set, division and method; the short form has ESR, sorted by label."""
    sets = ("esr",) if options.quick else tuple(ETA)
    partitions = PARTITIONS[:1] if options.quick else PARTITIONS
    variants = [list(v) for v in (VARIANTS[:1] if options.quick else VARIANTS)]
    seeds = list(options.seeds[:1] if options.quick else options.seeds)
    return [
        Job(
            measure,
            {"data": data, "partition": partition, "method": method, "variants": variants, "seeds": seeds},
            f"Figure 6: {METHODS[method]} on {data}, {partition}",
            3.0 if data == "mnist" else 1.0,
            version(data),
        )
        for data in sets
        for partition in partitions
        for method in METHODS
    ]


def binary_task(name: str, partition: str) -> Task:
    """Return the paper's binary logistic regression on one of its data sets."""
    data = paper_data(name, CLIENTS, partition)
    labels = (data.y > LAST_ZERO[name]).astype(np.int32)
    binary = dataclasses.replace(data, y=labels, num_classes=2, label_names=None, test=None)
    return dataclasses.replace(classification(logistic_regression(data.x.shape[1]), binary), metrics={})


def measure(data: str, partition: str, method: str, variants: list[list[str]], seeds: list[int]) -> dict[str, Any]:
    """Run the federation to the attacked round and attack the first client by all that is observed of it."""
    task = binary_task(data, partition)
    steps = 1 if method in ("dsgd", "losac-1") else LOCAL_STEPS
    rows_each = len(task.data.client(VICTIM)[0])
    extra = {"fedprox": {"mu": MU * rows_each}, "mfl": {"momentum": BETA}}.get(method, {})
    chosen = algorithm(method.removesuffix("-1"), step_size=ETA[data], local_steps=steps, blocks=1, **extra)
    (seen,) = watch(task, chosen, [VICTIM], rounds=ROUND, dtype="float64")
    rows, labels = (jnp.asarray(a) for a in task.data.client(VICTIM))
    with precision(np.float64):
        truth = jnp.asarray(np.asarray(rows), jnp.float64)
        x = _model(_last(seen).message)
        real = _gradient(task.loss, x, truth, labels)
        found = {
            target: {
                "distance to the gradient": float(_ratio(sub(observed, real), real)),
                "attacks": [
                    {"start": start, "labels": known}
                    | _attack(task.loss, start, known == "soft", x, observed, truth, labels, np.array(seeds))
                    for start, known in variants
                ],
            }
            for target, observed in observations(method, seen, ETA[data], steps).items()
        }
        result = {"rows": len(rows), "features": rows.shape[1], "norm": float(jnp.linalg.norm(truth)), "targets": found}
        if method.startswith("losac"):
            last = true_gradients(seen, task.loss, truth, labels)[-1][2]
            result["total against the last gradient"] = float(_ratio(sub(telescoped(seen), last), last))
    return result


def observations(method: str, seen: Transcript, eta: float, steps: int) -> dict[str, Tree]:
    """Return what the server may take for the client's gradient; with DSGD also zero, which says nothing of it."""
    upload = _last(seen).upload
    if method in ("dsgd", "mime_svrg"):
        return {"gradient": upload} | ({"nothing": scale(0.0, upload)} if method == "dsgd" else {})
    printed = scale(1 / (eta * steps), _model(upload))
    found = {"printed": printed, "signed": scale(-1.0, printed)}
    if method in ("scaffold", "losac", "losac-1"):
        found["total"] = telescoped(seen)
    if method == "mfl":
        found["momentum"] = _added(_last(seen), steps)
    return found


def _added(exchange: Any, steps: int) -> Tree:
    """Return the weighted mean of the gradients in a client's momentum, (v_T − βᵀv_0)/Σ_k βᵏ, from what it sent."""
    weight = sum(BETA**k for k in range(steps))
    return scale(1 / weight, axpy(1 - BETA**steps, exchange.message.v, exchange.upload.v))


def _last(seen: Transcript) -> Any:
    """Return the first exchange of the attacked round."""
    return next(one for one in seen.exchanges if one.task.round == ROUND - 1)


def _model(message: Any) -> Tree:
    """Return the model in a message, or its change in an upload, whatever else they hold."""
    return getattr(message, "x", message)


def _gradient(loss: Callable[..., Array], x: Tree, data: Array, labels: Array) -> Tree:
    """Return ∇f_i(x) of a client with this data, where f_i is the sum of its losses and ``loss`` their mean."""
    return jax.grad(lambda p: data.shape[0] * loss(p, (data, labels)))(x)


def _ratio(a: Tree, b: Tree) -> Array:
    return (squared_norm(a) / squared_norm(b)) ** 0.5


@partial(jax.jit, static_argnums=(0, 1, 2))
def _attack(
    loss: Any, start: str, soft: bool, x: Tree, observed: Tree, truth: Array, labels: Array, seeds: Array
) -> dict[str, Array]:
    """Attack from the start of every seed; return the distances at the start and the end, and their mean curve."""

    def one(seed: Array) -> tuple[Array, Array]:
        draw: Callable[..., Array] = jax.random.normal if start == "normal" else jax.random.uniform
        first = {"data": draw(guess_key(seed), truth.shape, truth.dtype)}
        if soft:
            first["logits"] = jnp.zeros(labels.shape, truth.dtype)

        def mismatch(guess: dict[str, Array]) -> Array:
            known = jax.nn.sigmoid(guess["logits"]) if soft else labels
            return squared_norm(sub(_gradient(loss, x, guess["data"], known), observed))

        def error(guess: dict[str, Array]) -> Array:
            return jnp.linalg.norm(guess["data"] - truth)

        trace = search(mismatch, first, optax.sgd(ATTACK_STEP), steps=ATTACK_STEPS, record=error)
        return trace.recorded, trace.mismatch

    errors, mismatch = jax.lax.map(one, seeds)
    return {
        "from": errors[:, 0],
        "to": errors[:, -1],
        "matched": jnp.max(mismatch[:, -1] / mismatch[:, 0]),
        "curve": errors.mean(0)[:: ATTACK_STEPS // 20],
    }


CASE = ("data", "partition", "method")
Places = dict[tuple[str, str], float]
"""A number by data set and division."""


class Attacks:
    """What the attacks got, by case, target and variant."""

    def __init__(self, frame: pd.DataFrame) -> None:
        attack = (*CASE, "target", "start", "labels")
        self.before, self.after, self.matched, self.curve = (
            cells(frame, f"attacks {name}", attack) for name in ("from", "to", "matched", "curve")
        )
        self.off = cells(frame, "distance to the gradient", (*CASE, "target"))
        self.rows, self.features, self.norm, self.last = (
            cells(frame, name, CASE) for name in ("rows", "features", "norm", "total against the last gradient")
        )
        self.last = {key: value for key, value in self.last.items() if key[2].startswith("losac")}
        self.variants = list(dict.fromkeys(key[4:] for key in self.before))

    def falls(self, method: str, target: str) -> Places:
        """Return by which share the distance to the data falls, in each case of the first variant; minus infinity
        where the attack blows up.
        """
        found = {}
        for key, before in self.before.items():
            if key[2:4] == (method, target) and key[4:] == self.variants[0]:
                ends = [-np.inf if np.isnan(b) else 1 - b / a for a, b in zip(before, self.after[key])]
                found[key[:2]] = float(np.mean(ends))
        return found

    def change(self, case: tuple[str, ...], target: str, variant: tuple[str, str]) -> str | None:
        """Return by how much an attack changed the distance."""
        before, after = mean(self.before[*case, target, *variant]), mean(self.after[*case, target, *variant])
        return f"{100 * (after / before - 1):+.2f} %" if np.isfinite(after / before) else None


def conclude(frame: pd.DataFrame, options: Options) -> Findings:
    """Say what the attack gets in each case."""
    found = Attacks(frame)
    numbers = _numbers(found)
    caption = (
        "Distance of the attacker's guess D̂ from a client's data D over the steps of the paper's attack, as a share of "
        "its start: above 1 the guess moves away. Colours are methods, line styles what is taken for the gradient; "
        "data sorted by label, known labels, mean over the seeds of a normal start."
    )
    summary = (
        f"Where the gradient itself is sent, the paper's attack brings the guess {numbers['sent_span']} nearer to the "
        f"data, no more: the data has at least {numbers['fewest']} times as many numbers as the gradient. On "
        f"(x⁺ − x)/(ηL) of FedAvg, SCAFFOLD and LoSAC the distance changes by {_signed(numbers['printed'])} as "
        f"printed, {_signed(numbers['signed'])} with the sign of a gradient. At M = 1 the sum of what a client of "
        f"LoSAC sends is its last local gradient (to {numbers['exact']:.0e}), and the attack on it changes the "
        f"distance by {numbers['totals']}."
    )
    tables = [*(_table(found, variant) for variant in found.variants), _total_table(found)]
    return Findings(summary, judge(CLAIMS, numbers), tables, [Figure("fig6", caption, lambda: _draw(found))])


def _numbers(found: Attacks) -> dict[str, Any]:
    """Return what the claims are judged by: the first variant of the attacks, normal start and known labels."""
    direct = {name: found.falls(name, "gradient") for name in ("dsgd", "mime_svrg")}
    printed = {name: found.falls(name, "printed") for name in ("fedavg", "scaffold", "losac")}
    signed = {name: found.falls(name, "signed") for name in printed}
    summed = {name: found.falls(name, "total") for name in ("scaffold", "losac", "losac-1")}
    dsgd, blind = direct["dsgd"], found.falls("dsgd", "nothing")
    needed = {k: blind[k] + AS_GOOD * (dsgd[k] - blind[k]) for k in blind}
    sent, first = _all(direct), found.variants[0]
    matched = [v for k, [v] in found.matched.items() if k[2] in direct and k[3:] == ("gradient", *first)]
    best = {name: _strongest(found, name) for name in DEFENDS}
    as_good = {name: sum(best[name].get(k, -np.inf) >= needed[k] for k in needed) for name in best}
    agree = {name: (2 * number < len(needed)) == DEFENDS[name] for name, number in as_good.items()}
    ends = [
        (np.mean([np.inf if np.isnan(b) else b for b in after]), found.norm[key[:3]][0])
        for key, after in found.after.items()
        if key[2:] == ("dsgd", "gradient", *first)
    ]
    sizes = {k[0]: (int(found.rows[k][0] * found.features[k][0]), int(found.features[k][0]) + 1) for k in found.rows}
    return {
        "LARGE": LARGE, "AS_GOOD": AS_GOOD, "sent": sent, "number": len(dsgd), "attacked": len(sent),
        "fallen": sum(share > 0 for share in sent), "sent_span": span(sent, ".1%"),
        "kept_span": span([1 - share for share in sent], ".1%"), "nearer": sum(end < norm for end, norm in ends),
        "matched": max((m for m in matched if np.isfinite(m)), default=0), "cases": len(_all(printed)),
        "sizes": "; ".join(f"{data.upper()} {a:,} numbers from {b}" for data, (a, b) in sizes.items()),
        "printed": _all(printed), "signed": _all(signed), "printed_each": _each(printed), "signed_each": _each(signed),
        "printed_rises": sum(share < 0 for share in _all(printed)),
        "signed_rises": sum(share < 0 for share in _all(signed)), "dsgd": _signed(dsgd.values()),
        "exact": max(value for values in found.last.values() for value in values),
        "at_x": max(value for key, [value] in found.off.items() if key[2:] == ("losac-1", "total")),
        "fewest": int(min(value for values in found.rows.values() for value in values)),
        "alike": all(summed["losac-1"][k] - needed[k] >= 0 for k in needed),
        "losac": _signed(summed["losac"].values()), "losac_1": _signed(summed["losac-1"].values()),
        "totals": _signed([*summed["losac"].values(), *summed["losac-1"].values()]),
        "agree": sum(agree.values()), "of": len(agree), "blind": _signed(blind.values()),
        "as_good_each": ", ".join(f"{n} of {len(dsgd)} cases on {METHODS[name]}" for name, n in as_good.items()),
    }  # fmt: skip


def _strongest(found: Attacks, method: str) -> Places:
    """Return the most that an attack gains on anything that the server receives from a method."""
    every = [found.falls(method, target) for target in ("gradient", "signed", "total", "momentum")]
    return {k: max(one[k] for one in every if k in one) for k in {k for one in every for k in one}}


def _all(found: Mapping[str, Places]) -> list[float]:
    return [share for one in found.values() for share in one.values()]


def _each(found: Mapping[str, Places]) -> str:
    return ", ".join(f"{METHODS[name]} {_signed(one.values())}" for name, one in found.items())


def _signed(shares: Iterable[float]) -> str:
    values = [-share for share in shares]
    return span(values, "+.1%").replace("-", "−") if all(np.isfinite(values)) else "more than any number"


def _table(found: Attacks, variant: tuple[str, str]) -> ResultTable:
    rows = []
    for *case, target in found.off:
        key = (*case, target, *variant)
        before, after = mean(found.before[key]), mean(found.after[key])
        rows.append(
            [case[0].upper(), case[1], METHODS[case[2]], TARGETS[target], told(before, ".2f"),
             told(after, ".2f|diverged"), found.change(tuple(case), target, variant), none(found.matched[key][0]),
             found.off[*case, target][0], f"{found.norm[tuple(case)][0]:.1f}"]
        )  # fmt: skip
    note = (
        f"{ATTACK_STEPS} steps of length {ATTACK_STEP:g}, means over the seeds of the start. *Mismatch left*: final "
        "over first value of what the attack minimises. *Off the gradient*: ‖observed − ∇f_1(x)‖/‖∇f_1(x)‖. "
        "*Zero guess*: ‖D‖_F, the distance of a guess of zeros, which needs no attack."
    )
    columns = ("data", "partition", "method", "taken for the gradient", "distance before", "after", "change",
               "mismatch left", "off the gradient", "zero guess")  # fmt: skip
    start, labels = variant
    title = f"DLG from a {start} start, labels {'known' if labels == 'known' else 'as soft unknowns'}"
    return ResultTable(f"dlg-{start}-{labels}", title, columns, rows, note)


def _total_table(found: Attacks) -> ResultTable:
    rows = [
        [case[0].upper(), case[1], METHODS[case[2]], off, found.off[*case, "total"][0],
         found.change(case, "total", found.variants[0]),
         found.change((*case[:2], "dsgd"), "gradient", found.variants[0])]
        for case, [off] in found.last.items()
    ]  # fmt: skip
    columns = ("data", "partition", "method", "Σ Δφ off the last local gradient", "off the gradient at x",
               "DLG on Σ Δφ", "DLG on DSGD")  # fmt: skip
    note = "Relative distances, in double precision. The change is that of ‖D̂ − D‖_F by the paper's attack."
    return ResultTable("running-sum", "What a server that adds up a client's Δφ has at M = 1", columns, rows, note)


def _draw(found: Attacks) -> Drawing:
    methods = list(METHODS)[:5]
    panels: list[Panel] = []
    for data in dict.fromkeys(key[0] for key in found.rows):
        marks = []
        for index, method in enumerate(methods):
            for target, line in LINES.items():
                key = (data, PARTITIONS[0], method, target, *found.variants[0])
                if key in found.curve:
                    curve = np.array(found.curve[key])
                    look = line_of(method, marker=True, markevery=(index, 5), linestyle=line)
                    marks.append(mark("plot", np.linspace(0, ATTACK_STEPS, len(curve)), curve / curve[0], **look))
        marks.append(mark("axhline", 1, color="0.5", linewidth=0.8, zorder=0))
        first = {} if panels else {"ylabel": r"$\|\hat{D} - D\|_F$ over its start"}
        panels.append(Panel(marks, {"title": data.upper(), "xlabel": "step of the attack", **first}))
    many = len(panels) > 1
    styles: dict[Any, str] = {
        "-": "the gradient sent, or (x⁺ − x)/(ηL) as printed", "--": f"{TARGETS['signed']}, a gradient's sign",
        ":": TARGETS["total"],
    }  # fmt: skip
    forms = [handle(color="0.4", linestyle=line, label=name) for line, name in styles.items()]
    return draw(
        [panels], (max(3.4 * len(panels), 6) + 0.6, 4.2),
        legend={"loc": "outside lower center", "ncols": 5 if many else 3},
        handles={METHODS[m]: handle(**line_of(m, marker=True, linestyle="-")) for m in methods},
        finish=lambda drawing: drawing.legend(handles=forms, loc="outside upper center", ncols=3 if many else 1),
    )  # fmt: skip


STUDY = Study(
    "fig6", "Figure 6: leakage from gradients (DLG)", jobs, conclude, tuple(ETA), place=9,
    keys={"targets": "target", "start": "start", "labels": "labels"},
)  # fmt: skip
