"""The measured step: L is the top eigenvalue of the objective's Hessian, and the step goes by it."""

from __future__ import annotations

import numpy as np
import pytest

import losac
from losac.tuning import curvature, suggest
from losac.tuning.steps import LENGTH
from problems import drawn_clients, quadratic

SIZES = [6, 12, 18, 24]
SHARES = [4.0, 3.0, 2.0, 1.0]
PROBLEM = quadratic(clients=4, samples=SIZES, dim=3)
ALIKE = losac.FederatedData.from_clients([PROBLEM.data.client(3)] * 4)


def linear(data, **options):
    return losac.regression(losac.models.linear(3), data, **options)


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, [1 / 4] * 4),
        ({"reduction": "mean"}, [1 / (4 * n) for n in SIZES]),
        ({"weights": SHARES}, [share / 10 for share in SHARES]),
    ],
    ids=["sum", "mean", "weighted"],
)
def test_the_curvature_is_the_top_eigenvalue_of_the_hessian(options, weights):
    hessian = sum(weight * h for weight, h in zip(weights, PROBLEM.hessians))
    wanted = np.linalg.eigvalsh(hessian)[-1]
    assert curvature(linear(PROBLEM.data, **options), rounds=60) == pytest.approx(wanted, rel=2e-3)


def test_it_does_not_matter_who_measures_where_all_clients_are_alike():
    task, wanted = linear(ALIKE), np.linalg.eigvalsh(PROBLEM.hessians[3])[-1]
    found = [curvature(task, clients_per_round=2, rounds=60, seed=seed) for seed in (0, 5)]
    assert found == pytest.approx([wanted] * 2, rel=2e-3)


def test_the_suggested_step_goes_by_the_steps_the_server_step_and_the_samples():
    task = linear(ALIKE)
    method = suggest(task, local_steps=3, blocks=2)
    assert (method.scaling, method.correction, method.server_step, method.local_steps) == ("exact", None, 1.0, 3)
    assert method.step_size == pytest.approx(LENGTH / (3 * curvature(task)))
    assert suggest(task, local_steps=6, blocks=2).step_size == pytest.approx(method.step_size / 2)
    longer = suggest(task, local_steps=3, blocks=2, server_step=4.0)
    assert (longer.step_size, longer.server_step) == (pytest.approx(method.step_size / 4), 4.0)
    x, y = ALIKE.client(0)
    thrice = losac.FederatedData.from_clients([(np.tile(x, (3, 1)), np.tile(y, 3))] * 4)
    assert suggest(linear(thrice), local_steps=3, blocks=2).step_size == pytest.approx(method.step_size / 3, rel=3e-3)


def test_the_default_correction_is_a_fifth_of_the_root_of_the_share_of_clients():
    settings = {"step_size": 0.1 / PROBLEM.curvature, "local_steps": 1, "blocks": 1, "scaling": "exact"}
    options = {"rounds": 1, "clients_per_round": 2, "dtype": "float64", "seed": 5}
    default, given = (
        losac.simulate(PROBLEM.task, losac.algorithms.losac(**settings, **extra), **options).params
        for extra in ({}, {"correction": 0.5**0.5 / 5})
    )
    np.testing.assert_allclose(default, given, rtol=1e-14)
    clients = [PROBLEM.data.client(int(i)) for i in drawn_clients(5, 0, 4, 2)]
    first = -np.mean([x.T.astype(float) @ y for x, y in clients], 0)
    np.testing.assert_allclose(default, -settings["step_size"] * 0.5**0.5 / 5 * first, rtol=1e-9)
