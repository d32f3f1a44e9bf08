"""Modules of Flax (linen and nnx) and Equinox as models: parameters in, outputs out, nothing kept inside.

Parameters of nnx and Equinox modules are dictionaries of float arrays by their names in the module, and can be saved
and read anywhere. Parameters of linen modules are linen's own nested dictionaries.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from losac import _random
from losac._extras import need
from losac.models.built import Function
from losac.models.trained import Trained
from losac.trees import Tree, map_trees

SAY_TRAINING = {"train": True, "training": True, "is_training": True}
SAY_NOT_TRAINING = {"deterministic": False, "use_running_average": False}
"""Usual names of the argument that says whether a module trains, and its value in training."""


def from_flax(
    module: Any, example: Any, *, train: Mapping[str, Any] | None = None, evaluate: Mapping[str, Any] | None = None
) -> Function | Trained:
    """Return a model from a Flax linen module and one batch of example inputs.

    The parameters are drawn with the run's seed. Dropout and batch statistics need an argument of the module's call
    that says whether it trains: ``train``, ``training``, ``is_training``, ``deterministic`` or ``use_running_average``;
    name any other with ``train`` and ``evaluate``. Collections that training changes, other than the parameters, are
    the model's state, which is averaged over clients (:class:`Trained`). Other collections stay fixed and are not sent.

    Args:
      module: the linen module.
      example: one batch of inputs; the values do not matter.
      train, evaluate: keyword arguments of the module's call in training and in evaluation.
    """
    linen, errors = need("flax.linen", "a Flax model", "flax"), need("flax.errors", "a Flax model", "flax")
    if not isinstance(module, linen.Module):
        kind = type(module).__name__
        raise TypeError(f"module must be a flax.linen.Module, not {kind}; nnx modules: losac.models.from_nnx(module)")
    example = jnp.asarray(np.asarray(example))
    training, predicting = _modes(module, train, evaluate)
    shapes = jax.eval_shape(lambda key: module.init(key, example, **predicting), _random.any_key())
    others = sorted(set(shapes) - {"params"})
    if others and not training:
        raise ValueError(
            f"{type(module).__name__} keeps the collections {others} besides its parameters, but its call has no "
            "argument that says whether it trains (train, training, deterministic, use_running_average): give it one, "
            "or name it as from_flax(module, example, train={…: …}, evaluate={…: …})"
        )
    collections = _linen_changes(module, example, shapes, training) if others else []
    first = module.init(_random.any_key(), example, **predicting) if others else {}
    fixed = {name: first[name] for name in others if name not in collections}

    def apply(params: Tree, state: Tree, x: Array, key: Array | None = None) -> Any:
        variables = {"params": params, **fixed, **(state or {})}
        if key is None:
            return module.apply(variables, x, **predicting)
        rngs = {"dropout": key, "params": _random.flax_params_key(key)}
        outputs, after = module.apply(variables, x, rngs=rngs, mutable=others, **training)
        return outputs, {name: after[name] for name in collections} if state else state

    def initialise(key: Array) -> Tree:
        return module.init(key, example, **predicting)["params"]

    if not collections and not _linen_is_random(module, example, shapes, training, errors):
        return Function(initialise, lambda params, x: apply(params, None, x))
    state = {name: first[name] for name in collections} or None
    return Trained(initialise, lambda params, state, x: apply(params, state, x), apply, state)


def from_nnx(module: Any, *, wrt: Any = None, state: Any = None) -> Function | Trained:
    """Return a model from a Flax nnx module; it starts from the module's own weights for every seed.

    The parameters are the module's ``nnx.Param``, by name. Dropout gets a new key in every step. Batch statistics are
    the model's state, which is averaged over clients (:class:`Trained`). All other variables stay fixed: they are
    neither trained nor sent. The module itself is copied and never changed.

    Args:
      module: the nnx module; ``train()`` and ``eval()`` are called on copies of it.
      wrt: which variables are trained, as in ``nnx.grad`` and ``nnx.Optimizer``: a type of variables, a function of
        path and variable, or another of nnx's filters. ``nnx.Param`` by default. For a module with ``nnx.LoRAParam``,
        choose whether to train only these (``wrt=nnx.LoRAParam``) or also the layers under them (``wrt=nnx.Param``).
      state: which variables are the model's state, in the same way; ``nnx.BatchStat`` by default.
    """
    nnx = need("flax.nnx", "a Flax nnx model", "flax")
    if not isinstance(module, nnx.Module):
        kind = type(module).__name__
        raise TypeError(f"module must be a flax.nnx.Module, not {kind}; linen modules: losac.models.from_flax")
    lora, others = (len(jax.tree.leaves(part)) for part in nnx.state(module, nnx.LoRAParam, nnx.Param))
    if wrt is None and lora and others:
        raise ValueError(
            "the module has nnx.LoRAParam besides other nnx.Param: use from_nnx(module, wrt=nnx.LoRAParam) to train "
            "and send the former only, or wrt=nnx.Param for all"
        )
    filters = (nnx.Param if wrt is None else wrt, nnx.RngState, nnx.BatchStat if state is None else state, ...)
    copies = {name: nnx.clone(module) for name in ("train", "eval")}
    graphs = {}
    for name, own in copies.items():
        getattr(own, name)()
        graphs[name], params, keys, stats, fixed = nnx.split(own, *filters)
    weights, kept = Named.of(params, "nnx module"), Named.of(stats, "state of the nnx module")
    if not weights.names:
        raise ValueError(f"wrt={wrt!r} selects no variable of the module, so nothing would be trained")
    graph = graphs["train"]

    def train(params: Tree, state: Tree, x: Array, key: Array) -> tuple[Array, Tree]:
        still = _renewed(keys, key), map_trees(_same, fixed)
        own = nnx.merge(graph, weights.tree(params), kept.tree(state or {}), *still)
        outputs = own(x)
        _, _, _, stats, after = nnx.split(own, *filters)
        _check_fixed(fixed, after)
        return outputs, kept.names_of(stats) if state else state

    def predict(params: Tree, state: Tree, x: Array) -> Array:
        still = map_trees(_same, (keys, fixed))
        own = nnx.merge(graphs["eval"], weights.tree(params), kept.tree(state or {}), *still)
        outputs = own(x)
        _check_fixed(fixed, nnx.split(own, *filters)[4])
        return outputs

    if not kept.names and not jax.tree.leaves(keys):
        return Function(lambda key: weights.start, lambda params, x: predict(params, None, x))
    return Trained(lambda key: weights.start, predict, train, kept.start or None)


def from_equinox(module: Any, *, batched: bool = False, wrt: Any = None) -> Function | Trained:
    """Return a model from an Equinox module; it starts from the module's own weights for every seed.

    The parameters are its floating-point arrays (``equinox.is_inexact_array``), by name. Everything else stays fixed:
    it is neither trained nor sent. As usual in Equinox, the module takes one example at a time; here it is mapped over
    a batch. With dropout, every example gets its own key in training, and evaluation uses
    ``equinox.nn.inference_mode``.

    Args:
      module: the module.
      batched: the module takes whole batches.
      wrt: which of its floating-point arrays are trained, as in ``equinox.partition``: a function of a leaf, or a tree
        of true and false like the module (or a prefix of it); all by default.
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
    wanted, rest = eqx.partition(module, True if wrt is None else wrt)
    params, others = eqx.partition(wanted, eqx.is_inexact_array)
    weights, fixed = Named.of(params, "Equinox module"), eqx.combine(rest, others)
    if not weights.names:
        raise ValueError(f"wrt={wrt!r} selects no floating-point array of the module, so nothing would be trained")
    predicting = eqx.nn.inference_mode(fixed)

    def predict(params: Tree, state: Tree, x: Array) -> Array:
        own = eqx.combine(weights.tree(params), predicting)
        return own(x) if batched else jax.vmap(own)(x)

    def train(params: Tree, state: Tree, x: Array, key: Array) -> tuple[Array, Tree]:
        own = eqx.combine(weights.tree(params), fixed)
        if batched:
            return own(x, key=key), state
        return jax.vmap(lambda one, key: own(one, key=key))(x, _random.row_keys(key, len(x))), state

    if not any(isinstance(node, eqx.nn.Dropout) for node in nodes):
        return Function(lambda key: weights.start, lambda params, x: predict(params, None, x))
    return Trained(lambda key: weights.start, predict, train)


