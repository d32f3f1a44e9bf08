"""``losac.evaluate``: every metric at every client."""

from __future__ import annotations

import numpy as np

from losac._devices import prepare_jax
from losac.data import FederatedData
from losac.evaluation.measure import Metrics, at_clients, check_model, dtype_of, measures_of, with_scores
from losac.evaluation.per_client import PerClient
from losac.evaluation.rows import groups, padded, row_numbers
from losac.simulation.engines.resident import precision
from losac.simulation.program.arrays import frozen_weights
from losac.task import Task
from losac.trees import Tree


def evaluate(
    task: Task,
    params: Tree,
    model_state: Tree = None,
    metrics: Metrics | None = None,
    *,
    data: FederatedData | None = None,
) -> PerClient:
    """Return the loss and every metric of a model at every client.

    Clients are vectorised in groups that fit into memory; metrics never see padding.

    Args:
      task: the loss, the metrics and the clients.
      params: the model's parameters, such as a history's ``params``.
      model_state: the model's state, such as a history's ``model_state``; the task's own by default.
      metrics: name → ``metric(params, (x, y))``; the task's own by default. A metric is a mean over rows, or declared
        with :func:`losac.metrics.whole` or :func:`losac.metrics.of_model`; declared ones see all rows of a client. If
        one is undefined at a client (NaN), such as the AUC of a single class, means over the clients leave it out.
      data: the rows to evaluate on: held-out rows of the same clients (:func:`losac.hold_out`), or clients that did not
        take part; by default the task's own training rows.

    >>> import losac
    >>> train, held = losac.hold_out(losac.data.load("digits", clients=10, partition="dirichlet:0.3"))
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), train)
    >>> history = losac.simulate(task, losac.algorithms.fedavg(1e-3), rounds=20, eval_every=20)
    >>> found = losac.evaluate(task, history.params, data=held)
    >>> found.values["accuracy"].shape, found.worst("accuracy") <= found.mean("accuracy")
    ((10,), True)
    """
    prepare_jax()
    check_model(task, params, data)
    data = task.data if data is None else data
    state = task.state if model_state is None else model_state
    measures = measures_of(task, metrics, params, state, data)
    frozen = frozen_weights(task, dtype_of(params))
    found = np.empty((data.num_clients, len(measures.names)))
    with precision(dtype_of(params)):
        for ids, real, length in groups(data.sizes, row_numbers(data), measures.whole):
            x, y, sizes = padded(data, ids, length)
            even = bool((sizes == length).all())
            values = at_clients(measures, even, params, state, frozen, x, y, sizes)
            found[ids[:real]] = with_scores(measures, values, y, sizes)[:real]
    return PerClient(dict(zip(measures.names, found.T)), data.sizes, data.name, measures.undefinable)
