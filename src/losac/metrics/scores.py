"""Scores of a classifier, computed by scikit-learn from logits and labels.

Outputs are logits: [n, classes]; [n] or [n, 1] for a binary model of one logit; [n, labels] with targets of zeros and
ones of the same shape for several labels at once, with scores averaged over the labels. Further leading axes, such as
those of sequences, count as rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from losac.metrics.declared import score
from losac.trees import as_numpy


@score(smaller_is_better=False)
def macro_f1(outputs: Any, y: Any) -> float:
    """Return the mean F1 over the classes that are predicted or true on these rows.

    For several labels at once: the mean over the labels, with 0 for a label that is never predicted and never true.

    >>> logits = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 1.0], [1.0, 2.0, 0.0], [0.0, 1.0, 2.0]])
    >>> round(macro_f1(logits, np.array([0, 1, 0, 2])), 4)
    0.7778
    """
    from sklearn.metrics import f1_score

    given = answers(outputs, y)
    return float(f1_score(given.y, given.guess, average="macro", zero_division=0))


@score(smaller_is_better=False)
def balanced_accuracy(outputs: Any, y: Any) -> float:
    """Return the mean over the classes in ``y`` of the share of their rows that is classified correctly.

    >>> balanced_accuracy(np.array([-1.0, -1.0, -1.0, 1.0, -1.0]), np.array([0, 0, 0, 1, 1]))
    0.75
    """
    from sklearn.metrics import recall_score

    def of(given: Answers) -> float:
        there = np.unique(given.y)
        return float(recall_score(given.y, given.guess, labels=there, average="macro", zero_division=0))

    return _mean(of, answers(outputs, y))


@score(smaller_is_better=False)
def auc(outputs: Any, y: Any) -> float:
    """Return the area under the ROC curve; for more than two classes, the mean of each class in ``y`` against the rest.

    It is undefined (NaN) if all rows are of one class.

    >>> auc(np.array([-2.0, 0.5, 0.0, 3.0]), np.array([0, 0, 1, 1]))
    0.75
    >>> auc(np.array([-2.0, 0.5]), np.array([1, 1]))
    nan
    """
    from sklearn.metrics import roc_auc_score

    def of(given: Answers) -> float:
        there, logits = np.unique(given.y), given.logits
        if len(there) < 2:
            return float("nan")
        if given.kind == "binary" or logits.shape[1] == 2:
            return float(roc_auc_score(given.y, logits if logits.ndim == 1 else logits[:, 1] - logits[:, 0]))
        return float(np.mean([roc_auc_score(given.y == k, given.probabilities[:, k]) for k in there]))

    return _mean(of, answers(outputs, y))


@score(smaller_is_better=True)
def log_loss(outputs: Any, y: Any) -> float:
    """Return the mean of minus the logarithm of the true class's probability, in double precision.

    >>> round(log_loss(np.array([0.0, 0.0]), np.array([0, 1])), 4)
    0.6931
    """
    from sklearn.metrics import log_loss as of_probabilities

    def of(given: Answers) -> float:
        p = given.probabilities
        p = np.stack([1 - p, p], 1) if given.kind == "binary" else p
        return float(of_probabilities(given.y, p, labels=np.arange(p.shape[1])))

    return _mean(of, answers(outputs, y))


@score(smaller_is_better=True)
def brier(outputs: Any, y: Any) -> float:
    """Return the mean squared error of the probabilities: of the second of two classes, or summed over more classes.

    >>> brier(np.array([0.0, 0.0]), np.array([0, 1]))
    0.25
    """
    from sklearn.metrics import brier_score_loss

    def of(given: Answers) -> float:
        p = given.probabilities
        if given.kind == "binary" or p.shape[1] == 2:
            return float(brier_score_loss(given.y, p if p.ndim == 1 else p[:, 1], pos_label=1))
        return float(np.mean(((p - (given.y[:, None] == np.arange(p.shape[1]))) ** 2).sum(1)))

    return _mean(of, answers(outputs, y))


class Answers(NamedTuple):
    """Logits and labels in scikit-learn's form; ``kind`` is ``"binary"``, ``"classes"`` or ``"labels"``.

    ``logits`` is [n] for one binary question, else [n, classes or labels].
    """

    kind: str
    logits: np.ndarray
    y: np.ndarray

    @property
    def guess(self) -> np.ndarray:
        """The predicted labels: the largest logit, or whether it is positive."""
        return self.logits.argmax(-1) if self.kind == "classes" else (self.logits > 0).astype(int)

    @property
    def probabilities(self) -> np.ndarray:
        """The probabilities, in double precision."""
        from scipy.special import expit, softmax

        return np.asarray(softmax(self.logits, -1) if self.kind == "classes" else expit(self.logits))


def answers(outputs: Any, y: Any) -> Answers:
    """Return outputs and targets in one of three kinds; refuse other shapes, and targets that are no labels."""
    outputs, y = as_numpy(outputs).astype(float), as_numpy(y)
    if y.shape == outputs.shape and y.ndim > 1 and y.shape[-1] > 1:
        return Answers("labels", outputs.reshape(-1, y.shape[-1]), labels(y, 2).reshape(-1, y.shape[-1]))
    if outputs.size == y.size:
        return Answers("binary", outputs.reshape(-1), labels(y, 2).reshape(-1))
    if outputs.shape[:-1] == (y.shape[:-1] if y.shape[-1:] == (1,) else y.shape):
        return Answers("classes", outputs.reshape(-1, outputs.shape[-1]), labels(y, outputs.shape[-1]).reshape(-1))
    raise ValueError(
        f"outputs of shape {outputs.shape} and targets of shape {y.shape} do not fit: give logits [n, classes] with "
        "labels [n], one logit per row with labels 0 and 1, or logits and zeros and ones of the same shape"
    )


def labels(y: np.ndarray, classes: int) -> np.ndarray:
    """Return targets as labels; refuse other numbers, such as the targets of a regression."""
    found = y.astype(int) if y.dtype.kind in "biuf" else np.full(y.shape, -1)
    wrong = (found != y) | (found < 0) | (found >= classes)
    if wrong.any():
        first = y[wrong].flat[0]
        problem = (
            f"{first:g}, outside 0 to {classes - 1}"
            if first == np.floor(first)
            else f"{first:g}; labels are whole numbers from 0 to {classes - 1}"
        )
        raise ValueError(f"a score of labels got the target {problem}; for a regression, measure an error instead")
    return found


def _mean(score: Callable[[Answers], float], given: Answers) -> float:
    """Return a score; for several labels, the mean over those that define it."""
    if given.kind != "labels":
        return score(given)
    each = np.array([score(Answers("binary", given.logits[:, k], given.y[:, k])) for k in range(given.y.shape[1])])
    return float(each[~np.isnan(each)].mean()) if not np.isnan(each).all() else float("nan")
