"""Figure 6: the attack DLG on five methods, and on what LoSAC and SCAFFOLD send in all.

The paper's attack is gradient descent on ‖∇f_i(x; D̃) − observed‖². It leaves open where the guess D̃ starts (here:
standard normal, and uniform on [0, 1]), whether the labels are known (here: yes, and as soft unknowns besides), how the
data is divided (here: sorted by label, and at random) and L (here: 5). The printed quantity (x⁺ − x)/(ηL) is *minus* a
gradient, so that the attack is run with the printed and with the right sign.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
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
from losac.reproduce.parts.fig6_claims import claims
from losac.reproduce.problems import algorithm, mean_or_none, paper_data
from losac.reproduce.study import Figure, Findings, Job, Measured, Options, Study, Table
from losac.simulation.engine import precision
from losac.task import Task, classification
from losac.trees import Array, Tree, scale, squared_norm, sub

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

CLIENTS, ROUND, VICTIM, LOCAL_STEPS = 100, 5, 0, 5
ATTACK_STEPS, ATTACK_STEP = 100, 1e-3
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
}
TARGETS = {
    "gradient": "the gradient sent",
    "printed": "(x⁺ − x)/(ηL), as printed",
    "signed": "(x − x⁺)/(ηL)",
    "total": "the sum of all Δφ or Δc sent",
    "nothing": "zero, whatever was sent",
}
LINES = {"gradient": "-", "printed": "-", "signed": "--", "total": ":"}
VARIANTS = (("normal", "known"), ("uniform", "known"), ("normal", "soft"))
PARTITIONS = ("sorted", "iid")


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
    chosen = algorithm(method.removesuffix("-1"), step_size=ETA[data], local_steps=steps, blocks=1)
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
    if method != "fedavg":
        found["total"] = telescoped(seen)
    return found


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
        first = {"data": draw(jax.random.key(seed), truth.shape, truth.dtype)}
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


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Say what the attack gets in each case."""
    cases = {tuple(one.arguments[k] for k in ("data", "partition", "method")): one.result for one in measured}
    found = claims(cases, METHODS)
    first = next(iter(cases.values()))
    tables = [_table(cases, *variant, name) for name, variant in _variants(first)] + [_total_table(cases)]
    caption = (
        "Distance of the attacker's guess D̂ from a client's data D over the steps of the paper's attack, as a share of "
        "its start: above 1 the guess moves away. Colours are methods, line styles what is taken for the gradient; "
        "data sorted by label, known labels, mean over the seeds of a normal start."
    )
    figures = [Figure("fig6", caption, lambda: _draw(cases))]
    return Findings(found.summary, found.claims, tables, figures)


def _variants(case: Mapping[str, Any]) -> list[tuple[str, tuple[str, str]]]:
    attacks = next(iter(case["targets"].values()))["attacks"]
    return [(f"{a['start']}-{a['labels']}", (a["start"], a["labels"])) for a in attacks]


def attack_of(target: Mapping[str, Any], start: str, known: str) -> Mapping[str, Any]:
    """Return one variant of the attacks on a target."""
    found: Mapping[str, Any] = next(a for a in target["attacks"] if (a["start"], a["labels"]) == (start, known))
    return found


def _table(cases: Mapping[Any, Any], start: str, known: str, name: str) -> Table:
    rows = []
    for (data, partition, method), case in cases.items():
        for target, found in case["targets"].items():
            attack = attack_of(found, start, known)
            before, after = (mean_or_none(attack[key]) for key in ("from", "to"))
            rows.append(
                [data.upper(), partition, METHODS[method], TARGETS[target], before and f"{before:.2f}",
                 "diverged" if after is None else f"{after:.2f}", _change(before, after), attack["matched"],
                 found["distance to the gradient"], f"{case['norm']:.1f}"]
            )  # fmt: skip
    note = (
        f"{ATTACK_STEPS} steps of length {ATTACK_STEP:g}, means over the seeds of the start. *Mismatch left*: final "
        "over first value of what the attack minimises. *Off the gradient*: ‖observed − ∇f_1(x)‖/‖∇f_1(x)‖. "
        "*Zero guess*: ‖D‖_F, the distance of a guess of zeros, which needs no attack."
    )
    columns = ("data", "partition", "method", "taken for the gradient", "distance before", "after", "change",
               "mismatch left", "off the gradient", "zero guess")  # fmt: skip
    title = f"DLG from a {start} start, labels {'known' if known == 'known' else 'as soft unknowns'}"
    return Table(f"dlg-{name}", title, columns, rows, note)