class Named(NamedTuple):
    """Turn a tree of float arrays into a dictionary by name, and back."""

    names: tuple[str, ...]
    structure: Any
    start: dict[str, Array]

    @classmethod
    def of(cls, tree: Tree, what: str) -> Named:
        """Name the arrays of a tree by their paths; refuse dtypes that cannot be averaged."""
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
    """Return a path as written in the module: ``layers.0.weight``."""
    words = (getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))) for key in path)
    return ".".join(str(word) for word in words if str(word) not in ("value", "raw_value"))


def _same(array: Array) -> Array:
    """Return an array; mapped over an nnx state, this makes new variables that a call may change."""
    return array


def _check_fixed(before: Tree, after: Tree) -> None:
    """Refuse a module that changes fixed numbers when it is called in training; counters may change."""
    own = {_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(after)}
    for path, leaf in jax.tree_util.tree_leaves_with_path(before):
        name = _name(path)
        if jnp.issubdtype(leaf.dtype, np.floating) and own.get(name, leaf) is not leaf:
            raise ValueError(
                f"the module changes its variable {name!r}, which is neither trained nor the model's "
                "state; name the variables that are its state by from_nnx(module, state=(nnx.BatchStat, …))"
            )


def _renewed(keys: Tree, key: Array) -> Tree:
    """Return the random state of an nnx module with all keys derived from one."""
    leaves, structure = jax.tree.flatten(keys)
    own = [
        _random.leaf_key(key, leaf_index) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for leaf_index, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, own)


