"""Attacks that recover data from what is known of gradients, for several clients and starts at once.

References: L. Zhu, Z. Liu, S. Han, *Deep leakage from gradients*, NeurIPS 2019 (``dlg``); J. Geiping et al., *Inverting
gradients: how easy is it to break privacy in federated learning?*, NeurIPS 2020 (``inverting``). ``paper`` is the plain
gradient descent of H. Chen et al., *LoSAC*. ``rowspace`` is ``inverting`` within the span of the client's rows, which
the gradients of a first dense layer give away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from losac import _random
from losac.attacks.evidence import Evidence
from losac.attacks.search import search
from losac.trees import Array, Tree, map_trees


@dataclass(frozen=True)
class Attack:
    """How to look for data with the observed gradients.

    Args:
      distance: of gradients: ``"l2"``, squared and relative, ``"cosine"``, or ``"sum"``, squared and absolute.
      optimizer: ``"gd"``, ``"adam"`` or ``"lbfgs"``.
      step_size, steps: of the optimiser; except in plain descent the step falls to zero, as a cosine.
      signed: use only the signs of the derivatives.
      variation: the weight of the total variation, if the data are images.
      boxed: keep to the range of the data.
      spanned: keep to the span that the gradients reveal.
      start: ``"uniform"`` in the range of the data, or ``"normal"``.
      labels: ``"given"`` ones are used unchanged; ``"soft"`` ones are unknowns too.
    """

    distance: Literal["l2", "cosine", "sum"] = "l2"
    optimizer: Literal["gd", "adam", "lbfgs"] = "adam"
    step_size: float = 0.1
    steps: int = 300
    signed: bool = False
    variation: float = 0.0
    boxed: bool = True
    spanned: bool = False
    start: Literal["uniform", "normal"] = "uniform"
    labels: Literal["given", "soft"] = "given"


ATTACKS: dict[str, Attack] = {
    "paper": Attack("sum", "gd", 1e-3, 100, boxed=False, start="normal"),
    "dlg": Attack("l2", "lbfgs", steps=150, boxed=False, labels="soft"),
    "dlg-adam": Attack("l2", "adam", 0.05, labels="soft"),
    "idlg": Attack("l2", "lbfgs", steps=150, boxed=False),
    "inverting": Attack("cosine", "adam", 0.1, signed=True, variation=1e-2),
    "rowspace": Attack("cosine", "adam", 0.1, signed=True, spanned=True),
}


class Data(NamedTuple):
    """What the attacker knows of the data: a row's shape and range, how many classes, and whether it is an image."""

    shape: tuple[int, ...]
    box: tuple[float, float] | None = None
    classes: int | None = None
    image: tuple[int, int] | None = None


class Recovered(NamedTuple):
    """What an attack found, for each client: the rows of its best start, their labels, and how well they match."""

    samples: np.ndarray
    labels: np.ndarray
    mismatch: np.ndarray


def run(
    attack: Attack,
    loss: Callable[..., Any],
    evidence: Sequence[Evidence],
    labels: np.ndarray,
    data: Data,
    *,
    spans: Sequence[np.ndarray | None] | None = None,
    restarts: int = 1,
    seed: int = 0,
) -> Recovered:
    """Attack some clients at once.

    Args:
      attack: how.
      loss: the mean loss of a batch, as in a task.
      evidence: one for each client, of the same shapes.
      labels: [clients, rows], known or recovered; with soft labels only their number counts.
      data: what is known of the data.
      spans: of each client's rows, if the attack keeps to them; None: not known.
      restarts: the number of starts; the best one counts.
      seed: of the starts.
    """
    check_classes(attack, data)
    stacked = map_trees(lambda *leaves: np.stack(leaves), *evidence)
    bases = bases_of(attack, spans, len(evidence), int(np.prod(data.shape)))
    keys = _random.start_keys(seed, (len(evidence), restarts))
    return best_of_starts(*_run(attack, loss, data, stacked, np.asarray(labels), bases, keys))


def best_of_starts(samples: Array, labels: Array, mismatch: Array) -> Recovered:
    """Return the result of every client's best start; arrays lead with clients and starts."""
    found = [np.asarray(a) for a in (samples, labels, mismatch)]
    best = np.argmin(np.where(np.isfinite(found[2]), found[2], np.inf), axis=1)
    return Recovered(*(a[np.arange(len(best)), best] for a in found))


def check_classes(attack: Attack, data: Data) -> None:
    """Refuse to look for labels without knowing how many there may be."""
    if attack.labels == "soft" and data.classes is None:
        raise ValueError(
            "this attack looks for the labels too, and must know how many classes there are: Data(classes=…)"
        )


def bases_of(attack: Attack, spans: Any, clients: int, inputs: int) -> np.ndarray:
    """Return a basis for each client, filled up with zeros; without any, an empty one."""
    if not attack.spanned:
        return np.zeros((clients, 0, inputs), np.float32)
    if spans is None or any(span is None for span in spans):
        raise ValueError(
            "this attack keeps to the span of the client's rows, which only the gradients of a first dense layer tell; "
            "use 'inverting' for this model"
        )
    most = max(len(span) for span in spans)
    return np.stack([np.pad(span, ((0, most - len(span)), (0, 0))) for span in spans]).astype(np.float32)


