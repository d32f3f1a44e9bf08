"""Clients with a PyTorch module as their model. PyTorch is an optional dependency: ``pip install losac[torch]``."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from losac._checks import described
from losac._extras import need
from losac._functions import digest_of_arrays
from losac.algorithms import fedavg
from losac.algorithms.contract import Algorithm
from losac.federation.arrays import as_numpy
from losac.federation.central import Central
from losac.federation.eager import CHUNK, EagerWorker
from losac.federation.numpy import same_length
from losac.metrics.declared import check_metrics, is_score, score_of
from losac.trees import Tree, map_trees

Module = Any
"""A ``torch.nn.Module``."""

Function = Callable[[Any, Any], Any]
"""The module's outputs and the targets → a mean over these, a scalar tensor."""


def torch_worker(
    algorithm: Algorithm,
    module: Module,
    loss: Function,
    x: Any,
    y: Any,
    *,
    metrics: Mapping[str, Function] | None = None,
    **options: Any,
) -> EagerWorker:
    """Return a client that computes with a PyTorch module, on the module's device and in its dtype.

    The parameters that the federation trains are those of the module that require a gradient, by name; the others are
    frozen: they are never sent, and server and clients compare only their digests. The module itself is only called, in
    training mode for gradients and in evaluation mode for the loss and the metrics, and its own numbers never change.
    Its persistent floating-point buffers (batch-norm statistics) are the model's state: each
    local step renews them, and their change is sent. Other buffers, such as counters, keep the module's values in every
    step. Randomness in the module (dropout) is a function of the federation's seed, the round, the client and the
    step, and is the same for all gradients of one step.

    Args:
      algorithm: the federation's.
      module: the model; every client's and the server's must have the same parameters.
      loss: ``loss(outputs, y)``: the mean loss over a batch, such as ``torch.nn.functional.cross_entropy``.
      x, y: the client's inputs and targets, row by row: tensors, or arrays, on any device;
        floating-point numbers are brought to the module's dtype.
      metrics: name → ``metric(outputs, y)`` of all rows, such as those of :mod:`losac.metrics`.
      options: ``regularizer``, ``reduction`` and ``local_steps`` of :class:`~losac.federation.eager.EagerOptions`.
    """
    torch = _torch()
    trained = _trained(module)
    names, one = list(trained), next(iter(trained.values()))
    device, dtype = one.device, one.dtype
    x, y = (a if isinstance(a, torch.Tensor) else torch.tensor(np.asarray(a)) for a in (x, y))
    x, y = (a.to(dtype) if a.is_floating_point() else a for a in (x, y))
    same_length(x, y)
    check_metrics(metrics or {}, scores=True)
    fixed = {name: buffer for name, buffer in module.named_buffers() if name not in _buffers(module)}

    def arrays(a: Any) -> Any:
        return a.to(device) if isinstance(a, torch.Tensor) else torch.tensor(np.asarray(a), device=device)

    def call(params: Tree, rows: np.ndarray, buffers: dict[str, Any]) -> tuple[Any, Any]:
        numbers = torch.tensor(rows, device=x.device)
        inputs, targets = x[numbers].to(device), y[numbers.to(y.device)].to(device)
        return torch.func.functional_call(module, {**params, **buffers}, (inputs,)), targets

    def loss_of(*rows: int) -> float:
        with torch.no_grad():
            return float(_one("loss", loss(*call(trained, np.array(rows), fixed | _buffers(module)))))

    if len(x) > 3:
        module.eval()
        _refuse_sum(loss_of(0, 1, 2, 3), loss_of(0, 1), loss_of(2, 3))

    def gradient(params: Tree, rows: np.ndarray, state: Tree, seed: int) -> tuple[Tree, Tree]:
        _, found, after = with_value(params, rows, state, seed)
        return found, after

    def with_value(params: Tree, rows: np.ndarray, state: Tree, seed: int) -> tuple[Any, Tree, Tree]:
        _check_names(params, names)
        module.train()
        leaves = {name: params[name].detach().requires_grad_() for name in names}
        buffers = {name: buffer.clone() for name, buffer in (fixed | dict(state or {})).items()}
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            value = _one("loss", loss(*call(leaves, rows, buffers)))
        found = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
        after = {name: buffers[name] for name in state} if state else state
        return value.detach(), dict(zip(names, found)), after

    def value(params: Tree, rows: np.ndarray, state: Tree) -> dict[str, Any]:
        _check_names(params, names)
        module.eval()
        buffers = fixed | dict(state or {})
        with torch.no_grad():
            parts = [call(params, rows[first : first + CHUNK], buffers) for first in range(0, len(rows), CHUNK)]
            means = [float(_one("loss", loss(*part))) for part in parts]
            mean = means[0] if len(parts) == 1 else sum(len(y) * m for (_, y), m in zip(parts, means)) / len(rows)
            if not metrics:
                return {"loss": mean}
            outputs, targets = parts[0] if len(parts) == 1 else map_trees(lambda *a: torch.cat(a), *parts)
            return {"loss": mean} | {name: _measured(m, outputs, targets) for name, m in metrics.items()}

    shapes = {"params": start_params(module), "model_state": start_state(module)}
    options.setdefault("frozen", digest_of_arrays(frozen_params(module)))
    return EagerWorker(
        algorithm, gradient, len(x), value=value, with_value=with_value, whole=True, arrays=arrays, stateful=True,
        **shapes, **options,
    )  # fmt: skip


