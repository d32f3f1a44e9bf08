"""The success of an attack: errors of gradients, of samples in the best order, of labels, and of the rows' span."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from losac.trees import Tree, map_trees, squared_norm, sub


class Likeness(NamedTuple):
    """Recovered samples in the order that fits best, and how they compare.

    Args:
      order: the recovered sample that goes with each real one; −1 if there is none left.
      mse: the mean squared error of each real sample.
      psnr: the same in decibels of the data's range.
    """

    order: np.ndarray
    mse: np.ndarray
    psnr: np.ndarray


def relative_error(estimate: Tree, truth: Tree) -> float:
    """Return ‖estimate − truth‖ / ‖truth‖ over all arrays of two trees."""
    estimate, truth = map_trees(np.asarray, (estimate, truth))
    return float((squared_norm(sub(estimate, truth)) / squared_norm(truth)) ** 0.5)


def likeness(recovered: np.ndarray, real: np.ndarray, peak: float = 1.0, nothing: float = 0.0) -> Likeness:
    """Compare recovered samples with real ones, in the order that fits best.

    Recovered samples are matched first; a guess fills the places that are left.

    Args:
      recovered: [any number, features].
      real: [n, features].
      peak: the range of the data.
      nothing: the value of a guess where too few samples were recovered.

    >>> likeness(np.array([[1.0, 1.0], [0.0, 0.1]]), np.array([[0.0, 0.0], [1.0, 1.0]])).order
    array([1, 0])
    """
    from scipy.optimize import linear_sum_assignment

    real = np.reshape(np.asarray(real, float), (len(real), -1))
    recovered = np.reshape(np.asarray(recovered, float), (-1, real.shape[1]))
    squares = (real**2).mean(1)[:, None] - 2 * real @ recovered.T / real.shape[1] + (recovered**2).mean(1)[None, :]
    rows, columns = linear_sum_assignment(squares)
    order = np.full(len(real), -1)
    order[rows] = columns
    offered = np.concatenate([recovered, np.full((1, real.shape[1]), nothing)])[order]
    mse = ((real - offered) ** 2).mean(1)
    return Likeness(order, mse, decibels(mse, peak))


def decibels(mse: np.ndarray, peak: float = 1.0) -> np.ndarray:
    """Return the peak signal-to-noise ratio, at most 120."""
    return 10 * np.log10(peak**2 / np.maximum(mse, 1e-12 * peak**2))


def label_accuracy(guessed: np.ndarray, real: np.ndarray) -> float:
    """Return the share of labels that were recovered, in any order.

    >>> label_accuracy(np.array([1, 1, 2]), np.array([2, 1, 3])).__round__(2)
    0.67
    """
    size = int(max(np.max(guessed, initial=0), np.max(real, initial=0))) + 1
    counts = [np.bincount(np.asarray(labels, int), minlength=size) for labels in (guessed, real)]
    return float(np.minimum(*counts).sum() / len(real))


def span_angle(basis: np.ndarray | None, real: np.ndarray) -> float:
    """Return the angle, in degrees, between real samples and a subspace: 0 if it holds all of them.

    Args:
      basis: orthonormal [r, features]; None or empty: no subspace, 90 degrees.
      real: [n, features].
    """
    real = np.reshape(np.asarray(real, float), (len(real), -1))
    inside = real * 0 if basis is None or not len(basis) else real @ basis.T @ basis
    outside = float(np.linalg.norm(real - inside) / np.linalg.norm(real))
    return float(np.degrees(np.arcsin(min(outside, 1.0))))
