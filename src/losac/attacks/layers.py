"""What the gradient of a dense layer reveals directly.

The gradient of a layer's weights is Σ_k a_k b_kᵀ over the samples k, with its inputs a_k and errors b_k, and that of
its biases Σ_k b_k. So the columns of the first lie in the span of the inputs; where one sample alone drives an output,
their quotient is that sample; and the errors of a softmax reveal the labels.

References: B. Zhao, K. R. Mopuri, H. Bilen, *iDLG: improved deep leakage from gradients*, 2020; L. T. Phong et al.,
*Privacy-preserving deep learning via additively homomorphic encryption*, 2018; A. Wainakh et al., *User-level label
leakage from gradients in federated learning*, 2022.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from losac.trees import Tree

PLAUSIBLE = 0.02
"""How far a quotient may leave the range of the data and still count as a sample."""


class DenseLayer(NamedTuple):
    """The weights [inputs, outputs] and biases of a dense layer, or their gradients; None: it has no biases."""

    w: np.ndarray
    b: np.ndarray | None


def dense_layers(tree: Tree) -> Iterator[DenseLayer]:
    """Return the dense layers of a model, or of a gradient of it, in the order of the tree: for dicts, of their names.

    They are found by the names ``w`` and ``b``, or Flax's ``kernel`` and ``bias``.
    """
    if isinstance(tree, Mapping):
        for weight, bias in (("w", "b"), ("kernel", "bias")):
            if weight in tree and np.ndim(tree[weight]) == 2:
                yield DenseLayer(np.asarray(tree[weight]), np.asarray(tree[bias]) if bias in tree else None)
                return
        for value in tree.values():
            yield from dense_layers(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from dense_layers(value)


def first_layer(gradient: Tree, inputs: int) -> DenseLayer | None:
    """Return the gradient of the layer that sees the data itself, or None."""
    found = next(dense_layers(gradient), None)
    return found if found is not None and found.w.shape[0] == inputs else None


def row_space(gradients: Sequence[Tree], inputs: int, most: int, accuracy: float = 1e-5) -> np.ndarray | None:
    """Return an orthonormal basis [r, inputs] of what gradients reveal of the span of a client's rows.

    Args:
      gradients: of any of the client's rows, at any models.
      inputs: how many features a row has.
      most: how many rows the client has, beyond which there is only rounding.
      accuracy: directions weaker than this share of the strongest count as rounding.
    """
    layers = [first_layer(gradient, inputs) for gradient in gradients]
    columns = [layer.w / max(float(np.linalg.norm(layer.w)), 1e-30) for layer in layers if layer is not None]
    if not columns:
        return None
    left, strength, _ = np.linalg.svd(np.concatenate(columns, axis=1), full_matrices=False)
    return left[:, : min(most, int(np.sum(strength > accuracy * strength[0])))].T


def quotients(gradients: Sequence[Tree], inputs: int, most: int, box: tuple[float, float] | None = None) -> np.ndarray:
    """Return the samples that drive some output alone: columns of ∂w over ∂b that look like data.

    Where several samples drive an output its quotient mixes them. The same sample comes again from other outputs and
    other gradients, a mixture hardly ever, so the most frequent ones are taken.

    Args:
      gradients: of some of the client's rows.
      inputs: how many features a sample has.
      most: the most samples to return.
      box: the range of the data, which a mixture nearly always leaves.
    """
    found = [np.zeros((0, inputs))]
    for gradient in gradients:
        layer = first_layer(gradient, inputs)
        if layer is not None and layer.b is not None:
            driven = np.abs(layer.b) > 1e-6 * np.abs(layer.b).max(initial=1e-30)
            found.append((layer.w[:, driven] / layer.b[driven]).T)
    every = np.concatenate(found)
    if box is not None:
        slack = PLAUSIBLE * (box[1] - box[0])
        lowest, highest = every.min(1, initial=np.inf), every.max(1, initial=-np.inf)
        every = every[(lowest >= box[0] - slack) & (highest <= box[1] + slack)]
    return most_frequent(every, most)


def most_frequent(samples: np.ndarray, most: int, apart: float = 0.05) -> np.ndarray:
    """Return the samples that have the most others near them, none near another."""
    squares = (samples**2).sum(1)
    distance = np.sqrt(np.maximum(squares[:, None] - 2 * samples @ samples.T + squares[None, :], 0))
    near = distance <= apart * np.sqrt(squares)[:, None]
    left = np.ones(len(samples), bool)
    kept: list[int] = []
    while len(kept) < most and left.any():
        best = int(np.argmax(np.where(left, (near & left).sum(1), 0)))
        kept.append(best)
        left &= ~near[best]
        left[best] = False
    return samples[kept]


def labels_in(gradient: Tree, rows: int) -> np.ndarray | None:
    """Return the labels of a batch from the gradient of the last layer's biases, sorted; None if it has none.

    The gradient of the bias of class c is Σ_k p_kc − n_c. Of one row only its own class has a negative one. For more,
    the mean probabilities are assumed equal in all classes.

    >>> labels_in([{"w": np.zeros((2, 3)), "b": np.array([0.6, -1.4, 0.8])}], 3)
    array([0, 1, 1])
    """
    layers = list(dense_layers(gradient))
    if not layers or layers[-1].b is None:
        return None
    bias = layers[-1].b
    if bias.size == 1:
        ones = int(np.clip(round(rows / 2 - float(bias.reshape(()))), 0, rows))
        return np.repeat([0, 1], [rows - ones, ones])
    expected = rows / bias.size - bias
    counts = np.clip(np.floor(expected), 0, rows).astype(int)
    while counts.sum() > rows:
        counts[np.argmax(np.where(counts > 0, counts - expected, -np.inf))] -= 1
    while counts.sum() < rows:
        counts[np.argmax(expected - counts)] += 1
    return np.repeat(np.arange(bias.size), counts)
