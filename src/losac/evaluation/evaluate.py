"""``losac.evaluate``: every metric at every client."""

from __future__ import annotations

import numpy as np

from losac._devices import prepare_jax
from losac.data import FederatedData
from losac.evaluation.measure import Metrics, at_clients, dtype_of, measures_of
from losac.evaluation.per_client import PerClient
from losac.evaluation.rows import groups, padded, row_numbers
from losac.simulation.engine import precision
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

    Clients are vectorised in groups that fit into memory; padding is never seen by a metric.

    Args:
      task: the loss, the metrics and the clients.
      params: of the model, such as a history's ``params``.
      model_state: of the model, such as a history's ``model_state``; the task's own by default.
      metrics: name → ``metric(params, (x, y))``; the task's own by default. Metrics are means over rows; one that is
        not (:class:`losac.losses.MicroF1`) says so by an attribute ``coupled = True`` and sees all rows of a client.
      data: on whose rows: held-out rows of the same clients (:func:`losac.hold_out`), or clients that did not take
        part; the task's own, training rows by default.

    >>> import losac
    >>> train, held = losac.hold_out(losac.data.load("digits", clients=10, partition="dirichlet:0.3"))
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), train)
    >>> history = losac.simulate(task, losac.algorithms.fedavg(1e-3), rounds=20, eval_every=20)
    >>> found = losac.evaluate(task, history.params, data=held)
    >>> found.values["accuracy"].shape, found.worst("accuracy") <= found.mean("accuracy")
    ((10,), True)
    """
    prepare_jax()
    data = task.data if data is None else data
    state = task.state if model_state is None else model_state
    measures = measures_of(task, metrics)
    found = np.empty((data.num_clients, len(measures.names)))
    with precision(dtype_of(params)):
        for ids, real, length in groups(data.sizes, row_numbers(data), measures.whole):
            x, y, sizes = padded(data, ids, length)
            even = bool((sizes == length).all())
            found[ids[:real]] = np.asarray(at_clients(measures, even, params, state, x, y, sizes))[:real]
    return PerClient(dict(zip(measures.names, found.T)), data.sizes, data.name)
