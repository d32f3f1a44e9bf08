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
from losac.models.frozen import Trainable, dotted, freeze, is_chosen
from losac.models.trained import Trained
from losac.trees import Tree, map_trees

SAY_TRAINING = {"train": True, "training": True, "is_training": True}
SAY_NOT_TRAINING = {"deterministic": False, "use_running_average": False}
"""Usual names of the argument that says whether a module trains, and its value in training."""


def from_flax(
    module: Any,
    example: Any,
    *,
    train: Mapping[str, Any] | None = None,
    evaluate: Mapping[str, Any] | None = None,
    trainable: Trainable | None = None,
    params: Tree = None,
) -> Function | Trained:
    """Return a model from a Flax linen module and one batch of example inputs.

    The parameters are drawn with the run's seed. Dropout and batch statistics need an argument of the module's call
    that says whether it trains: ``train``, ``training``, ``is_training``, ``deterministic`` or ``use_running_average``;
    name any other with ``train`` and ``evaluate``. Collections that training changes, other than the parameters, are
    the model's state, which is averaged over clients (:class:`Trained`). Other collections are frozen: not trained and
    not sent.

    Args:
      module: the linen module.
      example: one batch of inputs; the values do not matter.
      train, evaluate: keyword arguments of the module's call in training and in evaluation.
      trainable: which parameters are trained; the others are frozen (:func:`losac.models.freeze`). All by default.
      params: the weights to start from, where some are frozen.
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
    fixed = {name: first[name] for name in others if name not in collections} or None

    def apply(params: Tree, state: Tree, x: Array, key: Array | None = None, fixed: Tree = None) -> Any:
        variables = {"params": params, **(fixed or {}), **(state or {})}
        if key is None:
            return module.apply(variables, x, **predicting)
        rngs = {"dropout": key, "params": _random.flax_params_key(key)}
        outputs, after = module.apply(variables, x, rngs=rngs, mutable=others, **training)
        return outputs, {name: after[name] for name in collections} if state else state

    def initialise(key: Array) -> Tree:
        return module.init(key, example, **predicting)["params"]

    def predict(params: Tree, state: Tree, x: Array, fixed: Tree = None) -> Any:
        return apply(params, state, x, None, fixed)

    model: Function | Trained
    if not others and not _linen_is_random(module, example, shapes, training, errors):
        model = Function(initialise, lambda params, x: apply(params, None, x))
    else:
        model = Trained(initialise, predict, apply, {name: first[name] for name in collections} or None, fixed)
    if trainable is None and params is not None:
        raise ValueError("params are the weights under those that are trained: name these by trainable=…")
    return model if trainable is None else freeze(model, trainable, params)


def from_nnx(module: Any, *, trainable: Any = None, state: Any = None, wrt: Any = None) -> Function | Trained:
    """Return a model from a Flax nnx module; it starts from the module's own weights for every seed.

    The parameters are the module's ``nnx.Param``, by name. Dropout gets a new key in every step. Batch statistics are
    the model's state, which is averaged over clients (:class:`Trained`). All other variables are frozen: they are
    neither trained nor sent. The module itself is copied and never changed.

    Args:
      module: the nnx module; ``train()`` and ``eval()`` are called on copies of it.
      trainable: which variables are trained: names such as ``"head"`` or ``"*.bias"``, or as in ``nnx.grad`` and
        ``nnx.Optimizer`` a type of variables, a function of path and variable, or another of nnx's filters.
        ``nnx.Param`` by default. For a module with ``nnx.LoRAParam``, choose whether to train only these
        (``trainable=nnx.LoRAParam``) or also the layers under them (``trainable=nnx.Param``).
      state: which variables are the model's state, as an nnx filter; ``nnx.BatchStat`` by default.
      wrt: another name of ``trainable``.
    """
    nnx = need("flax.nnx", "a Flax nnx model", "flax")
    if not isinstance(module, nnx.Module):
        kind = type(module).__name__
        raise TypeError(f"module must be a flax.nnx.Module, not {kind}; linen modules: losac.models.from_flax")
    trainable, name = _one_of(trainable, wrt)
    lora, others = (len(jax.tree.leaves(part)) for part in nnx.state(module, nnx.LoRAParam, nnx.Param))
    if trainable is None and lora and others:
        raise ValueError(
            "the module has nnx.LoRAParam besides other nnx.Param: use from_nnx(module, trainable=nnx.LoRAParam) to "
            "train and send the former only, or trainable=nnx.Param for all"
        )
    chosen = nnx.Param if trainable is None else _by_name(trainable)
    filters = (chosen, nnx.RngState, nnx.BatchStat if state is None else state, ...)
    copies = {name: nnx.clone(module) for name in ("train", "eval")}
    graphs = {}
    for name, own in copies.items():
        getattr(own, name)()
        graphs[name], params, keys, stats, fixed = nnx.split(own, *filters)
    weights, kept = Named.of(params, "nnx module"), Named.of(stats, "state of the nnx module")
    if not weights.names:
        raise ValueError(f"{name}={trainable!r} selects no variable of the module, so nothing would be trained")
    graph = graphs["train"]

    def train(params: Tree, state: Tree, x: Array, key: Array, fixed: Tree = fixed) -> tuple[Array, Tree]:
        still = _renewed(keys, key), map_trees(_same, fixed)
        own = nnx.merge(graph, weights.tree(params), kept.tree(state or {}), *still)
        outputs = own(x)
        _, _, _, stats, after = nnx.split(own, *filters)
        _check_fixed(fixed, after)
        return outputs, kept.names_of(stats) if state else state

    def predict(params: Tree, state: Tree, x: Array, fixed: Tree = fixed) -> Array:
        still = map_trees(_same, (keys, fixed))
        own = nnx.merge(graphs["eval"], weights.tree(params), kept.tree(state or {}), *still)
        outputs = own(x)
        _check_fixed(fixed, nnx.split(own, *filters)[4])
        return outputs

    frozen = fixed if jax.tree.leaves(fixed) else None
    if not kept.names and not jax.tree.leaves(keys) and frozen is None:
        return Function(lambda key: weights.start, lambda params, x: predict(params, None, x))
    return Trained(lambda key: weights.start, predict, train, kept.start or None, frozen)


def from_equinox(module: Any, *, batched: bool = False, trainable: Any = None, wrt: Any = None) -> Function | Trained:
    """Return a model from an Equinox module; it starts from the module's own weights for every seed.

    The parameters are its floating-point arrays (``equinox.is_inexact_array``), by name. Everything else is frozen:
    it is neither trained nor sent. As usual in Equinox, the module takes one example at a time; here it is mapped over
    a batch. With dropout, every example gets its own key in training, and evaluation uses
    ``equinox.nn.inference_mode``.

    Args:
      module: the module.
      batched: the module takes whole batches.
      trainable: which of its floating-point arrays are trained: names such as ``"layers.1"`` or ``"*.bias"``, a class
        of modules such as ``eqx.nn.LayerNorm``, or as in ``equinox.partition`` a function of a leaf, or a tree of true
        and false like the module (or a prefix of it); all by default.
      wrt: another name of ``trainable``.
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
    trainable, name = _one_of(trainable, wrt)
    wanted, rest = eqx.partition(module, _leaves_of(module, trainable, eqx))
    params, others = eqx.partition(wanted, eqx.is_inexact_array)
    weights = Named.of(params, "Equinox module")
    if not weights.names:
        what = f"{name}={trainable!r}"
        raise ValueError(f"{what} selects no floating-point array of the module, so nothing would be trained")
    fixed, training = eqx.partition(eqx.combine(rest, others), eqx.is_array)
    predicting = eqx.nn.inference_mode(training)
    arrays, structure = jax.tree.flatten(fixed)
    frozen = arrays or None

    def whole(params: Tree, rest: Any, frozen: Any) -> Any:
        return eqx.combine(weights.tree(params), jax.tree.unflatten(structure, frozen or []), rest)

    def predict(params: Tree, state: Tree, x: Array, frozen: Tree = None) -> Array:
        own = whole(params, predicting, frozen)
        return own(x) if batched else jax.vmap(own)(x)

    def train(params: Tree, state: Tree, x: Array, key: Array, frozen: Tree = None) -> tuple[Array, Tree]:
        own = whole(params, training, frozen)
        if batched:
            return own(x, key=key), state
        return jax.vmap(lambda one, key: own(one, key=key))(x, _random.row_keys(key, len(x))), state

    dropout = any(isinstance(node, eqx.nn.Dropout) for node in nodes)
    if not dropout and frozen is None:
        return Function(lambda key: weights.start, lambda params, x: predict(params, None, x))
    if not dropout:
        return Trained(
            lambda key: weights.start, predict, lambda p, s, x, key, f: (predict(p, s, x, f), s), None, frozen
        )
    return Trained(lambda key: weights.start, predict, train, None, frozen)


