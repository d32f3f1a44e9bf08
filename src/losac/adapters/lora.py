"""Low-rank adapters (LoRA) under JAX models: W stays frozen, and W + sBA is used.

Reference: E. J. Hu et al., *LoRA: low-rank adaptation of large language models*, ICLR 2022.
https://arxiv.org/abs/2106.09685
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import jax
import jax.numpy as jnp

from losac import _random
from losac._checks import POSITIVE, check_choice, check_count, check_flag, check_number
from losac._seeds import check_seed
from losac.adapters import lowrank
from losac.adapters.lowrank import LowRank
from losac.models.frozen import Trainable, dotted, is_chosen, on_frozen
from losac.models.trained import Trained
from losac.trees import Array, Tree, check_params

Factors = Mapping[str, Mapping[str, Array]]
"""By the name of a matrix: ``{"a": A, "b": B}``, [r, inputs] and [outputs, r]."""
Train = Literal["both", "b"]


@dataclass(frozen=True, eq=False)
class Lora(Trained):
    """A model on frozen weights with low-rank adapters; made by :func:`lora`.

    Its parameters are ``{"a": A, "b": B}`` by the name of the matrix that they adapt, and what else is trained by its
    own name.
    """

    scale: float = field(default=1.0, kw_only=True)
    outputs_first: bool = field(default=False, kw_only=True)
    adapted: tuple[str, ...] = field(default=(), kw_only=True)
    structure: Any = field(default=None, kw_only=True)

    def factors(self, params: Tree, frozen: Tree = None) -> dict[str, dict[str, Array]]:
        """Return A and B of every adapted matrix, whichever of them are trained."""
        fixed = (self.frozen if frozen is None else frozen).get("a", {})
        return {name: {"a": fixed[name], **params[name]} if fixed else dict(params[name]) for name in self.adapted}

    def added(self, factors: Factors, frozen: Tree = None) -> Tree:
        """Return the frozen weights with sBA added to each adapted matrix, as if it had been there from the start."""
        now = self.frozen if frozen is None else frozen
        base = dict(now["base"])
        for name, pair in factors.items():
            low = pair["b"] @ pair["a"]
            change = self.scale * (low if self.outputs_first else low.T)
            base[name] = base[name] + change.astype(base[name].dtype)
        return {**now, "base": base}

    def merged(self, params: Tree, frozen: Tree = None) -> Tree:
        """Return all parameters of the model without adapters, sBA included, in its own structure."""
        base = self.added(self.factors(params, frozen), frozen)["base"]
        whole = {**base, **{name: part for name, part in params.items() if name not in self.adapted}}
        return jax.tree.unflatten(self.structure[1], [whole[name] for name in self.structure[0]])


def lora(
    model: Any,
    rank: int,
    targets: Trainable = "*",
    *,
    params: Tree = None,
    alpha: float | None = None,
    train: Train = "both",
    also: Trainable | None = None,
    outputs_first: bool = False,
    seed: int = 0,
) -> Lora:
    r"""Return a model that trains low-rank adapters of another model's matrices, which are frozen.

    .. math:: W = W_0 + \frac{\alpha}{r} B A, \qquad B = 0 \text{ at the start}

    The frozen weights are an argument of the compiled program, are shared by all clients and are never sent
    (:class:`losac.Task`, ``frozen``). W is never formed: a matrix product with it costs one with W₀ and two thin ones.

    Args:
      model: any model: an object with ``init(key)`` and a call ``model(params, x)``, such as those of
        :mod:`losac.models`, ``from_flax``, ``from_nnx`` and ``from_equinox``.
      rank: r.
      targets: which matrices get an adapter: names such as ``"blocks.*.query"``, several of them, or a function of a
        name and an array; all matrices by default. A name stands for all below it.
      params: the pretrained weights W₀; the model's own, drawn with a fixed key, if not given.
      alpha: α; r by default, which makes the factor 1.
      train: ``"both"``; or ``"b"``, with A frozen as it is drawn from ``seed`` (FFA-LoRA): the model is then linear in
        what is sent, and the mean of the clients' adapters is the adapter of their mean.
      also: parameters that are trained as they are, such as a new head.
      outputs_first: matrices are [outputs, inputs], as in Equinox and PyTorch, not [inputs, outputs] as in Flax.
      seed: of A where it is frozen; otherwise the run's seed draws it.

    >>> import losac
    >>> model = lora(losac.models.two_nn(64, 10, hidden=32), rank=2)
    >>> losac.classification(model, losac.data.load("digits", clients=5))
    Task(digits: 5 clients, 1438 samples; f_i = sum, 404 parameters on 3466 frozen ones, metrics: accuracy)
    """
    check_count("rank", rank)
    check_choice("train", train, ("both", "b"))
    check_flag("outputs_first", outputs_first)
    scale = 1.0 if alpha is None else check_number("alpha", alpha, POSITIVE) / rank
    given = model.init(_random.any_key()) if params is None else params
    check_params(given)
    flat, structure = jax.tree_util.tree_flatten_with_path(given)
    leaves = {dotted(path): jnp.asarray(leaf) for path, leaf in flat}
    adapted = _adapted(leaves, targets)
    beside = {} if also is None else {name: a for name, a in leaves.items() if is_chosen(also, name, a)}
    if both := sorted(set(beside) & set(adapted)):
        raise ValueError(f"{both[0]!r} is named by targets and by also: train it as it is, or by an adapter")
    sizes = {name: leaves[name].shape if outputs_first else leaves[name].shape[::-1] for name in adapted}
    frozen: dict[str, Any] = {"base": {name: a for name, a in leaves.items() if name not in beside}}
    if train == "b":
        frozen["a"] = _drawn(_random.run_key(check_seed(seed)), sizes, rank)

    def initialise(key: Array) -> Tree:
        drawn = {} if train == "b" else _drawn(key, sizes, rank)
        zero = {name: jnp.zeros((outputs, rank)) for name, (outputs, _) in sizes.items()}
        own = {name: {"b": zero[name]} | ({"a": drawn[name]} if drawn else {}) for name in adapted}
        return {**own, **beside}

    def apply(function: Callable[[Tree], Any], params: Tree, frozen: Tree) -> Any:
        whole = {**frozen["base"], **{name: params[name] for name in beside}}
        for name in adapted:
            a, b = frozen["a"][name] if train == "b" else params[name]["a"], params[name]["b"] * scale
            left, right = (b, a) if outputs_first else (a.T, b.T)
            whole[name] = LowRank(whole[name], left, right)
        return lowrank.call(function, jax.tree.unflatten(structure, [whole[name] for name in leaves]))

    return Lora(
        initialise,
        **on_frozen(model, apply, frozen),
        scale=scale,
        outputs_first=outputs_first,
        adapted=adapted,
        structure=(tuple(leaves), structure),
    )


def _adapted(leaves: Mapping[str, Array], targets: Trainable) -> tuple[str, ...]:
    """Return the names of the matrices that get an adapter."""
    matrices = {name: a for name, a in leaves.items() if a.ndim == 2}
    found = tuple(name for name, a in matrices.items() if is_chosen(targets, name, a))
    if not found:
        others = [name for name, a in leaves.items() if a.ndim > 2 and is_chosen(targets, name, a)]
        why = f" ({others[0]} has {leaves[others[0]].ndim} axes; an adapter needs 2)" if others else ""
        raise ValueError(f"targets={targets!r} selects no matrix{why}; there is {', '.join(matrices) or 'none'}")
    return found


def _drawn(key: Array, sizes: Mapping[str, tuple[int, ...]], rank: int) -> dict[str, Array]:
    """Return A of every matrix: uniform within 1/√inputs, the start of PEFT's adapters."""
    keys = _random.leaf_keys(key, len(sizes))
    return {
        name: jax.random.uniform(own, (rank, inputs), minval=-(inputs**-0.5), maxval=inputs**-0.5)
        for own, (name, (_, inputs)) in zip(keys, sizes.items())
    }
