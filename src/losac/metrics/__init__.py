"""Metrics of a model: how to declare them, and some of scikit-learn's.

A metric of a task is a function ``metric(params, (x, y))``. The simulator evaluates it row by row and averages, so it
must be a mean over rows. Declare a metric that is not: with :func:`whole` for a JAX function of parameters and rows,
with :func:`score` for a NumPy function of outputs and targets. It then sees all rows at once.
"""

from losac.metrics.declared import falls, of_model, score, whole
from losac.metrics.scores import auc, balanced_accuracy, brier, log_loss, macro_f1

__all__ = [
    "auc",
    "balanced_accuracy",
    "brier",
    "falls",
    "log_loss",
    "macro_f1",
    "of_model",
    "score",
    "whole",
]
