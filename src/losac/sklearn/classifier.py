"""Classification by softmax regression, or a network, trained in a federation."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from losac.data import FederatedData
from losac.data.checks import check_dense
from losac.models import Dense
from losac.sklearn.base import Array, FederatedEstimator
from losac.sklearn.penalty import penalty
from losac.task import Task, classification


class FederatedClassifier(ClassifierMixin, FederatedEstimator):  # type: ignore[misc]
    """Logistic or softmax regression, or a network, trained in a simulated federation; a scikit-learn classifier.

    It minimises the mean cross-entropy of all rows plus the penalty, as a single machine would, for any sizes of the
    clients.

    Args:
      algorithm: a name of :data:`losac.algorithms.ALGORITHMS` (``"losac"`` in its exact scaling), or an algorithm with
        all its settings; its own step size, local steps and blocks are then used.
      step_size: η; ``"auto"``: 12/(TL) for LoSAC, with T local steps and L the curvature of the mean loss at its start,
        and 1/L for the others, with L the largest of a client. If a run overshoots (by the end it gives back over 1 %
        of the decrease of its loss), a third and then a twelfth of it are tried. It is found for standardised inputs.
      hidden_layer_sizes: the ReLU units of each hidden layer; none for regression.
      rounds: how many rounds are run.
      clients_per_round: S; all clients by default.
      local_steps, blocks: T and M: a client's steps in a round, and the number of blocks of its rows (at most the rows
        of the smallest client).
      l1, l2: strengths of the penalty l1·‖W‖₁ + l2/2·‖W‖² of the weights on standardised inputs, applied by proximal
        steps; intercepts are not penalised. Algorithms without a proximal step refuse them.
      n_clients, partition: the number of clients to share the rows among, and how (``"iid"``, ``"sorted"``,
        ``"dirichlet:0.3"``…), if ``fit`` gets no groups; never more clients than rows.
      standardize: whether to scale columns to mean 0 and standard deviation 1 before training. The weights kept are for
        unscaled inputs.
      random_state: decides which client holds which rows, which clients take part, and the initial weights.

    Attributes:
      classes_: the labels.
      coefs_, intercepts_: weights and intercepts of each layer.
      clients_: the names of the clients.
      history_: the :class:`losac.History` of the run: losses, bytes, gradients.
      step_size_: the step size used.
      n_iter_: the number of rounds.
      n_features_in_, feature_names_in_: of the inputs seen in ``fit``.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = FederatedClassifier(partition="sorted", random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.95)
    True
    """

    def fit(self, X: Any, y: Any, groups: Any = None) -> FederatedClassifier:
        """Train on rows X [n, features] with labels y; ``groups`` names the client that holds each row."""
        check_dense(X, "X")
        check_dense(y, "y")
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise ValueError(f"y holds one class only, {self.classes_[0]!r}; a classifier needs rows of at least two")
        self._train(X, labels.astype(np.int32), groups, 1 if count == 2 else count, count)
        return self

    def decision_function(self, X: Any) -> Array:
        """Return the logits [n, classes]; for two classes, the logit [n] of the second."""
        outputs = self._outputs(X)
        return outputs[:, 0] if outputs.shape[1] == 1 else outputs

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities [n, classes]."""
        logits = self.decision_function(X)
        return np.column_stack([expit(-logits), expit(logits)]) if logits.ndim == 1 else softmax(logits, axis=1)

    def predict(self, X: Any) -> Array:
        """Return the most probable labels [n]."""
        logits = self.decision_function(X)
        best = (logits > 0).astype(int) if logits.ndim == 1 else logits.argmax(1)
        return np.asarray(self.classes_[best])

    def _task(self, model: Dense, data: FederatedData) -> Task:
        regularizer = penalty(self.l1, self.l2)
        return classification(model, data, reduction="mean", weights="samples", regularizer=regularizer)
