"""``losac.torch.simulate``: one run of one algorithm on a PyTorch module, recorded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from losac.algorithms.contract import Algorithm
from losac.algorithms.privacy import refuse_model_state
from losac.data import FederatedData
from losac.federation.torch import start_params, start_state
from losac.history import Callback, History
from losac.history.follow import Going, follow
from losac.history.recorder import Header, Recorder
from losac.history.simulate import Dtype, check_counts, make_plan
from losac.prox import Regularizer
from losac.simulation import drawing, setup
from losac.simulation.engine import precision
from losac.task import Examples, Reduction, Task, Weights
from losac.torch.engine import Engine
from losac.torch.trees import torch

Function = Callable[[Any, Any], Any]


def simulate(
    module: Any,
    loss: Function,
    data: FederatedData,
    algorithm: Algorithm,
    *,
    rounds: int,
    clients_per_round: int | None = None,
    seed: int = 0,
    eval_every: int = 1,
    metrics: Mapping[str, Function] | None = None,
    reduction: Reduction = "sum",
    regularizer: Regularizer | None = None,
    weights: Weights = "uniform",
    test: Examples | str | None = "data",
    dtype: Dtype | None = None,
    device: Any = None,
    sampling: Any = "uniform",
    local_steps: Sequence[int] | None = None,
    vectorize: bool | None = None,
    state: Any = None,
    keep_state: bool = False,
    progress: Callable[[History], None] | None = None,
    callbacks: Sequence[Callback] = (),
) -> History:
    """Simulate a federation whose model is a PyTorch module.

    The algorithm's functions, the clients of each round, the blocks and mini-batches that they draw, and what is
    recorded are those of :func:`losac.simulate`: from the same weights both arrive at the same model, to rounding.

    The trained parameters are those of the module that require a gradient; the module is copied and never changed
    (``losac.torch.load_into(module, history.params, history.model_state)`` puts the result into it). It is in training
    mode for gradients and in evaluation mode for the loss and the metrics. Its persistent floating-point buffers
    (batch statistics) are the model's state: each local step renews them, and the server averages their changes. What
    is random in it (dropout) is a function of the seed, the round, the client and the step.

    Args:
      module: the model, with the weights to start from; the seed does not change these.
      loss: ``loss(outputs, y)``, the mean over a batch, such as ``torch.nn.functional.cross_entropy``.
      data: the clients' data.
      algorithm: from :mod:`losac.algorithms`.
      rounds, clients_per_round, seed, eval_every, sampling, local_steps: as for :func:`losac.simulate`.
      metrics: name → ``metric(outputs, y)``, means over a batch.
      reduction, regularizer, weights, test: as for :class:`losac.Task`.
      dtype, device: where and in which precision to compute; by default as the module is.
      vectorize: whether all clients of a round work at once, under ``torch.func.vmap``; by default where that gives the
        same: not with buffers, dropout, rows that are coupled in the module or the loss, transformed uploads or optax.
      state: the history of an earlier run with its state, to go on from.
      keep_state: keep the final state in the history.
      progress, callbacks: as for :func:`losac.simulate`, called at every evaluation.

    Returns:
      The history; its ``params`` are NumPy arrays by the names of the module's parameters.
    """
    module = _copy(module, dtype, device)
    kind = np.dtype(str(next(iter(start_params(module).values())).dtype))
    sampled = data.num_clients if clients_per_round is None and isinstance(data, FederatedData) else clients_per_round
    options: dict[str, Any] = {"reduction": reduction, "regularizer": regularizer, "weights": weights, "test": test}
    task = Task(_computed_in_torch, start_params(module), data, metrics=dict(metrics or {}), **options)
    assert sampled is not None
    plan = make_plan(task, sampled, kind, None, local_steps, None)
    setup.check(task, algorithm, sampled)
    refuse_model_state(algorithm, start_state(module))
    for phase in algorithm.phases():
        drawing.cut(phase.draw, np.asarray(data.sizes))
    check_counts(rounds, eval_every)
    if state is not None and (not isinstance(state, History) or state.state is None):
        raise ValueError("state must be the history of an earlier run that was made with keep_state=True")
    with precision(kind):
        engine = Engine(module, loss, metrics, task, algorithm, plan, seed, vectorize)
        if state is not None:
            engine.adopt(state.state)
        header = Header(algorithm, task.name, seed, engine.sizes, sampled, engine.costs, engine.steps)
        recorder = Recorder(header, engine.state.round, state)
        return follow(engine, recorder, Going(sampling, rounds, eval_every, keep_state, progress, callbacks))


def _computed_in_torch(params: Any, batch: Any) -> Any:
    """Stand for the loss of the task, which the module and its own loss compute."""
    raise NotImplementedError


def _copy(module: Any, dtype: Dtype | None, device: Any) -> Any:
    """Return the run's own module."""
    pytorch = torch()
    if not isinstance(module, pytorch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}; JAX models: losac.simulate")
    if dtype not in (None, "float32", "float64"):
        raise ValueError(f"dtype={dtype!r} must be 'float32' or 'float64'")
    own = copy.deepcopy(module).to(device=device)
    return own if dtype is None else own.to(dtype=getattr(pytorch, dtype))