def _refuse_sum(both: float, first: float, second: float) -> None:
    """Refuse a loss that sums over rows: on four rows it is the sum of its values on each half, not their mean."""
    total = first + second
    if np.isclose(both, total, rtol=1e-4, atol=0) and not np.isclose(both, total / 2, rtol=1e-4, atol=0):
        raise ValueError(
            f"the loss is a sum over rows: on four rows it is {both:.4g}, on two and two of them {first:.4g} and "
            f"{second:.4g}; return the mean of the batch (in PyTorch, reduction='mean')"
        )


def _measured(metric: Function, outputs: Any, targets: Any) -> Any:
    """Return a metric of a module's outputs; a score is computed in NumPy."""
    return score_of(metric, outputs, targets) if is_score(metric) else _one("metric", metric(outputs, targets))


def _one(name: str, value: Any) -> Any:
    """Return the number that a loss or metric has computed; a loss must be a tensor, which has a gradient."""
    if getattr(value, "shape", None) == () or (name == "metric" and isinstance(value, int | float)):
        return value
    found = f"a tensor of shape {tuple(value.shape)}" if hasattr(value, "shape") else described(value)
    raise TypeError(f"the {name} returned {found}; it must return the mean of the batch, one number")


def torch_central(
    module: Module,
    loss: Function,
    x: Any,
    y: Any,
    *,
    metrics: Mapping[str, Function] | None = None,
    name: str = "torch",
) -> Central:
    """Return the server's part of a federation of PyTorch clients: the module as it starts, and its test data."""
    anything: Any = fedavg
    worker = torch_worker(anything(1.0), module, loss, x, y, metrics=metrics)

    def evaluate(params: Tree, model_state: Tree) -> dict[str, float]:
        found = worker.evaluate(params, model_state)
        return {"test_loss": found.pop("loss"), **found}

    return Central(start_params(module), start_state(module), evaluate=evaluate, name=name, frozen=worker.frozen)


def start_params(module: Module) -> dict[str, np.ndarray]:
    """Return x⁰ for the server: the parameters that require a gradient, by name."""
    return {name: as_numpy(parameter).copy() for name, parameter in _trained(module).items()}


def frozen_params(module: Module) -> dict[str, np.ndarray]:
    """Return the parameters that require no gradient, by name: they are neither trained nor sent."""
    fixed = {name: parameter.detach() for name, parameter in module.named_parameters() if not parameter.requires_grad}
    short = _torch().bfloat16  # which NumPy does not know: its bits tell two of them apart as well
    return {name: as_numpy(a.view(_torch().int16) if a.dtype == short else a) for name, a in fixed.items()}


def start_state(module: Module) -> Any:
    """Return the model's first state for the server: the persistent floating-point buffers by name; () if none."""
    return {name: as_numpy(buffer).copy() for name, buffer in _buffers(module).items()} or ()


def without_weights(module: Module) -> Module:
    """Return a copy of a module with all trained parameters and buffers zero."""
    zero = copy.deepcopy(module)
    with _torch().no_grad():
        for value in (_trained(zero) | _buffers(zero)).values():
            value.zero_()
    return zero


def load_into(module: Module, params: Mapping[str, Any], model_state: Tree = ()) -> None:
    """Put the federation's model, with its state, into a module."""
    torch = _torch()
    _check_names(params, list(_trained(module)))
    own = _trained(module) | _buffers(module)
    with torch.no_grad():
        for name, value in {**params, **dict(model_state or {})}.items():
            own[name].copy_(torch.tensor(np.asarray(value)))


def _trained(module: Module) -> dict[str, Any]:
    """Return the parameters that are trained; refuse dtypes that the federation does not compute in."""
    torch = _torch()
    found = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    kinds = {parameter.dtype for parameter in found.values()}
    if len(kinds) != 1 or not kinds <= {torch.float32, torch.float64}:
        raise ValueError(
            f"the module's trained parameters have the dtypes {sorted(map(str, kinds))}; they must be float32, or all "
            "float64: call module.float() (torch.autocast inside the module still computes in less)"
        )
    return found


def _check_names(params: Mapping[str, Any], names: list[str]) -> None:
    """Refuse a model that is not the module's."""
    if set(params) != set(names):
        raise ValueError(
            f"the federation's parameters {sorted(params)} are not those that the module trains, {sorted(names)}: give "
            "every client the same module, and the server start_params of it"
        )


def _buffers(module: Module) -> dict[str, Any]:
    """Return the buffers that are the model's state."""
    kept = module.state_dict()
    return {name: b for name, b in module.named_buffers() if name in kept and b.is_floating_point()}


def _torch() -> Any:
    return need("torch", "a client in PyTorch", "torch")
