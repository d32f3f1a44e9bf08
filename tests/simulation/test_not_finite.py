"""Numbers that are not finite are found where they come from, and not blamed on the step size."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import losac
from problems import quadratic

PROBLEM = quadratic(clients=3, samples=4, dim=2)
TASK, FEDAVG = PROBLEM.task, losac.algorithms.fedavg(0.01)
TEST = (np.ones((4, 2)), np.ones(4))


def with_(**changes: Any) -> losac.Task:
    return dataclasses.replace(TASK, **changes)


def data_of(x: Any, y: Any) -> losac.FederatedData:
    return losac.FederatedData.from_clients([(x, y)] * 3)


def nan_after(params: Any, batch: Any) -> Any:
    """A metric that is NaN once the model has moved."""
    return jnp.where(jnp.abs(params).max() > 0, jnp.nan, 1.0)


def loss_that_breaks(params: Any, batch: Any) -> Any:
    """A loss that turns to NaN once the model has moved, and a gradient that stays finite."""
    value = ((batch[0] @ params - batch[1]) ** 2).mean()
    return value + jnp.where(jnp.abs(params).max() > 0, jnp.nan, 0.0)


RUNS = {
    "device": lambda task, **run: losac.simulate(task, FEDAVG, **run),
    "memory": lambda task, **run: losac.simulate(task, FEDAVG, store="memory", **run),
    "sweep": lambda task, **run: losac.sweep(task, FEDAVG, {"step_size": [0.01, 0.02]}, **run),
}
BEFORE_ANY_STEP = {
    "test inputs": (lambda: with_(test=(np.full((4, 2), np.nan), TEST[1])), "test .*nan in x"),
    "test targets": (lambda: with_(test=(TEST[0], np.array([0, 1, np.inf, 0]))), "test .*inf in y"),
    "initial parameters": (lambda: with_(params=np.array([0.0, np.nan])), "initial parameter.*nan"),
    "inputs": (
        lambda: with_(data=data_of(np.full((2, 2), 1e39), np.ones(2)), test=None),
        r"1e\+39 is too large for float32",
    ),
    "whole numbers": (
        lambda: with_(data=data_of(np.ones((2, 2)), np.full(2, 2**40)), test=None),
        "1099511627776 is too large",
    ),
    "squares": (
        lambda: with_(data=data_of(np.full((2, 2), 1e30), np.full(2, 1e30)), test=None),
        "training loss is inf at the start, before any step",
    ),
    "metric": (lambda: with_(metrics={"share": lambda p, b: jnp.nan + p.sum()}), "metric 'share' is nan at the start"),
}


@pytest.mark.parametrize("engine", RUNS)
@pytest.mark.parametrize("name", BEFORE_ANY_STEP)
def test_what_is_not_finite_before_any_step_is_named(name, engine):
    make, words = BEFORE_ANY_STEP[name]
    with pytest.raises(ValueError, match=words) as caught:
        RUNS[engine](make(), rounds=3)
    assert "step size" not in str(caught.value)
    assert "step_size" not in str(caught.value)


@pytest.mark.parametrize("loss_every", [1, 2])
@pytest.mark.parametrize("engine", ["device", "memory"])
def test_a_loss_of_nan_with_finite_parameters_ends_a_run(engine, loss_every):
    """At the first round that evaluates it; a loss that was not evaluated is NaN too, and ends nothing."""
    task = with_(loss=loss_that_breaks)
    with pytest.raises(losac.DivergedError) as caught:
        RUNS[engine](task, rounds=6, loss_every=loss_every)
    assert caught.value.history.diverged == loss_every
    assert np.isfinite(caught.value.history.metric("loss")[0])


def test_a_loss_of_nan_marks_a_member():
    swept = RUNS["sweep"](with_(loss=loss_that_breaks), rounds=6, loss_every=2)
    assert [member.diverged for member in swept.members] == [2, 2]
    assert not swept.scores("loss")


@pytest.mark.parametrize("engine", ["device", "memory"])
def test_a_metric_of_nan_is_the_metrics_fault(engine):
    with pytest.raises(
        losac.DivergedError, match=r"metric 'share' is nan, while .* finite: .* not at the step"
    ) as caught:
        RUNS[engine](with_(metrics={"share": nan_after}), rounds=3)
    assert caught.value.history.rounds.tolist() == [0]


def test_pytorch_names_the_same_causes():
    torch = pytest.importorskip("torch")
    from losac.torch import simulate

    def run(data: Any = PROBLEM.data, start: float = 0.0, metric: Any = None, **options: Any) -> Any:
        module = torch.nn.Linear(2, 1, bias=False)
        torch.nn.init.constant_(module.weight, start)
        metrics = {} if metric is None else {"share": metric}
        loss = options.pop("loss", lambda out, y: ((out[:, 0] - y) ** 2).mean())
        return simulate(module, loss, data, FEDAVG, rounds=3, metrics=metrics, **options)

    with pytest.raises(ValueError, match=r"test .*nan in x"):
        run(test=(np.full((4, 2), np.nan), TEST[1]))
    with pytest.raises(ValueError, match=r"initial parameter weight .*nan"):
        run(start=float("nan"))
    with pytest.raises(ValueError, match=r"1e\+39 is too large for float32"):
        run(data_of(np.full((2, 2), 1e39), np.ones(2)))
    with pytest.raises(ValueError, match="metric 'share' is nan at the start"):
        run(metric=lambda out, y: torch.tensor(float("nan")))
    with pytest.raises(losac.DivergedError, match="metric 'share' is nan, while"):
        run(metric=lambda out, y: torch.tensor(float("nan")) if out.abs().sum() > 0 else torch.tensor(1.0))
    with pytest.raises(losac.DivergedError) as caught:
        run(loss=lambda out, y: ((out[:, 0] - y) ** 2).mean() + torch.where(out.detach().abs().max() > 0, torch.nan, 0))
    assert caught.value.history.diverged == 1
