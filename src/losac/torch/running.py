"""``losac.torch.simulate``: one run of one algorithm on a PyTorch module, recorded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from losac._checks import check_count, check_function, check_kind
from losac._functions import digest
from losac.algorithms.aggregation import check_aggregation
from losac.algorithms.contract import Algorithm
from losac.algorithms.privacy import refuse_model_state
from losac.data import FederatedData
from losac.federation.torch import frozen_params, start_params, start_state, without_weights
from losac.history import Callback, History
from losac.history.conditions import conditions
from losac.history.recorder import Recorder
from losac.metrics.declared import check_metrics
from losac.simulation.engines.resident import precision
from losac.simulation.follow import check_observers, follow, header
from losac.simulation.options import (
    ComputeOptions,
    RunOptions,
    SimulationOptions,
    check_keywords,
    names,
    read_options,
    takes_options,
)
from losac.simulation.program import drawing, setup
from losac.simulation.simulate import given_state
from losac.task import Task
from losac.torch.engine import Engine
from losac.torch.options import Function, TorchKeywords, TorchOptions, TorchProblem
from losac.torch.trees import torch


@takes_options(RunOptions, TorchOptions, TorchProblem)
def simulate(
    module: Any,
    loss: Function,
    data: FederatedData,
    algorithm: Algorithm,
    run: RunOptions | None = None,
    compute: TorchOptions | None = None,
    *,
    state: Any = None,
    keep_state: bool = False,
    progress: Callable[[History], None] | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Unpack[TorchKeywords],
) -> History:
    """Simulate a federation with a PyTorch module as its model.

    The algorithm's functions, the clients of each round, the blocks and mini-batches that they draw, and what is
    recorded are those of :func:`losac.simulate`: from the same weights both arrive at the same model, to rounding.

    The trained parameters are those of the module that require a gradient; the others are frozen: not sent, and part
    of what a state belongs to. The module is copied and never changed
    (``losac.torch.load_into(module, history.params, history.model_state)`` puts the result into it). It is in training
    mode for gradients and in evaluation mode for the loss and the metrics. Its persistent floating-point buffers
    (batch statistics) are the model's state: each local step renews them, and the server averages their changes. Its
    randomness (dropout) is a function of the seed, the round, the client and the step.

    Args:
      module: the model, with the weights to start from; the seed does not change these.
      loss: ``loss(outputs, y)``, the mean over a batch, such as ``torch.nn.functional.cross_entropy``.
      data: the clients' data.
      algorithm: from :mod:`losac.algorithms`.
      run, compute: the options as values, which can be passed on whole; keywords replace their fields.
      state: where to continue from, as for :func:`losac.simulate`; a state of one engine is refused by the other.
      keep_state: keep the final state in the history.
      progress, callbacks: as for :func:`losac.simulate`, called at every evaluation.
      options: the fields of ``run`` (:class:`losac.simulation.RunOptions`) as keywords, and:

        - ``metrics``: name → ``metric(outputs, y)`` of all test rows: functions of tensors, or scores of NumPy arrays
          such as those of :mod:`losac.metrics`. Without test rows, and with weights that do not treat all training
          rows alike, a mean over rows, or declared by :func:`losac.metrics.whole` or :func:`losac.metrics.score`.
        - ``reduction``, ``regularizer``, ``weights``, ``test``: as for :class:`losac.Task`.
        - ``dtype``, ``device``: where and with which precision to compute; by default those of the module.
        - ``vectorize``: whether all clients of a round work at once, under ``torch.func.vmap``; by default if that
          gives the same result: not with buffers, dropout, rows that are coupled in the module or the loss, transformed
          uploads or optax.

    Returns:
      The history; its ``params`` are NumPy arrays by the names of the module's parameters.
    """
    run, compute, problem = _read(run, compute, options)
    module = _copy(module, compute)
    if odd := [p.dtype for p in module.parameters() if str(p.dtype) not in ("torch.float32", "torch.float64")]:
        raise ValueError(f"the module has parameters of {odd[0]}; give dtype='float32', or bring it to torch.float32")
    dtype: Any = str(next(iter(start_params(module).values())).dtype)
    task = Task(_computed_in_torch, start_params(module), data, frozen=frozen_params(module) or None, **problem)
    check_function("loss", loss, "loss(outputs, y)", 2)
    metrics = options.get("metrics")
    if metrics is not None:
        check_metrics(metrics, scores=True)
    checked = SimulationOptions.of(task, run, ComputeOptions(dtype=dtype))
    if checked.run.attackers is not None:
        raise ValueError(
            f"attackers={checked.run.attackers}: clients lie in losac.simulate only; leave attackers out of "
            "losac.torch.simulate"
        )
    setup.check(task, algorithm, checked.sampled)
    check_aggregation(algorithm, checked.sampled, data.num_clients, "this module", start_state(module))
    check_observers(keep_state, progress, callbacks)
    refuse_model_state(algorithm, start_state(module))
    for phase in algorithm.phases():
        drawing.cut(phase.draw, np.asarray(data.sizes))
    earlier, given = given_state(state)
    check_count("rounds", run.rounds)
    with precision(dtype):
        engine = Engine(module, loss, metrics, task, algorithm, checked, compute.vectorize)
        if given is not None:
            engine.adopt(given)
        own = {"engine": "torch", "objective": loss, "module_digest": digest(without_weights(module))}
        own["params_digest"] = None  # users draw the weights of a module themselves, for each seed
        own |= {"metric_functions_digest": digest(metrics)} if metrics else {}
        about = conditions(task, checked.conditions() | own)
        recorder = Recorder(
            header(engine, algorithm, run.seed, engine.steps, about), engine.state.round, run.rounds, earlier
        )
        return follow(engine, recorder, keep_state, progress, callbacks)


def _read(
    run: RunOptions | None, compute: TorchOptions | None, keywords: Mapping[str, Any]
) -> tuple[RunOptions, TorchOptions, dict[str, Any]]:
    """Return what to run, how to compute it, and the arguments of the task except its metrics."""
    if compute is not None:
        check_kind("compute", compute, TorchOptions, "such as losac.torch.TorchOptions(dtype='float64')")
    parts = {kind: names(kind) for kind in (RunOptions, TorchOptions, TorchProblem)}
    check_keywords(simulate, keywords, [name for found in parts.values() for name in found])
    mine, how, problem = ({k: keywords[k] for k in found if k in keywords} for found in parts.values())
    problem.pop("metrics", None)
    run, _ = read_options(simulate, run, None, mine)
    return run, replace(compute or TorchOptions(), **how), problem


def _computed_in_torch(params: Any, batch: Any, frozen: Any = None) -> Any:
    """Stand for the loss of the task, which the module and its own loss compute."""
    raise NotImplementedError


def _copy(module: Any, compute: TorchOptions) -> Any:
    """Return the run's own module."""
    pytorch = torch()
    if not isinstance(module, pytorch.nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, not {type(module).__name__}; JAX models: losac.simulate")
    device, dtype = compute.device, compute.dtype
    try:
        own = copy.deepcopy(module).to(device=device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device={device!r} cannot be used: {str(error).strip().splitlines()[0]}") from error
    return own if dtype is None else own.to(dtype=getattr(pytorch, dtype))
