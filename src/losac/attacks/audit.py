"""What the messages of one method give away about some clients, measured against their real data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from losac._checks import check_choice, check_count, check_list
from losac._options import about
from losac.algorithms.contract import Algorithm
from losac.attacks.algebra import Estimate, NonlinearMethodError, solve, system_of
from losac.attacks.attack import ATTACKS, Data, Recovered, run
from losac.attacks.evidence import Gradient, as_printed, best_of, noise_in, recovered_labels, span_of, stack, telescoped
from losac.attacks.layers import quotients
from losac.attacks.measures import label_accuracy, likeness, relative_error, span_angle
from losac.attacks.replay import true_gradients
from losac.attacks.sums import pooled, watch_sum
from losac.attacks.transcript import Transcript, mean_gradient, watch
from losac.attacks.unrolled import run_unrolled
from losac.simulation.engines.resident import precision
from losac.simulation.options import Dtype
from losac.task import Task
from losac.trees import scale


class Audit(NamedTuple):
    """What a method gives away: means over the attacked clients, except for rows, which are counted.

    Args:
      gradients: how many gradients a client computed.
      exact: how many of these the server knows exactly; none where uploads are clipped, noisy or compressed.
      exact_error: the largest relative error of those, in the numbers that were really sent; None: there are none.
      printed_error: of the paper's attacker, for the gradient at the last model that was sent.
      error: of the server's best estimate of a gradient at that model.
      labels: the share of labels recovered.
      angle: between the client's rows and what is known of their span, in degrees.
      psnr: of the recovered rows in their best order, attack by attack, with the controls: the median over all rows,
        since a mean of decibels is that of the few best.
      recognised: the share of rows with at least RECOGNISED decibels.
      pictures: rows of the first client, real and as each attack recovers them.
    """

    gradients: int
    exact: int
    exact_error: float | None
    printed_error: float
    error: float | None
    labels: float | None
    angle: float
    psnr: Mapping[str, float]
    recognised: Mapping[str, float]
    pictures: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Plan:
    """How to attack: the options of ``losac attack run``."""

    attacks: tuple[str, ...] = field(
        default=("inverting", "rowspace"),
        metadata=about(
            "On the server's best estimates: dlg, dlg-adam, idlg, inverting, paper, rowspace.", complete="attack_names"
        ),
    )
    printed: tuple[str, ...] = field(
        default=("paper", "inverting"),
        metadata=about(
            "The same names, on the gradient as the paper's attacker estimates it.", complete="attack_names"
        ),
    )
    unrolled: int = field(default=0, metadata=about("First rounds to differentiate through; 0: none.", min=0))
    rounds: int = field(default=5, metadata=about("Rounds that the server watches.", min=1))
    each: int = field(default=2, metadata=about("Gradients of each set of rows that an attack uses.", min=1))
    restarts: int = field(default=1, metadata=about("Starts of every attack; the best counts.", min=1))
    steps: int | None = field(default=None, metadata=about("Steps of every attack.", min=1, default="its own"))


ORDINARY = Plan()
RECOGNISED = 20.0
"""Decibels that make a digit easy to recognise; the mean of its class has about 13."""
UNROLLED = 1
"""How many clients are attacked through their local steps, each by a separate program."""


def audit(
    task: Task,
    algorithm: Algorithm,
    data: Data,
    plan: Plan = ORDINARY,
    *,
    clients: Sequence[int] = (0,),
    class_means: np.ndarray | None = None,
    clients_per_round: int | None = None,
    seed: int = 0,
    summed: bool = False,
) -> Audit:
    """Run a federation, attack what its server sees of some clients, and compare with their data.

    Args:
      task, algorithm, clients_per_round, seed: as for :func:`losac.simulate`.
      data: what the attacker knows of the data.
      plan: how to attack.
      clients: the ones to attack.
      class_means: [classes, …], from public data: the control, which needs no attack.
      summed: whether the server sees only the sum of what these clients send, as with secure aggregation, and is after
        the rows of any of them.
    """
    _check(plan)
    if summed:
        seen = [watch_sum(task, algorithm, clients, rounds=plan.rounds, seed=seed)]
        real = [pooled(task, clients)]
    else:
        seen = watch(task, algorithm, clients, rounds=plan.rounds, clients_per_round=clients_per_round, seed=seed)
        real = [pooled(task, [i]) for i in clients]
    flat = [np.reshape(x, (len(x), -1)) for x, _ in real]
    if len({len(x) for x in flat}) > 1:
        raise ValueError(
            f"clients={list(clients)} have different numbers of rows, and are attacked together: use attacks.cut, or "
            "one audit for each"
        )
    estimates = [_estimates(one) for one in seen]
    printed = [as_printed(one) for one in seen]
    known = [best_of(found, plan.each) if found else [one] for found, one in zip(estimates, printed)]
    inputs = flat[0].shape[1]
    guessed = [recovered_labels(one, len(x)) for one, x in zip(known, flat)]
    labels = np.stack([np.zeros(len(y), np.int32) if g is None else g for g, (_, y) in zip(guessed, real)])
    spans = [span_of(one, inputs, len(x)) for one, x in zip(known, flat)]
    found: dict[str, list[np.ndarray]] = {}
    if class_means is not None:
        found["class mean"] = [np.reshape(class_means[y], x.shape) for x, (_, y) in zip(flat, real)]
    found |= _reconstruct(task, seen, printed, known, labels, spans, data, plan, seed)
    low, high = data.box or (float(min(x.min() for x in flat)), float(max(x.max() for x in flat)))
    nothing = (low + high) / 2 if low < 0 else low
    alike = {name: [likeness(r, x, high - low, nothing) for r, x in zip(rows, flat)] for name, rows in found.items()}
    decibels = {name: np.concatenate([one.psnr for one in ones]) for name, ones in alike.items()}
    exact = [_exact_error(task, one, e, x, y) for one, e, (x, y) in zip(seen, estimates, real) if e]
    errors = [_error(task, one, e, x, y) for one, e, (x, y) in zip(seen, estimates, real) if e]
    return Audit(
        len(estimates[0]),
        sum(one.exact for one in estimates[0]),
        max((e for e in exact if e is not None), default=None),
        float(np.mean([_off(task, one, x, y) for one, (x, y) in zip(printed, real)])),
        float(np.mean(errors)) if errors else None,
        None if guessed[0] is None else float(np.mean([label_accuracy(g, y) for g, (_, y) in zip(labels, real)])),
        float(np.mean([span_angle(span, x) for span, x in zip(spans, flat)])),
        {name: float(np.median(values)) for name, values in decibels.items()},
        {name: float(np.mean(values >= RECOGNISED)) for name, values in decibels.items()},
        {"real": flat[0]} | {name: _in_order(found[name][0], alike[name][0].order, nothing) for name in found},
    )


def _check(plan: Plan) -> None:
    """Refuse a plan with unknown attacks."""
    for name in ("attacks", "printed"):
        for attack in check_list(f"plan: {name}", getattr(plan, name), "a tuple of names of attacks"):
            check_choice(f"plan: {name}", attack, ATTACKS)
    check_count("plan: unrolled", plan.unrolled, 0)
    for name in ("rounds", "each", "restarts"):
        check_count(f"plan: {name}", getattr(plan, name))
    if plan.steps is not None:
        check_count("plan: steps", plan.steps)


def telescoping_error(
    task: Task, algorithm: Algorithm, client: int, *, rounds: int, seed: int = 0, dtype: Dtype = "float32"
) -> float:
    """Return how far all that a client sent, added up, is from the last gradient that it computed, relative to that.

    For LoSAC in the paper's scaling with one block they are the same for any number of local steps.
    """
    (seen,) = watch(task, algorithm, [client], rounds=rounds, seed=seed, dtype=dtype)
    with precision(np.dtype(dtype)):
        x, y = (np.asarray(a) for a in task.data.client(client))
        _, _, last = true_gradients(seen, task.loss, x.astype(dtype), y)[-1]
    return relative_error(telescoped(seen), last)


def _estimates(seen: Transcript) -> list[Estimate]:
    """Return what the server infers about the gradients; nothing if the method is not linear."""
    try:
        found = solve(system_of(seen), noise_in(seen))
    except NonlinearMethodError:
        return []
    return [one._replace(exact=False) for one in found] if seen.algorithm.transforms() else found


def _reconstruct(
    task: Task,
    seen: Sequence[Transcript],
    printed: Sequence[Gradient],
    known: Sequence[Sequence[Gradient]],
    labels: np.ndarray,
    spans: Sequence[np.ndarray | None],
    data: Data,
    plan: Plan,
    seed: int,
) -> dict[str, list[np.ndarray]]:
    """Return the rows that every attack recovers, client by client."""
    rows, inputs = labels.shape[1], int(np.prod(data.shape))
    found = {"analytic": [quotients([g.value for g in one], inputs, rows, data.box) for one in known]}
    spanned = all(span is not None and len(span) for span in spans)

    def attack(name: str, gradients: Sequence[Sequence[Gradient]]) -> list[np.ndarray]:
        count, width = max(map(len, gradients)), max(len(g.rows) for one in gradients for g in one)
        evidence = [stack(one, count, width) for one in gradients]
        chosen = ATTACKS[name] if plan.steps is None else replace(ATTACKS[name], steps=plan.steps)
        return _flat(run(chosen, task.loss, evidence, labels, data, spans=spans, restarts=plan.restarts, seed=seed))

    for name in plan.printed:
        found[f"{name}, as printed"] = attack(name, [[one] for one in printed])
    for name in plan.attacks:
        if spanned or not ATTACKS[name].spanned:
            found[name] = attack(name, known)
    if plan.unrolled:
        chosen = ATTACKS["rowspace" if spanned else "inverting"]
        chosen = chosen if plan.steps is None else replace(chosen, steps=plan.steps)
        found["unrolled"] = [
            _flat(run_unrolled(chosen, task.loss, one.first_rounds(plan.unrolled), y, data, span=span,
                               restarts=plan.restarts, seed=seed))[0]
            for one, y, span in zip(seen[:UNROLLED], labels, spans)
        ]  # fmt: skip
    return found


def _flat(found: Recovered) -> list[np.ndarray]:
    return [np.reshape(rows, (len(rows), -1)) for rows in found.samples]


def _in_order(recovered: np.ndarray, order: np.ndarray, nothing: float) -> np.ndarray:
    """Return recovered rows in the order of the real ones, with a value for those that were not recovered."""
    blank = np.full((1, recovered.shape[1]), nothing)
    return np.concatenate([recovered, blank])[order]


def _true(task: Task, gradient: Gradient, x: Any, y: Any) -> Any:
    rows = np.array(gradient.rows)
    return scale(len(rows), mean_gradient(task.loss)(gradient.model, (x[rows], y[rows])))


def _off(task: Task, gradient: Gradient, x: Any, y: Any) -> float:
    return relative_error(gradient.value, _true(task, gradient, x, y))


def _error(task: Task, seen: Transcript, estimates: Sequence[Estimate], x: Any, y: Any) -> float:
    """Return the error of the surest estimate of a gradient at the last model that the server sent."""
    last = max(one.task.round for one in seen.exchanges)
    there = [one for one in estimates if seen.exchanges[one.unknown.exchange].task.round == last]
    at = [one for one in there if one.unknown.broadcast] or there
    best = min(at, key=lambda one: (not one.exact, one.spread))
    return _off(task, Gradient(best.unknown.rows, best.model, best.gradient), x, y)


def _exact_error(task: Task, seen: Transcript, estimates: Sequence[Estimate], x: Any, y: Any) -> float | None:
    """Return the largest error of the gradients that the server knows exactly, against those that were computed."""
    computed: dict[tuple[Any, ...], list[Any]] = {}
    for query, _, gradient in true_gradients(seen, task.loss, x, y):
        computed.setdefault((query.rows, query.step), []).append(
            jax.tree.map(lambda g, f=query.factor: np.asarray(g) / f, gradient)
        )
    errors = [
        min(relative_error(one.gradient, true) for true in computed[one.unknown.rows, one.unknown.step])
        for one in estimates
        if one.exact
    ]
    return max(errors, default=None)
