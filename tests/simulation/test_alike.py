"""Functions that are made again share a compiled program where they surely do the same, and only there."""

from __future__ import annotations

import functools
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import losac
from losac.simulation.program import cache as programs
from losac.simulation.program.alike import first_alike, meaning
from problems import quadratic

PROBLEM = quadratic(clients=3, samples=4, dim=2)
SCALE = 2.0
TABLE = np.ones(2)
POLYNOMIAL = np.poly1d([1.0])


class Number(float):
    """A number with an attribute that may change."""


def times_scale(value: Any) -> Any:
    return SCALE * value


@functools.wraps(jnp.mean)
def scaled_mean(value: Any) -> Any:
    return SCALE * jnp.mean(value)


PARTIAL = functools.partial(times_scale)
JAX_PARTIAL = jax.tree_util.Partial(times_scale)
SCHEDULE = optax.join_schedules([lambda step: SCALE, lambda step: SCALE], [9])


def scaled(scale: Any) -> Any:
    return lambda params, batch: scale * jnp.mean((batch[0] @ params - batch[1]) ** 2)


def residual(params: Any, batch: Any, power: int = 2) -> Any:
    return jnp.mean((batch[0] @ params - batch[1]) ** power)


def run(loss: Any) -> np.ndarray:
    task = losac.Task(loss, np.zeros(2), PROBLEM.data, metrics={"size": lambda p, b: jnp.mean(abs(b[0]))})
    return losac.simulate(task, losac.algorithms.fedavg(0.01), rounds=2).params


def test_a_lambda_made_again_is_no_new_program():
    programs._PROGRAMS.clear()
    first = run(scaled(1.5))
    made = programs.count()
    for _ in range(3):
        np.testing.assert_array_equal(run(scaled(1.5)), first)
    assert programs.count() == made


def test_functions_that_reach_other_values_never_share_one():
    scales = (0.5, 1.0, 1, 0.0, np.array(3.0), jnp.array(3.0))
    wanted = [run(scaled(scale)) for scale in scales]
    assert not np.array_equal(wanted[0], wanted[1])
    for scale, params in zip(scales, wanted):
        np.testing.assert_array_equal(run(scaled(scale)), params)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (scaled(1.0), scaled(1)),
        (scaled(0.0), scaled(-0.0)),
        (scaled(True), scaled(1)),
        (scaled(jnp.array(1.0)), scaled(jnp.array(1.0))),
        (lambda p, b: p, lambda p, b: b),
        (lambda p, b, k=1: p, lambda p, b, k=2: p),
        (lambda p, b, *, k=1: p, lambda p, b, *, k=2: p),
        (functools.partial(residual, power=2), functools.partial(residual, power=4)),
        (scaled(scaled(1.0)), scaled(scaled(2.0))),
    ],
)
def test_what_differs_is_told_apart(first, second):
    assert meaning(first) is not None
    assert meaning(first) != meaning(second)
    assert first_alike(second) is second or meaning(first_alike(second)) == meaning(second)


@pytest.mark.parametrize(
    "function",
    [
        lambda p, b: TABLE @ p,
        scaled(np.ones(2)),
        scaled([1.0]),
        scaled(POLYNOMIAL),
        scaled(Number(1.0)),
        scaled(types.ModuleType("losac.mine")),
        lambda p, b: PROBLEM.task.loss(p, b),
        pytest.raises,
        PROBLEM.task.loss,
    ],
)
def test_what_may_change_stands_for_itself(function):
    assert meaning(function) is None or first_alike(function) is function
    assert first_alike(function) is function


def test_a_name_that_is_bound_again_is_noticed(monkeypatch: pytest.MonkeyPatch):
    def make() -> Any:
        return lambda params, batch: SCALE * jnp.mean((batch[0] @ params - batch[1]) ** 2)

    before = run(make())
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    assert not np.array_equal(run(make()), before)
    monkeypatch.undo()
    np.testing.assert_array_equal(run(make()), before)


@pytest.mark.parametrize(
    "make",
    [
        lambda: lambda p, b: PARTIAL(residual(p, b)),
        lambda: lambda p, b: JAX_PARTIAL(residual(p, b)),
        lambda: lambda p, b: scaled_mean((b[0] @ p - b[1]) ** 2),
        lambda: lambda p, b: SCHEDULE(0) * residual(p, b),
        lambda: lambda p, b: globals()["SCALE"] * residual(p, b),
        lambda: lambda p, b: eval("SCALE") * residual(p, b),
    ],
    ids=["partial", "jax partial", "wraps", "optax", "globals", "eval"],
)
def test_a_name_that_something_of_a_library_reaches_is_noticed(monkeypatch: pytest.MonkeyPatch, make: Any):
    before = run(make())
    np.testing.assert_array_equal(before, run(scaled(SCALE)))
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    np.testing.assert_array_equal(run(make()), run(scaled(4.0)))


def test_a_closure_that_moves_on_is_noticed():
    losses = [lambda p, b: scale * jnp.mean((b[0] @ p - b[1]) ** 2) for scale in (1.0, 2.0)]  # noqa: B023, as users do
    np.testing.assert_array_equal(run(losses[0]), run(losses[1]))
    np.testing.assert_array_equal(run(losses[1]), run(scaled(2.0)))
