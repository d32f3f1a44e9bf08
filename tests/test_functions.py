"""Digests of functions: equal where they surely do the same, in every process; different where they may not."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import losac
from losac._functions import digest

SCALE = 2.0


def times(scale):
    return lambda value: scale * value


def with_default(scale):
    def function(value, scale=scale):
        return value * scale

    return function


def keyword_only(scale):
    def function(value, *, scale=scale):
        return value * scale

    return function


class Callable:
    """Something with a value, which is called."""

    def __init__(self, scale):
        self.scale = scale

    def __call__(self, value):
        return self.scale * value

    def method(self, value):
        return self.scale + value


def inner(scale):
    def outer(value):
        return times(scale)(value)

    return outer


def of_class(scale):
    class Local:
        def __call__(self, value):
            return value * {"one": 1.0, "two": 2.0}["one" if scale == 1.0 else "two"] * factor()

    def factor():
        return scale

    return Local()


MAKERS = {
    "closure": times,
    "default": with_default,
    "keyword": keyword_only,
    "object": Callable,
    "method": lambda scale: Callable(scale).method,
    "nested": inner,
    "partial": lambda scale: functools.partial(times(1.0), scale),
    "partial of a closure": lambda scale: functools.partial(times(scale)),
    "jit": lambda scale: jax.jit(times(scale)),
    "array": lambda scale: times(np.full(3, scale)),
    "jax array": lambda scale: times(jnp.full(3, scale)),
    "dictionary": lambda scale: times({"a": [scale], "b": ()}),
    "optax": lambda scale: times(optax.sgd(scale)),
    "class made in a function": of_class,
    "vmap": lambda scale: jax.vmap(times(scale)),
    "losac's": lambda scale: losac.losses.SquaredError(losac.models.linear(2), scale),
    "wrapped": lambda scale: functools.wraps(jnp.mean)(times(scale)),
    "schedule": lambda scale: optax.cosine_decay_schedule(scale, 10),
    "joined": lambda scale: optax.join_schedules([times(scale), times(1.0)], [5]),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_a_function_holds_decides_to_the_last_digit(make):
    assert digest(make(1.0)) == digest(make(1.0))
    assert len({digest(make(1.0)), digest(make(2.0)), digest(make(1.0 + 1e-15))}) == (
        3 if make is not MAKERS["jax array"] else 2
    )


def test_code_decides_and_the_function_s_name_does_not():
    def one(a, b):
        return a + b

    def other(a, b):
        return a + b

    assert digest(one) == digest(other)
    assert digest(one) != digest(lambda a, b: a - b)
    assert digest(lambda a: a.sum()) != digest(lambda a: a.mean())
    assert digest(lambda a: (lambda: a + 1)()) != digest(lambda a: (lambda: a + 2)())


def test_globals_count(monkeypatch):
    def function(value):
        return SCALE * value

    before = digest(function)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert digest(function) != before


def test_cycles_and_long_chains_end():
    def itself(value):
        return itself(value - 1) if value else 0

    loop = [itself]
    loop.append(loop)
    chain = ()
    for _ in range(5000):
        chain = (chain,)
    assert digest(times(loop)) == digest(times(loop))
    assert digest(times(chain)) == digest(times(chain))


def test_keys_and_strange_objects_have_digests():
    assert digest(times(jax.random.key(0))) != digest(times(jax.random.key(1)))
    assert digest(times({"b", "a"})) == digest(times({"a", "b"}))
    assert digest(times(object())) == digest(times(object()))  # all that it tells is its type
    assert digest(times(np.array([None, "x"], object))) == digest(times(np.array([None, "x"], object)))


def test_digests_are_the_same_in_every_process():
    code = "import test_functions as t; print([t.digest(make(1.0)) for make in t.MAKERS.values()])"
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])

    def told(seed):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": paths}
        return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert told("1").stdout == told("2").stdout != ""
