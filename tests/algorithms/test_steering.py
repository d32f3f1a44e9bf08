"""A step size that sets itself: measured at the start, then steered by the sums that the server receives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import losac
from losac.algorithms import losac_lean, qsgd, random_k, top_k
from losac.algorithms.steering import AIM, FALL, GAIN, Signal, alignment, first_length, freshness, steer, visited
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
    """In three rounds x stays while the tables fill; then η is half of what is stable, 1/(γTL) with all clients."""
    algorithm = losac_lean("auto", STEPS, server_step=2.0)
    first = run(algorithm, 3, FULL, eval_every=3)
    hessian = sum(PROBLEM.hessians) / len(PROBLEM.hessians)
    np.testing.assert_array_equal(first.params, 0)
    np.testing.assert_allclose(first.state.server.phi, -hessian @ PROBLEM.optimum, rtol=1e-9)
    due = 1 / (2 * STEPS * np.linalg.norm(hessian, 2))
    np.testing.assert_allclose(first.state.server.eta, due, rtol=0.1)
    after = run(algorithm, 4, FULL, eval_every=4)
    assert np.abs(after.params).max() > 0
    changed = float(after.state.server.eta / first.state.server.eta)
    assert changed != 1
    assert np.exp(-GAIN) <= changed <= np.exp(GAIN)


def test_the_rounds_that_measure_are_counted():
    """A model up and two down more, and twice the local gradients."""
    size, sampled = 8 * PROBLEM.optimum.size, RANDOM_BLOCKS.sampled
    early, late = (run(AUTO, rounds, eval_every=3) for rounds in (3, 6))
    assert early.bytes_up[-1] == 3 * sampled * 2 * size
    assert early.bytes_down[-1] == 3 * sampled * (4 * size + 8)
    assert late.bytes_up[-1] - early.bytes_up[-1] == 3 * sampled * size
    assert early.gradients[-1] > late.gradients[-1] - early.gradients[-1]


@pytest.mark.parametrize("wrong", [4.0, 0.01])
def test_a_wrong_start_is_made_good(wrong: float):
    """From four times the measured step, or a hundredth, it arrives all the same."""
    start = run(AUTO, 3)
    server = start.state.server._replace(eta=start.state.server.eta * wrong)
    rest = run(AUTO, 4000, state=start.state._replace(server=server))
    assert PROBLEM.distance(rest.params) < 1e-9


@pytest.mark.parametrize(
    "compressor",
    [
        top_k(0.2, error_feedback=False, over="model", bits=8),
        random_k(0.3, error_feedback=False),
        random_k(0.3, error_feedback=False, same_places=True),
        qsgd(1, shrink=True),
    ],
    ids=str,
)
def test_strong_compressors_shorten_the_step_instead_of_breaking_it(compressor: Any):
    rest = run(losac_lean("auto", STEPS, RANDOM_BLOCKS.blocks, uploads=(compressor,)), 6000)
    assert PROBLEM.distance(rest.params) < 1e-9


def test_the_alignment_is_that_of_the_gradient():
    """ρ = ⟨φ + e, φ⟩/‖φ‖², and the step follows it, no faster than the table is renewed."""
    phi, lag = {"w": np.array([3.0, 4.0])}, {"w": np.array([-3.0, -4.0]) / 2}
    assert float(alignment(phi, lag)) == 0.5
    assert float(alignment({"w": np.zeros(2)}, lag)) == 1
    signal = Signal(0.0, 25.0, 0.0)
    for rho, turn in ((AIM, 0.0), (5.0, 1.0), (-9.0, -1.0)):
        lag = {"w": (rho - 1) * phi["w"]}
        for renewed in (0.02, 0.5):
            eta, _ = steer(1.0, signal, phi, phi, lag, renewed)
            np.testing.assert_allclose(eta, np.exp(min(GAIN, renewed) * turn), rtol=1e-6)


def test_the_step_falls_when_phi_has_grown():
    """From the least ‖φ‖² so far to more than four times that; then the count starts again, and changes are smaller."""
    phi, none = {"w": np.array([1.0])}, {"w": np.zeros(1)}
    eta, signal = steer(1.0, Signal(0.0, 1.0, 0.0), phi, {"w": np.array([2.1])}, none, 1.0)
    np.testing.assert_allclose(eta, FALL * np.exp(GAIN / 2 * (1 - AIM)), rtol=1e-6)
    np.testing.assert_allclose(signal, [0, 2.1**2, 1], rtol=1e-6)
    _, signal = steer(1.0, signal, phi, {"w": np.array([2.2])}, none, 1.0)
    np.testing.assert_allclose(signal, [0, 2.1**2, 1], rtol=1e-6)


def test_a_table_that_fills_is_no_growth():
    """With a share r of the table still zero φ is (1 − r) of its length to come."""
    signal = Signal(1.0, 0.0, 0.0)
    for k in range(1, 30):
        phi = {"w": np.array([1 - 0.9**k])}
        _, signal = steer(1.0, signal, phi, phi, phi, 0.1)
        np.testing.assert_allclose(signal, [0.9**k, 1, 0], rtol=1e-6)


@pytest.mark.parametrize("renewed", [1.0, 0.5, 0.1, 0.007])
def test_it_starts_at_half_of_what_is_stable(renewed: float):
    """φ ← φ + p(hx − φ), x ← x − α(φ + a(hx − φ)) is stable just below αh = (4 − 2p)/(2a − p), and not above."""
    a, length = freshness(renewed), 2 * first_length(renewed, 10**6)

    def radius(length: float) -> float:
        return max(abs(np.linalg.eigvals([[1 - renewed, renewed], [-length * (1 - a), 1 - length * a]])))

    assert radius(0.99 * length) < 1 < radius(1.01 * length)


def test_the_server_weighs_the_uploads_by_what_they_renew():
    """φ + a·e, where e is the mean upload over the share u of its blocks that a client visits; δ_s says otherwise."""
    measured = run(AUTO, 3)
    clients, sampled = len(PROBLEM.hessians), RANDOM_BLOCKS.sampled
    share = visited(RANDOM_BLOCKS.blocks, STEPS)
    a, x, phi = freshness(share * sampled / clients), measured.params, measured.state.server.phi
    moved = run(AUTO, 1, state=measured.state)
    total = (moved.state.server.phi - phi) * clients
    due = x - measured.state.server.eta * STEPS * (phi + a * total / (sampled * share))
    np.testing.assert_allclose(moved.params, due, rtol=1e-9)
    by_hand = AUTO.replace(server_correction=a * STEPS / (share * RANDOM_BLOCKS.blocks))
    np.testing.assert_allclose(run(by_hand, 1, state=measured.state).params, due, rtol=1e-9)


def test_a_federation_that_starts_again_keeps_the_step():
    start = run(AUTO, 20).state.server
    again = AUTO.at(20).restart(start)
    assert float(again.eta) == float(start.eta) > 0
    np.testing.assert_array_equal(again.x, start.x)
    np.testing.assert_array_equal(again.phi, 0)


def test_where_there_is_no_curvature_nothing_is_nan():
    """A flat loss stays where it is; one without a bound runs away, and the error takes the word for what it is."""
    flat = replace(PROBLEM.task, loss=lambda x, batch: 0.0 * (batch[0] @ x).sum())
    assert losac.simulate(flat, AUTO, rounds=5).final("loss") == 0
    steep = replace(PROBLEM.task, loss=lambda x, batch: jnp.log(1 + jnp.mean(x)) + 0 * batch[0].sum())
    with pytest.raises(losac.DivergedError, match=r"losac_lean with step_size='auto' diverged .* try a number, or"):
        losac.simulate(steep, AUTO, rounds=50, eval_every=10)


@pytest.mark.parametrize(("first", "then"), [(AUTO, AUTO.replace(step_size=0.1)), (AUTO.replace(step_size=0.1), AUTO)])
def test_a_state_knows_whether_its_step_sets_itself(first: Any, then: Any):
    kept = run(first, 1, FULL)
    for state in (kept, kept.state):
        with pytest.raises(ValueError, match=r"with step_size='a.*' \(here 'a.*the server keeps .* begin a new run"):
            run(then, 1, FULL, state=state)


def test_only_the_word_auto_is_taken_and_a_time_to_measure_belongs_to_it():
    with pytest.raises(ValueError, match=r"step_size='atuo' must be a positive number, .* or one of 'auto'"):
        losac_lean("atuo", 5)
    with pytest.raises(ValueError, match="belongs to step_size"):
        losac_lean(0.1, 5, measuring=lambda r: (r < 3) * 1.0)
    with pytest.raises(ValueError, match="step_size='auto' must be a positive number"):
        losac.algorithms.losac("auto", 5)
    longer = losac_lean("auto", 5, 2, measuring=lambda r: (r < 5) * 1.0)
    assert not np.abs(run(longer, 5, eval_every=5).params).any()
    assert np.abs(run(longer, 6, eval_every=6).params).max() > 0
