"""Trees of tensors: to and from NumPy, and ``torch.func.vmap`` over functions of JAX's trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from losac._extras import need
from losac.trees import Tree, map_trees


def torch() -> Any:
    """Return PyTorch, or say how to install it."""
    return need("torch", "a simulation in PyTorch", "torch")


def tensors(tree: Tree, device: Any) -> Tree:
    """Return a tree as new tensors."""
    return map_trees(lambda a: torch().tensor(np.asarray(a), device=device), tree)


def over_clients(function: Callable[..., Tree], *trees: Tree) -> Tree:
    """Return ``function`` of every client's part of the trees. Arrays of arguments and results lead with the clients.

    PyTorch knows fewer kinds of trees than JAX, so it is given lists of leaves.
    """
    pytorch = torch()
    leaves, structure = jax.tree.flatten(trees)
    after: list[Any] = []

    def flat(*parts: Any) -> list[Any]:
        found, kind = jax.tree.flatten(function(*jax.tree.unflatten(structure, parts)))
        after.append(kind)
        return [leaf if hasattr(leaf, "detach") else number(leaf) for leaf in found]

    def number(leaf: Any) -> Any:
        exact = pytorch.float64 if isinstance(leaf, float) else None
        return pytorch.as_tensor(leaf, device=leaves[0].device, dtype=exact)

    results = pytorch.func.vmap(flat)(*leaves)
    return jax.tree.unflatten(after[-1], results)