def _modes(
    module: Any, train: Mapping[str, Any] | None, evaluate: Mapping[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the keyword arguments of a linen module's call in training and in evaluation."""
    if (train is None) != (evaluate is None):
        raise ValueError(
            "give the arguments of the module's call both in training and in evaluation: train={…} and evaluate={…}"
        )
    if train is not None and evaluate is not None:
        return dict(train), dict(evaluate)
    known = inspect.signature(type(module).__call__).parameters
    training = {
        name: value
        for name, value in (SAY_TRAINING | SAY_NOT_TRAINING).items()
        if name in known and getattr(module, name, None) is None
    }
    return training, {name: not value for name, value in training.items()}


def _linen_changes(module: Any, example: Array, shapes: Mapping[str, Any], training: dict[str, Any]) -> list[str]:
    """Return the collections with floating-point numbers that the module's call in training changes."""
    found: list[str] = []

    def call(variables: Mapping[str, Any], key: Array) -> None:
        rngs = {"dropout": key, "params": _random.flax_params_key(key)}
        names = sorted(set(variables) - {"params"})
        _, after = module.apply(variables, example, rngs=rngs, mutable=names, **training)
        for name in names:
            leaves = zip(jax.tree.leaves(variables[name]), jax.tree.leaves(after.get(name, variables[name])))
            if any(new is not old and jnp.issubdtype(old.dtype, np.floating) for old, new in leaves):
                found.append(name)

    jax.eval_shape(call, dict(shapes), _random.any_key())
    return found


def _linen_is_random(
    module: Any, example: Array, shapes: Mapping[str, Any], training: dict[str, Any], errors: Any
) -> bool:
    """Whether the module needs a random key in training."""
    try:
        others = sorted(set(shapes) - {"params"})
        jax.eval_shape(lambda variables: module.apply(variables, example, mutable=others, **training), dict(shapes))
    except errors.InvalidRngError:
        return True
    return False
