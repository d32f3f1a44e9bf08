"""Modules of Flax (linen and nnx) and Equinox as models: parameters in, outputs out, nothing kept inside.

Parameters of nnx and Equinox modules are dictionaries of float arrays by their names in the module, so that they can be
saved and read anywhere; those of linen modules are linen's own nested dictionaries.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from losac._extras import need
from losac.models.built import Function
from losac.models.trained import Trained
from losac.trees import Tree

SAY_TRAINING = {"train": True, "training": True, "is_training": True}
SAY_NOT_TRAINING = {"deterministic": False, "use_running_average": False}
"""What modules call the argument that says whether they train, and its value in training."""


def from_flax(
    module: Any, example: Any, *, train: Mapping[str, Any] | None = None, evaluate: Mapping[str, Any] | None = None
) -> Function | Trained:
    """Return a model from a Flax linen module and one batch of example inputs.

    The parameters are drawn with the run's seed. Dropout and batch statistics work where the module's call has an
    argument that says whether it trains: ``train``, ``training``, ``is_training``, ``deterministic`` or
    ``use_running_average``; another is named by ``train`` and ``evaluate``. All collections besides the parameters are
    the model's state, which is averaged over clients (:class:`Trained`).

    Args:
      module: the linen module.
      example: one batch of inputs, whatever their numbers.
      train, evaluate: keyword arguments of the module's call in training and in evaluation.
    """
    linen, errors = need("flax.linen", "a Flax model", "flax"), need("flax.errors", "a Flax model", "flax")
    if not isinstance(module, linen.Module):
        kind = type(module).__name__
        raise TypeError(f"module must be a flax.linen.Module, not {kind}; nnx modules: losac.models.from_nnx(module)")
    example = jnp.asarray(np.asarray(example))
    training, predicting = _modes(module, train, evaluate)
    shapes = jax.eval_shape(lambda key: module.init(key, example, **predicting), jax.random.key(0))
    collections = sorted(set(shapes) - {"params"})
    if collections and not training:
        raise ValueError(
            f"{type(module).__name__} keeps the collections {collections} besides its parameters, but its call has no "
            "argument that says whether it trains (train, training, deterministic, use_running_average): give it one, "
            "or name it as from_flax(module, example, train={…: …}, evaluate={…: …})"
        )

    def apply(params: Tree, state: Tree, x: Array, key: Array | None = None) -> Any:
        variables = {"params": params, **(state or {})}
        if key is None:
            return module.apply(variables, x, **predicting)
        rngs = {"dropout": key, "params": jax.random.fold_in(key, 1)}
        outputs, after = module.apply(variables, x, rngs=rngs, mutable=collections, **training)
        return outputs, dict(after) if state else state

    def initialise(key: Array) -> Tree:
        return module.init(key, example, **predicting)["params"]

    if not collections and not _linen_is_random(module, example, shapes["params"], training, errors):
        return Function(initialise, lambda params, x: apply(params, None, x))
    first = module.init(jax.random.key(0), example, **predicting)
    state = {name: first[name] for name in collections} or None
    return Trained(initialise, lambda params, state, x: apply(params, state, x), apply, state)


def from_nnx(module: Any) -> Function | Trained:
    """Return a model from a Flax nnx module; it starts from the module's own weights, whatever the seed.

    The parameters are the module's ``nnx.Param``, by name. Dropout gets a key of its own in every step; batch
    statistics and other variables are the model's state, which is averaged over clients (:class:`Trained`). The module
    itself is copied, and never changed.

    Args:
      module: the nnx module; ``train()`` and ``eval()`` are called on copies of it.
    """
    nnx = need("flax.nnx", "a Flax nnx model", "flax")
    if not isinstance(module, nnx.Module):
        kind = type(module).__name__
        raise TypeError(f"module must be a flax.nnx.Module, not {kind}; linen modules: losac.models.from_flax")
    copies = {name: nnx.clone(module) for name in ("train", "eval")}
    graphs = {}
    for name, own in copies.items():
        getattr(own, name)()
        graphs[name], params, keys, state = nnx.split(own, nnx.Param, nnx.RngState, ...)
    weights, kept = Named.of(params, "nnx module"), Named.of(state, "state of the nnx module")
    graph = graphs["train"]

    def train(params: Tree, state: Tree, x: Array, key: Array) -> tuple[Array, Tree]:
        own = nnx.merge(graph, weights.tree(params), _renewed(keys, key), kept.tree(state or {}))
        outputs = own(x)
        return outputs, kept.names_of(nnx.split(own, nnx.Param, nnx.RngState, ...)[3]) if state else state

    def predict(params: Tree, state: Tree, x: Array) -> Array:
        return nnx.merge(graphs["eval"], weights.tree(params), keys, kept.tree(state or {}))(x)

    if not kept.names and not jax.tree.leaves(keys):
        return Function(lambda key: weights.start, lambda params, x: predict(params, None, x))
    return Trained(lambda key: weights.start, predict, train, kept.start or None)


def from_equinox(module: Any, *, batched: bool = False) -> Function | Trained:
    """Return a model from an Equinox module; it starts from the module's own weights, whatever the seed.

    The parameters are its floating-point arrays (``equinox.is_inexact_array``), by name; everything else stays as it
    is. As Equinox has it, the module is called with one example at a time, and here mapped over a batch. Where it
    has dropout, every example gets a key of its own in training, and ``equinox.nn.inference_mode`` evaluates.

    Args:
      module: the module.
      batched: the module takes whole batches.
    """
    eqx = need("equinox", "an Equinox model", "equinox")
    if not isinstance(module, eqx.Module):
        raise TypeError(f"module must be an equinox.Module, not {type(module).__name__}")
    nodes = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, eqx.nn.Dropout | eqx.nn.StateIndex))
    if any(isinstance(node, eqx.nn.StateIndex) for node in nodes):
        raise ValueError(
            f"{type(module).__name__} keeps an equinox.nn.State, which is not all numbers that a server could average: "
            "use LayerNorm or GroupNorm, or write a loss(params, batch, state) that returns (value, new_state), and "
            "give Task(state=…)"
        )
    params, fixed = eqx.partition(module, eqx.is_inexact_array)
    weights = Named.of(params, "Equinox module")
    predicting = eqx.nn.inference_mode(fixed)

    def predict(params: Tree, state: Tree, x: Array) -> Array:
        own = eqx.combine(weights.tree(params), predicting)
        return own(x) if batched else jax.vmap(own)(x)

    def train(params: Tree, state: Tree, x: Array, key: Array) -> tuple[Array, Tree]:
        own = eqx.combine(weights.tree(params), fixed)
        if batched:
            return own(x, key=key), state
        return jax.vmap(lambda one, key: own(one, key=key))(x, jax.random.split(key, len(x))), state

    if not any(isinstance(node, eqx.nn.Dropout) for node in nodes):
        return Function(lambda key: weights.start, lambda params, x: predict(params, None, x))
    return Trained(lambda key: weights.start, predict, train)


class Named(NamedTuple):
    """A tree of float arrays as a dictionary by their names, and the way back."""

    names: tuple[str, ...]
    structure: Any
    start: dict[str, Array]

    @classmethod
    def of(cls, tree: Tree, what: str) -> Named:
        """Name the arrays of a tree by their paths; refuse numbers that cannot be averaged."""
        found, structure = jax.tree_util.tree_flatten_with_path(tree)
        names = tuple(_name(path) for path, _ in found)
        for name, (_, leaf) in zip(names, found):
            if not jnp.issubdtype(leaf.dtype, np.floating):
                raise ValueError(
                    f"the {what} has the array {name!r} of dtype {leaf.dtype}; a federation adds and scales arrays, "
                    "so they must be floating-point numbers"
                )
        return cls(names, structure, {name: jnp.asarray(leaf) for name, (_, leaf) in zip(names, found)})

    def tree(self, by_name: Mapping[str, Array]) -> Tree:
        """Return the tree of these arrays."""
        if set(by_name) != set(self.names):
            raise ValueError(f"the arrays {sorted(by_name)} are not those of the model, {sorted(self.names)}")
        return jax.tree.unflatten(self.structure, [by_name[name] for name in self.names])

    def names_of(self, tree: Tree) -> dict[str, Array]:
        """Return the arrays of a tree of the same structure by name."""
        return dict(zip(self.names, jax.tree.leaves(tree)))


def _name(path: Any) -> str:
    """Return a path as the module's author would write it: ``layers.0.weight``."""
    words = (getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))) for key in path)
    return ".".join(str(word) for word in words if str(word) not in ("value", "raw_value"))


def _renewed(keys: Tree, key: Array) -> Tree:
    """Return the random state of an nnx module with every key made from one."""
    leaves, structure = jax.tree.flatten(keys)
    own = [
        jax.random.fold_in(key, place) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for place, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, own)


def _modes(
    module: Any, train: Mapping[str, Any] | None, evaluate: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keyword arguments of a linen module's call in training and in evaluation."""
    if (train is None) != (evaluate is None):
        raise ValueError("say how the module is called both in training and in evaluation: train={…} and evaluate={…}")
    if train is not None and evaluate is not None:
        return dict(train), dict(evaluate)
    known = inspect.signature(type(module).__call__).parameters
    training = {
        name: value
        for name, value in (SAY_TRAINING | SAY_NOT_TRAINING).items()
        if name in known and getattr(module, name, None) is None
    }
    return training, {name: not value for name, value in training.items()}


def _linen_is_random(module: Any, example: Array, params: Tree, training: dict[str, Any], errors: Any) -> bool:
    """Whether the module asks for a random key in training."""
    try:
        jax.eval_shape(lambda p: module.apply({"params": p}, example, **training), params)
    except errors.InvalidRngError:
        return True
    return False
