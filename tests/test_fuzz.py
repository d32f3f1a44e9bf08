"""The short form of the fuzzer: the first compositions of seed 0 (``python tests/fuzz.py`` runs thousands)."""

from __future__ import annotations

from collections import Counter

import pytest

import fuzz
import losac.algorithms as A
from fuzz_compositions import compose
from losac.simulation.program.costs import Meter

COUNT = 20


@pytest.mark.parametrize("number", range(COUNT))
def test_what_must_hold_for_any_composition(number: int):
    c = compose(0, number)
    print(c)
    assert fuzz.check(c)


def test_a_mistake_is_noticed(monkeypatch: pytest.MonkeyPatch):
    spent = Meter.price
    monkeypatch.setattr(Meter, "price", lambda *arguments: 1.01 * spent(*arguments))
    with pytest.raises(AssertionError, match="recounted"):
        fuzz.check(compose(0, 0))


def test_compositions_reach_all_algorithms_and_options():
    drawn = [compose(0, number) for number in range(600)]
    assert {c.name for c in drawn} == set(A.ALGORITHMS)
    options = Counter(name for c in drawn for name in c.run)
    assert {"sampling", "local_steps", "loss_every", "gradients", "table_dtype", "layout"} <= set(options)
    settings = Counter(name for c in drawn for name, value in c.algorithm.settings().items() if value not in (None, ()))
    assert {"batch_size", "epochs", "clip_norm", "local_optimizer", "uploads", "blocks"} <= set(settings)
    assert min(Counter(c.kind for c in drawn).values()) > 100
