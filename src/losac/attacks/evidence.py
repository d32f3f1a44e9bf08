"""The input of an attack: gradients of a client's rows, each with the model where it was computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from losac.algorithms.parts import parts
from losac.algorithms.privacy import Gaussian
from losac.attacks.algebra import Estimate
from losac.attacks.layers import labels_in, row_space
from losac.attacks.parts import ModelParts
from losac.attacks.replay import visits_of
from losac.attacks.transcript import Transcript
from losac.simulation.program.client import averages_by_weight
from losac.trees import Tree, map_trees, scale


class Evidence(NamedTuple):
    """Some gradients of a client's rows, stacked: G of them, of at most b rows each.

    Args:
      models, gradients: trees of arrays that lead with G; a gradient is the sum over its rows.
      rows: [G, b], which rows each is of.
      weights: [G, b], one for each real entry of ``rows`` and zero for padding.
      used: [G], zero for gradients that only fill up.
    """

    models: Tree
    gradients: Tree
    rows: Int[np.ndarray, "gradients rows"]
    weights: Float[np.ndarray, "gradients rows"]
    used: Float[np.ndarray, " gradients"]


class Gradient(NamedTuple):
    """The sum of the gradients of some rows at a model."""

    rows: tuple[int, ...]
    model: Tree
    value: Tree


def as_printed(seen: Transcript) -> Gradient:
    """Return the paper's attacker's estimate of the client's gradient at the last model that was sent.

    That is the gradient itself if the method sends it, else −Δx over the number and length of the local steps:
    their mean direction, which the paper writes with the opposite sign.
    """
    last = max(one.task.round for one in seen.exchanges)
    number = next(k for k, one in enumerate(seen.exchanges) if one.task.round == last)
    first, visit = seen.exchanges[number], visits_of(seen)[number]
    shapes = ModelParts(seen.start)
    received, sent = shapes.list(first.message), shapes.list(first.upload)
    if not received or not sent:
        raise ValueError(
            f"{seen.algorithm.label} does not send whole arrays of the model's shape, and no attack here is for it"
        )
    weight = 1.0 if averages_by_weight(visit.phase) else first.task.weight
    share = weight / (seen.rows if seen.reduction == "mean" else 1)
    value = getattr(first.upload, "gradient", None)
    if value is None and (visit.steps == 0 or seen.algorithm.label == "dsgd"):
        value = sent[0]
    elif value is None:
        value = scale(-1 / (float(visit.algorithm.step_size) * visit.steps), sent[0])
    return Gradient(tuple(range(seen.rows)), received[0], scale(1 / share, value))


def telescoped(seen: Transcript) -> Tree:
    """Return the sum of all that a client ever added to the server's sum over its clients: what it holds now.

    What a client keeps for corrections, the server has seen grow. LoSAC's Δφ add up to Σ_j y_ij (over NM in
    the exact scaling), at M = 1 to the client's last local gradient; SCAFFOLD's Δc to its mean gradient of the round,
    less what the server knows. () for methods without such a sum.
    """
    own = (one for one in seen.exchanges if seen.algorithm.phases()[one.task.phase_index] is seen.algorithm)
    credits = [seen.algorithm.at(one.task.round).credit(one.upload) for one in own]
    return map_trees(lambda *parts: sum(parts), *credits)


def noise_in(seen: Transcript) -> np.ndarray:
    """Return the standard deviation of the noise in every equation, which is no secret: that of a private upload."""
    shapes = ModelParts(seen.start)
    found: list[float] = []
    for one in seen.exchanges:
        phase = seen.algorithm.phases()[one.task.phase_index]
        fields = list(parts(one.upload).values())
        spread = np.zeros(len(fields))
        for noise in seen.algorithm.transforms_of(phase):
            if isinstance(noise, Gaussian) and not noise.on_the_sum:
                bounds = np.broadcast_to([float(bound) for bound in noise.bounds], spread.shape)
                spread = np.hypot(spread, float(noise.noise_multiplier) * len(fields) ** 0.5 * bounds)
        found += [float(size) for size, field in zip(spread, fields) for _ in shapes.list(field)]
    return np.array(found)


def best_of(estimates: Sequence[Estimate], each: int) -> list[Gradient]:
    """Return the estimates to work on: of every set of rows the surest, ``each`` of them, far apart in time."""
    groups: dict[tuple[int, ...], list[Estimate]] = {}
    for one in estimates:
        groups.setdefault(one.unknown.rows, []).append(one)
    chosen = []
    for group in groups.values():
        surest = min((not one.exact, one.spread) for one in group)
        sure = [one for one in group if one.exact or (surest[0] and one.spread < 2 * surest[1] + 1e-3)]
        sure.sort(key=lambda one: one.unknown.step)
        chosen_steps = np.unique(np.linspace(len(sure) - 1, 0, min(each, len(sure))).round().astype(int))
        chosen += [sure[k] for k in chosen_steps]
    return [Gradient(one.unknown.rows, one.model, one.gradient) for one in chosen]


def stack(gradients: Sequence[Gradient], count: int, width: int, dtype: str = "float32") -> Evidence:
    """Put gradients together, filled up to a number of them and of rows, to attack clients at once."""
    fill = [*gradients, *[gradients[0]] * (count - len(gradients))]
    rows, weights = np.zeros((count, width), np.int32), np.zeros((count, width), dtype)
    for g, one in enumerate(fill):
        rows[g, : len(one.rows)], weights[g, : len(one.rows)] = one.rows, 1
    models, values = (
        jax.tree.map(lambda *leaves: np.stack(leaves).astype(dtype), *trees)
        for trees in ([one.model for one in fill], [one.value for one in fill])
    )
    return Evidence(models, values, rows, weights, (np.arange(count) < len(gradients)).astype(dtype))


def recovered_labels(gradients: Sequence[Gradient], rows: int) -> np.ndarray | None:
    """Return a label for every row, from the smallest sets of rows with a known gradient; None without biases.

    Rows within such a set are in no order. Rows without any known gradient get the label 0.
    """
    labels, known = np.zeros(rows, np.int32), np.zeros(rows, bool)
    for one in sorted(gradients, key=lambda one: len(one.rows)):
        open_rows = [row for row in one.rows if not known[row]]
        found = labels_in(one.value, len(one.rows))
        if found is None:
            return None
        if len(open_rows) == len(one.rows):
            labels[open_rows], known[open_rows] = found, True
    return labels


def span_of(gradients: Sequence[Gradient], inputs: int, rows: int) -> np.ndarray | None:
    """Return a basis of what the gradients reveal of the span of a client's rows; None without a first dense layer."""
    return row_space([one.value for one in gradients], inputs, rows)
