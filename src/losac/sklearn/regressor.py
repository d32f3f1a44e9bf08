"""Least squares, linear or with a network, trained in a federation."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from losac.data import FederatedData
from losac.data.checks import check_dense
from losac.models import Dense
from losac.sklearn.base import Array, FederatedEstimator
from losac.sklearn.penalty import penalty
from losac.task import Task, regression


class FederatedRegressor(RegressorMixin, FederatedEstimator):  # type: ignore[misc]
    """Linear regression, or a network, trained in a simulated federation; a scikit-learn regressor.

    It minimises the mean of half the squared errors of all rows plus the penalty. With ``standardize`` the targets are
    also scaled to mean 0 and standard deviation 1, and the penalty is on the weights in these units. The arguments and
    attributes are those of :class:`FederatedClassifier`, without ``classes_``.

    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = FederatedRegressor(clients_per_round=3, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.5)
    True
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> FederatedRegressor:
        """Train on rows X [n, features] with targets y [n]; ``groups`` names the client that holds each row."""
        check_dense(X, "X")
        check_dense(y, "y")
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        mean, spread = (y.mean(), y.std() or 1.0) if self.standardize else (0.0, 1.0)
        self._train(X, ((y - mean) / spread).astype(np.float32), groups, 1, None)
        self.coefs_[-1] = self.coefs_[-1] * spread
        self.intercepts_[-1] = self.intercepts_[-1] * spread + mean
        return self

    def predict(self, X: Any) -> Array:
        """Return the predictions [n]."""
        return self._outputs(X)[:, 0]

    def _task(self, model: Dense, data: FederatedData) -> Task:
        return regression(model, data, reduction="mean", weights="samples", regularizer=penalty(self.l1, self.l2))
