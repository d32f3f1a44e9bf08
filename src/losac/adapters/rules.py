r"""How the server averages low-rank adapters: the known rules as pure functions of the clients' factors.

The mean of products is not the product of means:

.. math:: \sum_i p_i B_i A_i - \bar B \bar A = \sum_i p_i (B_i - \bar B)(A_i - \bar A),

a matrix of rank at most (n − 1) r. The rules differ in how they avoid, or add back, this error.

A client's factors are ``{name: {"a": A, "b": B}}``, as in :mod:`losac.adapters.lora`, in JAX or NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax.numpy as jnp

from losac.trees import Array, Tree, map_trees

Pairs = Mapping[str, Mapping[str, Array]]
"""By the name of a matrix, its factors ``{"a": A, "b": B}``."""


def average(clients: Sequence[Tree], weights: Sequence[float]) -> Tree:
    """Return the weighted mean of the clients' trees, leaf by leaf: FedIT, where these are A and B.

    Reference (FedIT): https://arxiv.org/abs/2305.05644
    """
    return map_trees(lambda *leaves: sum(p * leaf for p, leaf in zip(weights, leaves)), *clients)


def products(factors: Pairs) -> dict[str, Array]:
    """Return BA of every matrix."""
    return {name: pair["b"] @ pair["a"] for name, pair in factors.items()}


def stacked(clients: Sequence[Pairs], weights: Sequence[float]) -> dict[str, dict[str, Array]]:
    """Return factors of Σ p_i B_i A_i, of rank n·r: the B_i side by side, the A_i below each other (FLoRA).

    The weights stand on one side only; on both they would be squared.

    Reference (FLoRA): https://arxiv.org/abs/2409.05976
    """
    return {
        name: {
            "b": jnp.concatenate([own[name]["b"] for own in clients], axis=1),
            "a": jnp.concatenate([p * own[name]["a"] for p, own in zip(weights, clients)], axis=0),
        }
        for name in clients[0]
    }


def residual(clients: Sequence[Pairs], weights: Sequence[float]) -> dict[str, dict[str, Array]]:
    r"""Return factors of Σ p_i B_i A_i − B̄Ā, of rank (n − 1)·r: what FedEx-LoRA adds to the frozen matrix.

    They are :math:`B_i - B_n` and :math:`p_i (A_i - \bar A)` for i < n, which is the same sum, since
    :math:`\sum_i p_i (A_i - \bar A) = 0`.

    Reference (FedEx-LoRA): https://arxiv.org/abs/2410.09432
    """
    total = sum(weights)
    shares = [p / total for p in weights]
    mean = average(clients, shares)
    *others, last = clients
    return {
        name: {
            "b": jnp.concatenate([own[name]["b"] - last[name]["b"] for own in others] or [0 * last[name]["b"]], axis=1),
            "a": jnp.concatenate(
                [p * (own[name]["a"] - mean[name]["a"]) for p, own in zip(shares, others)] or [0 * last[name]["a"]],
                axis=0,
            ),
        }
        for name in last
    }


def truncated(factors: Pairs, rank: int) -> dict[str, dict[str, Array]]:
    r"""Return the best factors of rank r of BA, :math:`B = U\Sigma^{1/2}`, :math:`A = \Sigma^{1/2} V^T` (FlexLoRA).

    Exact if BA has no larger rank; else the error is the norm of the other singular values.

    Reference (FlexLoRA): https://arxiv.org/abs/2402.11505
    """
    found = {}
    for name, product in products(factors).items():
        u, s, vt = jnp.linalg.svd(product, full_matrices=False)
        root = jnp.sqrt(s[:rank])
        found[name] = {"b": u[:, :rank] * root, "a": root[:, None] * vt[:rank]}
    return found