@partial(jax.jit, static_argnums=(0, 1, 2))
def _run(
    attack: Attack, loss: Any, data: Data, evidence: Evidence, labels: Array, bases: Array, keys: Array
) -> tuple[Array, Array, Array]:
    def one(evidence: Evidence, labels: Array, basis: Array, key: Array) -> tuple[Array, Array, Array]:
        return search_one(attack, data, partial(distance, attack, loss, evidence), labels, basis, key)

    return jax.vmap(jax.vmap(one, in_axes=(None, None, None, 0)))(evidence, labels, bases, keys)


def search_one(
    attack: Attack, data: Data, gap: Callable[[Array, Array], Array], labels: Array, basis: Array, key: Array
) -> tuple[Array, Array, Array]:
    """Look for the rows of one client from one start; return them, their labels and the mismatch.

    ``gap`` says how far rows and labels are from what was observed.
    """
    rows, dtype = labels.shape[0], basis.dtype
    low, high = data.box or (-1.0, 1.0)
    first, second = _random.guess_keys(key)
    if attack.start == "normal":
        x = jax.random.normal(first, (rows, *data.shape), dtype)
    else:
        x = jax.random.uniform(first, (rows, *data.shape), dtype, low, high)
    guess = {"x": x}
    if attack.labels == "soft":
        assert data.classes is not None
        guess["y"] = 0.01 * jax.random.normal(second, (rows, data.classes), dtype)

    def inside(x: Array) -> Array:
        return jnp.einsum("nd,rd,re->ne", x.reshape(rows, -1), basis, basis).reshape(x.shape)

    def mismatch(guess: Tree) -> Array:
        x = inside(guess["x"]) if attack.spanned else guess["x"]
        value = gap(x, guess.get("y", labels))
        if attack.spanned and data.box:
            value = value + (jnp.minimum(x - low, 0) ** 2 + jnp.maximum(x - high, 0) ** 2).mean()
        return value + attack.variation * _variation(x, data) if attack.variation else value

    def project(guess: Tree) -> Tree:
        return guess | {"x": jnp.clip(guess["x"], low, high)} if attack.boxed and data.box else guess

    trace = search(mismatch, guess, optimizer_of(attack), steps=attack.steps, signed=attack.signed, project=project)
    x = inside(trace.guess["x"]) if attack.spanned else trace.guess["x"]
    if attack.boxed and data.box:
        x = jnp.clip(x, low, high)
    return x, trace.guess["y"].argmax(-1) if "y" in trace.guess else labels, trace.mismatch[-1]


def optimizer_of(attack: Attack) -> Any:
    """Return the optimiser of an attack."""
    if attack.optimizer == "lbfgs":
        return optax.lbfgs(memory_size=20)
    if attack.optimizer == "gd":
        return optax.sgd(attack.step_size)
    return optax.adam(optax.cosine_decay_schedule(attack.step_size, attack.steps))


def distance(attack: Attack, loss: Any, evidence: Evidence, x: Array, y: Array) -> Array:
    """Return how far the gradients of a guess are from the observed ones, on average over these."""

    def one(model: Tree, observed: Tree, rows: Array, weights: Array) -> Array:
        found = jax.grad(lambda p: weights @ jax.vmap(lambda k: row_loss(loss, p, x[k], y[k]))(rows))(model)
        return apart(attack.distance, found, observed)

    each = jax.vmap(one)(evidence.models, evidence.gradients, evidence.rows, evidence.weights)
    return (evidence.used * each).sum() / evidence.used.sum()


def apart(kind: str, found: Tree, observed: Tree) -> Array:
    """Return the distance of two gradients: squared, relative to the second, or by their angle."""
    a, b = (jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)]) for tree in (found, observed))
    if kind == "cosine":
        return 1 - (a @ b) / jnp.sqrt(jnp.maximum((a @ a) * (b @ b), 1e-30))
    return ((a - b) ** 2).sum() / (1.0 if kind == "sum" else jnp.maximum(b @ b, 1e-30))


def row_loss(loss: Any, params: Tree, x: Array, y: Array) -> Array:
    """Return the loss of one row; if ``y`` is a vector of logits, the mean over the labels that these stand for."""
    if y.ndim == 0 or not jnp.issubdtype(y.dtype, jnp.floating):
        return loss(params, (x[None], y[None]))
    each = jax.vmap(lambda c: loss(params, (x[None], c[None])))(jnp.arange(y.shape[0]))
    return jax.nn.softmax(y) @ each


def _variation(x: Array, data: Data) -> Array:
    if data.image is None:
        return jnp.zeros((), x.dtype)
    pictures = x.reshape(-1, *data.image)
    return jnp.abs(jnp.diff(pictures, axis=1)).mean() + jnp.abs(jnp.diff(pictures, axis=2)).mean()