def _one_of(trainable: Any, wrt: Any) -> tuple[Any, str]:
    """Return what is trained, and the name of the argument that says so."""
    if trainable is not None and wrt is not None:
        raise ValueError("wrt is another name of trainable: give one of them")
    return (wrt, "wrt") if trainable is None else (trainable, "trainable")


def _is_named(trainable: Any) -> bool:
    return isinstance(trainable, str) or (
        isinstance(trainable, list | tuple) and bool(trainable) and all(isinstance(one, str) for one in trainable)
    )


def _by_name(trainable: Any) -> Any:
    """Return an nnx filter; names become a function of path and variable."""
    if not _is_named(trainable):
        return trainable
    return lambda path, variable: is_chosen(trainable, ".".join(map(str, path)), variable)


def _leaves_of(module: Any, trainable: Any, eqx: Any) -> Any:
    """Return what ``equinox.partition`` takes, from names or a class of modules too."""
    if trainable is None:
        return True
    if _is_named(trainable):
        return jax.tree_util.tree_map_with_path(lambda path, leaf: is_chosen(trainable, dotted(path), leaf), module)
    if isinstance(trainable, type) and issubclass(trainable, eqx.Module):

        def below(node: Any) -> Any:
            return map_trees(lambda leaf: isinstance(node, trainable), node)

        return map_trees(below, module, is_leaf=lambda node: isinstance(node, trainable))
    return trainable


class Named(NamedTuple):
    """Turn a tree of float arrays into a dictionary by name, and back."""

    names: tuple[str, ...]
    structure: Any
    start: dict[str, Array]

    @classmethod
    def of(cls, tree: Tree, what: str) -> Named:
        """Name the arrays of a tree by their paths; refuse dtypes that cannot be averaged."""
        found, structure = jax.tree_util.tree_flatten_with_path(tree)
        names = tuple(dotted(path) for path, _ in found)
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


def _same(array: Array) -> Array:
    """Return an array; mapped over an nnx state, this makes new variables that a call may change."""
    return array


def _check_fixed(before: Tree, after: Tree) -> None:
    """Refuse a module that changes fixed numbers when it is called in training; counters may change."""
    own = {dotted(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(after)}
    for path, leaf in jax.tree_util.tree_leaves_with_path(before):
        name = dotted(path)
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
