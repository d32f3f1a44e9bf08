"""Part of a model stays as it is: what is trained is chosen by name, and the rest are frozen weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp

from losac import _random
from losac._checks import described
from losac.models.trained import Trained
from losac.trees import Array, Tree, check_params

Trainable = str | Sequence[str] | Callable[[str, Any], bool]
"""Names such as ``"head"`` or ``"*.bias"``, or ``function(name, array)``: what is trained."""


def freeze(model: Any, trainable: Trainable, params: Tree = None) -> Trained:
    """Return a model that trains some of another model's parameters on the others, which are frozen.

    The frozen ones are an argument of the compiled program: they are not sent, not differentiated and not kept for
    each client. All clients and all runs start from the same weights; the seed does not draw them.

    Args:
      model: any model: an object with ``init(key)`` and a call ``model(params, x)``.
      trainable: names of the parameters that are trained, such as ``"head"``, which stands for all below it, or with
        wildcards ``"*.bias"``; several of them; or a function of a name and an array. A name is the path in the
        parameters, with dots.
      params: the weights to start from, such as those of an earlier history; if not given, drawn with a fixed key.

    >>> import losac
    >>> two_layers = losac.models.two_nn(64, 10, hidden=16)
    >>> losac.classification(freeze(two_layers, "2"), losac.data.load("digits", clients=5))
    Task(digits: 5 clients, 1438 samples; f_i = sum, 170 parameters on 1312 frozen ones, metrics: accuracy)
    """
    given = model.init(_random.any_key()) if params is None else params
    check_params(given)
    flat, structure = jax.tree_util.tree_flatten_with_path(given)
    names = [dotted(path) for path, _ in flat]
    chosen = [is_chosen(trainable, name, leaf) for name, (_, leaf) in zip(names, flat)]
    if not any(chosen):
        raise ValueError(f"trainable={trainable!r} selects none of the parameters {', '.join(names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"two parameters have the same name among {', '.join(names)}")
    leaves = {name: jnp.asarray(leaf) for name, (_, leaf) in zip(names, flat)}
    trained = {name: leaves[name] for name, own in zip(names, chosen) if own}
    fixed = {name: leaves[name] for name, own in zip(names, chosen) if not own}

    def apply(function: Callable[[Tree], Any], params: Tree, frozen: Tree) -> Any:
        whole = {**frozen["base"], **params}
        return function(jax.tree.unflatten(structure, [whole[name] for name in names]))

    return Trained(lambda key: trained, **on_frozen(model, apply, {"base": fixed}))


def on_frozen(model: Any, apply: Callable[[Callable[[Tree], Any], Tree, Tree], Any], frozen: Tree) -> dict[str, Any]:
    """Return the parts of a model that calls another with parameters made of its own and of frozen weights.

    What the other model has frozen already stays frozen.

    Args:
      model: the other model.
      apply: ``apply(function, params, frozen)``: the function of the other model's parameters.
      frozen: the frozen weights by name.
    """
    inner = model if isinstance(model, Trained) else None
    more = {} if inner is None or inner.frozen is None else {"more": inner.frozen}

    def predict(params: Tree, state: Tree, x: Array, frozen: Tree) -> Array:
        if inner is None:
            return apply(lambda own: model(own, x), params, frozen)
        return apply(lambda own: inner(own, x, state, frozen.get("more")), params, frozen)

    def train(params: Tree, state: Tree, x: Array, key: Array, frozen: Tree) -> tuple[Array, Tree]:
        if inner is None:
            return predict(params, state, x, frozen), state
        return apply(lambda own: inner.trained(own, x, state, key, frozen.get("more")), params, frozen)

    state = None if inner is None else inner.state
    return {"predict": predict, "train": train, "state": state, "frozen": {**frozen, **more}}


def is_chosen(trainable: Any, name: str, leaf: Any) -> bool:
    """Whether a parameter is among those that are trained.

    >>> is_chosen("head", "head.kernel", None), is_chosen(["*.bias"], "head.kernel", None)
    (True, False)
    """
    if isinstance(trainable, str):
        parts = name.split(".")
        return any(fnmatchcase(".".join(parts[: k + 1]), trainable) for k in range(len(parts)))
    if callable(trainable):
        return bool(trainable(name, leaf))
    if isinstance(trainable, Sequence) and trainable and all(isinstance(one, str) for one in trainable):
        return any(is_chosen(one, name, leaf) for one in trainable)
    raise TypeError(
        f"trainable must be a name such as 'head' or '*.bias', several of them, or a function (name, array), not "
        f"{described(trainable)}"
    )


def dotted(path: Any) -> str:
    """Return a path in a tree as written in a module: ``layers.0.weight``."""
    last = (
        getattr(path[-1], "name", None) if path else None
    )  # what an nnx variable calls its array is no name of a layer
    own = path[:-1] if last in ("value", "raw_value") else path
    return ".".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in own)
