"""Every algorithm, walked in plain Python, arrives where it did when its equations were last checked."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest

import losac
from trajectories import FILE, Walk, name, walked, walks

FROZEN = json.loads(FILE.read_text())
pytestmark = pytest.mark.quick


@cache
def by_name() -> dict[str, Walk]:
    return {name(walk): walk for walk in walks()}


def test_every_algorithm_has_its_trajectories():
    assert set(by_name()) == set(FROZEN), "run python tests/trajectories.py --write"
    assert {walk.algorithm.label for walk in by_name().values()} == set(losac.algorithms.names())


@pytest.mark.parametrize("key", FROZEN)
def test_trajectory(key: str):
    np.testing.assert_allclose(walked(by_name()[key]), FROZEN[key], rtol=1e-9)
