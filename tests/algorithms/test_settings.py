"""Settings: pytrees whose numbers are leaves, checked before anything is traced."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest

import losac
from problems import quadratic

A = losac.algorithms


def test_numbers_are_leaves_and_counts_are_static():
    algorithm = A.losac(0.1, 4, 5, scaling="exact", correction=0.5)
    assert jax.tree.leaves(algorithm) == [0.1, 0.5, 1.0]
    doubled = jax.tree.map(lambda v: 2 * v, algorithm)
    assert (doubled.step_size, doubled.correction, doubled.server_step) == (0.2, 1.0, 2.0)
    assert (doubled.local_steps, doubled.blocks, doubled.scaling) == (4, 5, "exact")
    assert jax.tree.structure(algorithm) == jax.tree.structure(algorithm.replace(step_size=3.0))
    assert jax.tree.structure(algorithm) != jax.tree.structure(algorithm.replace(local_steps=3))


def test_a_batch_of_settings_is_one_pytree():
    stacked = jax.tree.map(lambda *v: np.stack(v), *(A.fedavg(s) for s in (0.1, 0.2)))
    assert stacked.step_size.tolist() == [0.1, 0.2]


def test_schedules_are_static_until_their_round():
    schedule = optax.exponential_decay(1.0, 10, 0.5)
    algorithm = A.fedavg(schedule, 3)
    assert jax.tree.leaves(algorithm) == [1.0]  # the server step
    assert float(algorithm.at(20).step_size) == pytest.approx(0.25)
    assert algorithm.at(20).local_steps == 3


@pytest.mark.parametrize("make", [A.fedmid, A.feddualavg])
def test_a_schedule_of_python_numbers_gives_arrays(make):
    """Uploads that hold step sizes were refused with them, as if the algorithm had a mistake."""
    problem, run = quadratic(clients=3, samples=4, dim=2), {"rounds": 3, "dtype": "float64"}
    for uploads in ((), (A.top_k(1.0, error_feedback=False),)):
        scheduled = losac.simulate(problem.task, make(lambda r: 0.01, 2, uploads=uploads), **run)
        fixed = losac.simulate(problem.task, make(0.01, 2, uploads=uploads), **run)
        np.testing.assert_allclose(scheduled.params, fixed.params, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: A.fedavg(0.0), r"fedavg: step_size=0\.0 must be a positive number"),
        (lambda: A.fedavg(float("nan")), "step_size=nan"),
        (lambda: A.fedavg("0.1"), "step_size='0.1'"),
        (lambda: A.fedavg(True), "step_size=True"),
        (lambda: A.fedavg(lambda r: -1.0), "must be a positive number"),
        (lambda: A.fedavg(0.1, 0), "local_steps=0 must be a whole number of at least 1"),
        (lambda: A.fedavg(0.1, 2.0), r"local_steps=2\.0"),
        (lambda: A.fedavg(0.1, blocks=2, batch_size=3), "not both"),
        (lambda: A.fedavg(0.1, epochs=3), "needs a batch_size"),
        (lambda: A.fedavg(0.1, 2, batch_size=4, epochs=3), "not both"),
        (lambda: A.losac(0.1, batch_size=4), "say blocks=M"),
        (lambda: A.losac(0.1, scaling="exakt"), r"'paper', 'exact' \(did you mean 'exact'\?\)"),
        (lambda: A.losac(0.1, correction=0.5), "belongs to scaling='exact'"),
        (lambda: A.scaffold(0.1, option=3), "must be one of 1, 2"),
        (lambda: A.dsgd(0.1, 5), "use fedavg for local steps"),
    ],
)
def test_wrong_values_are_refused_with_the_way_out(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_unknown_settings_name_the_nearest():
    with pytest.raises(TypeError, match="did you mean 'server_step'"):
        A.scaffold(0.1).replace(serverstep=2.0)


def test_repr_shows_what_was_said():
    assert repr(A.losac(1e-4, 2, 5)) == "losac(step_size=0.0001, local_steps=2, blocks=5)"
    assert repr(A.mime_svrg(0.1)) == "mime_svrg(step_size=0.1)"