def _total_table(cases: Mapping[Any, Any]) -> Table:
    rows = []
    for (data, partition, method), case in cases.items():
        if not method.startswith("losac"):
            continue
        start, known = _variants(case)[0][1]
        direct = attack_of(cases[data, partition, "dsgd"]["targets"]["gradient"], start, known)
        summed = case["targets"]["total"]
        ours, theirs = attack_of(summed, start, known), direct
        rows.append(
            [data.upper(), partition, METHODS[method], case["total against the last gradient"],
             summed["distance to the gradient"], _change(mean_or_none(ours["from"]), mean_or_none(ours["to"])),
             _change(mean_or_none(theirs["from"]), mean_or_none(theirs["to"]))]
        )  # fmt: skip
    columns = ("data", "partition", "method", "Σ Δφ off the last local gradient", "off the gradient at x",
               "DLG on Σ Δφ", "DLG on DSGD")  # fmt: skip
    note = "Relative distances, in double precision. The change is that of ‖D̂ − D‖_F by the paper's attack."
    return Table("running-sum", "What a server that adds up a client's Δφ has at M = 1", columns, rows, note)


def _change(before: float | None, after: float | None) -> str | None:
    return None if before is None or after is None else f"{100 * (after / before - 1):+.2f} %"


def _draw(cases: Mapping[Any, Any]) -> Drawing:
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D

    from losac.reproduce.looks import look_of

    sets = list(dict.fromkeys(key[0] for key in cases))
    drawing = Drawing((max(3.4 * len(sets), 6) + 0.6, 4.2), layout="constrained")
    for panel, data in zip(np.atleast_1d(drawing.subplots(1, len(sets))), sets):
        for index, method in enumerate(list(METHODS)[:5]):
            targets = cases[data, PARTITIONS[0], method]["targets"]
            for target, line in LINES.items():
                if target not in targets:
                    continue
                curve: Any = np.array(targets[target]["attacks"][0]["curve"], float)
                look = look_of(method)
                panel.plot(
                    np.linspace(0, ATTACK_STEPS, len(curve)), curve / curve[0], color=look.colour, marker=look.marker,
                    markevery=(index, 5), markersize=4, linestyle=line,
                )  # fmt: skip
        panel.axhline(1, color="0.5", linewidth=0.8, zorder=0)
        panel.set(title=data.upper(), xlabel="step of the attack")
    drawing.axes[0].set_ylabel(r"$\|\hat{D} - D\|_F$ over its start")
    shown = [(look_of(method), METHODS[method]) for method in list(METHODS)[:5]]
    handles = [Line2D([], [], color=look.colour, marker=look.marker, markersize=4, label=name) for look, name in shown]
    styles: dict[Any, str] = {
        "-": "the gradient sent, or (x⁺ − x)/(ηL) as printed", "--": f"{TARGETS['signed']}, a gradient's sign",
        ":": TARGETS["total"],
    }  # fmt: skip
    forms = [Line2D([], [], color="0.4", linestyle=line, label=name) for line, name in styles.items()]
    many = len(sets) > 1
    drawing.legend(handles=handles, loc="outside lower center", ncols=5 if many else 3)
    drawing.legend(handles=forms, loc="outside upper center", ncols=3 if many else 1)
    return drawing


STUDY = Study("fig6", "Figure 6: leakage from gradients (DLG)", jobs, conclude, tuple(ETA))
