"""A step size that sets itself: measured at the start, then steered by the sums that the server receives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import losac
from losac.algorithms import losac_lean, top_k
from losac.algorithms.steering import AIM, GAIN, START, alignment, next_step
from losac.testing import laws
from losac.testing.regimes import FULL, RANDOM_BLOCKS, REGIMES, STEPS, Regime

PROBLEM = laws.problem()
AUTO = losac_lean("auto", STEPS, RANDOM_BLOCKS.blocks)


def run(algorithm: Any, rounds: int, regime: Regime = RANDOM_BLOCKS, **options: Any) -> losac.History:
    given = {"clients_per_round": regime.sampled, "dtype": "float64", "keep_state": True, "eval_every": rounds}
    return losac.simulate(PROBLEM.task, algorithm, rounds=rounds, **given | options)


@pytest.mark.parametrize("regime", REGIMES, ids=lambda regime: regime.name.replace(" ", "-"))
@pytest.mark.parametrize("uploads", [(), (top_k(0.5, error_feedback=False),)], ids=["whole", "top half"])
def test_it_reaches_the_optimum_without_a_step_size(regime: Regime, uploads: Any):
    algorithm = losac_lean("auto", STEPS, regime.blocks, uploads=uploads)
    assert not [str(finding) for finding in laws.fixed_point(algorithm, regime, "exact") if not finding.passed]


def test_one_seed_one_trajectory():
    found = laws.engine_independence(AUTO, RANDOM_BLOCKS) + laws.seed_decides(AUTO, RANDOM_BLOCKS.sampled)
    assert not [str(finding) for finding in found if not finding.passed]


def test_it_measures_first_and_moves_then():
    """In ten rounds x stays while the tables fill; then η = 3/(γTL)."""
    algorithm = losac_lean("auto", STEPS, server_step=2.0)
    first = run(algorithm, 10, FULL, eval_every=10)
    hessian = sum(PROBLEM.hessians) / len(PROBLEM.hessians)
    np.testing.assert_array_equal(first.params, 0)
    np.testing.assert_allclose(first.state.server.phi, -hessian @ PROBLEM.optimum, rtol=1e-9)
    due = START / (2 * STEPS * np.linalg.norm(hessian, 2))
    np.testing.assert_allclose(first.state.server.eta, due, rtol=0.05)
    after = run(algorithm, 11, FULL, eval_every=11)
    assert np.abs(after.params).max() > 0
    changed = float(after.state.server.eta / first.state.server.eta)
    assert changed != 1
    assert np.exp(-GAIN) <= changed <= np.exp(GAIN)


def test_the_rounds_that_measure_are_counted():
    """A model up and two down more, and twice the local gradients."""
    size, sampled = 8 * PROBLEM.optimum.size, RANDOM_BLOCKS.sampled
    early, late = (run(AUTO, rounds, eval_every=10) for rounds in (10, 20))
    assert early.bytes_up[-1] == 10 * sampled * 2 * size
    assert early.bytes_down[-1] == 10 * sampled * (4 * size + 8)
    assert late.bytes_up[-1] - early.bytes_up[-1] == 10 * sampled * size
    assert early.gradients[-1] > late.gradients[-1] - early.gradients[-1]


@pytest.mark.parametrize("wrong", [4.0, 0.01])
def test_a_wrong_start_is_made_good(wrong: float):
    """From four times the measured step, or a hundredth, it arrives all the same."""
    start = run(AUTO, 10)
    server = start.state.server._replace(eta=start.state.server.eta * wrong)
    rest = run(AUTO, 4000, state=start.state._replace(server=server))
    assert PROBLEM.distance(rest.params) < 1e-9


def test_the_alignment_is_that_of_the_gradient():
    """ρ = ⟨φ + e, φ⟩/‖φ‖², e = d̄/u; a step of the length of the minimum along φ turns it to 0."""
    phi, lag = {"w": np.array([3.0, 4.0])}, {"w": np.array([-3.0, -4.0]) / 2}
    share = 1 - (1 - 1 / 4) ** 5
    np.testing.assert_allclose(alignment(phi, lag, 4, 5), 1 - 0.5 / share, rtol=1e-6)
    assert float(alignment(phi, lag, 1, 5)) == 0.5
    assert float(alignment({"w": np.zeros(2)}, lag, 4, 5)) == 1
    np.testing.assert_allclose(
        [next_step(1.0, rho) for rho in (AIM, 5.0, -9.0)], [1, np.exp(GAIN), np.exp(-GAIN)], rtol=1e-6
    )


def test_only_the_word_auto_is_taken_and_a_time_to_measure_belongs_to_it():
    with pytest.raises(ValueError, match=r"step_size='atuo' must be a positive number, .* or one of 'auto'"):
        losac_lean("atuo", 5)
    with pytest.raises(ValueError, match="belongs to step_size"):
        losac_lean(0.1, 5, measuring=lambda r: (r < 3) * 1.0)
    with pytest.raises(ValueError, match="step_size='auto' must be a positive number"):
        losac.algorithms.losac("auto", 5)
    brief = run(losac_lean("auto", 5, 2, measuring=lambda r: (r < 3) * 1.0), 4, eval_every=4)
    assert np.abs(brief.params).max() > 0
