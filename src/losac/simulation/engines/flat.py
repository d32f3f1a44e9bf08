"""A run's state as arrays with names, as files hold it, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from losac.simulation.engines.identity import IDENTITY, Identity
from losac.simulation.placement.mesh import is_key

Flat = Mapping[str, np.ndarray]


def flatten(state: Any) -> dict[str, np.ndarray]:
    """Return the arrays of a state by their paths; random keys as numbers, empty arrays left out."""
    found = jax.tree_util.tree_leaves_with_path(state)
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in found}
    arrays = {name: np.asarray(jax.random.key_data(a) if _holds_keys(a) else a) for name, a in leaves.items()}
    named = {name: a for name, a in arrays.items() if a.size}
    return named | ({IDENTITY: state.identity.as_array()} if isinstance(state.identity, Identity) else {})


def unflatten(flat: Flat, own: Any) -> Any:
    """Return named arrays in the structure of a run's own state; refuse those of another algorithm, model or storage.

    Args:
      flat: of :func:`flatten`.
      own: the state, or its shapes.
    """
    paths, structure = jax.tree_util.tree_flatten_with_path(own)
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    wanted = {name for name, (_, leaf) in zip(names, paths) if leaf.size}
    flat = {name: a for name, a in flat.items() if name != IDENTITY}
    if set(flat) != wanted:
        odd = sorted(set(flat) ^ wanted)
        raise ValueError(f"the saved state is of another algorithm, model or storage than this run: see {odd[0]}")
    leaves = [_leaf(flat.get(name), leaf) for name, (_, leaf) in zip(names, paths)]
    return jax.tree.unflatten(structure, leaves)


def _leaf(saved: np.ndarray | None, own: Any) -> Any:
    if saved is None:
        return np.zeros(own.shape, own.dtype)
    if _holds_keys(own):
        return jax.random.wrap_key_data(jax.numpy.asarray(saved), impl=jax.random.key_impl(own))
    return saved


def _holds_keys(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and is_key(leaf)
