"""The accountant: closed forms where there are some, bounds where there are none, and no number without a guarantee."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest

import losac
from lazy import needs
from losac.privacy import epsilon, keeps_state, noise_multiplier_for, typical_norms
from problems import quadratic

pytestmark = needs("dp_accounting")

A = losac.algorithms
DELTA = 1e-5


def exact(multiplier: float, delta: float = DELTA) -> float:
    """ε of one Gaussian mechanism (Balle & Wang): δ = Φ(1/2m − εm) − e^ε Φ(−1/2m − εm)."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    def over(eps: float) -> float:
        a, b = 0.5 / multiplier - eps * multiplier, -0.5 / multiplier - eps * multiplier
        return norm.cdf(a) - math.exp(eps + norm.logcdf(b)) - delta

    return brentq(over, 0, 500)


def method(make: Any = A.fedavg, z: float = 1.0, noise_at: str = "client", **settings: Any) -> Any:
    return make(0.1, uploads=(A.gaussian(1.0, z, noise_at=noise_at),), **settings)


@pytest.mark.parametrize("z", [0.8, 3.0])
@pytest.mark.parametrize("rounds", [1, 25])
@pytest.mark.parametrize("make", [A.fedavg, A.losac, A.scaffold])
def test_uploads_before_the_servers_eyes_are_gaussians_of_half_the_multiplier(make, rounds, z):
    """Replacing a client's data moves an upload of norm ≤ C by up to 2C, and R of them are one of m/√R."""
    found = epsilon(method(make, z), rounds=rounds, clients=50, clients_per_round=5, delta=DELTA)
    assert found == pytest.approx(exact(z / 2 / math.sqrt(rounds)), rel=1e-6)


def test_every_phase_counts():
    run = {"rounds": 8, "clients": 50, "clients_per_round": 5}
    two, twice = epsilon(method(A.mime_svrg), **run), epsilon(method(), **run | {"rounds": 16})
    assert two == pytest.approx(twice, rel=1e-12)
    asked = epsilon(method(A.local_svrg, refresh=0.5), participations=2, **run)
    assert asked == pytest.approx(exact(0.5 / math.sqrt(2 + 8)), rel=1e-6), "one phase asks all clients"


def test_participations_count_and_not_rounds():
    found = epsilon(method(A.scaffold), rounds=400, clients=50, clients_per_round=5, participations=25)
    assert found == pytest.approx(exact(0.5 / 5), rel=1e-6)
    assert epsilon(method(A.scaffold), rounds=400, clients=50, participations=0) == 0


def test_noises_of_many_clients_add_up_outside():
    """All clients in every round: nothing is sampled, and the fewest replies decide."""
    run = {"rounds": 9, "clients": 16, "adversary": "outside"}
    assert epsilon(method(), fewest=16, **run) == pytest.approx(exact(math.sqrt(16) / 2 / 3), rel=1e-6)
    assert epsilon(method(), **run) == pytest.approx(exact(1 / 2 / 3), rel=1e-6), "a round with one reply counts"
    assert epsilon(method(), fewest=4, **run) == pytest.approx(exact(math.sqrt(4) / 2 / 3), rel=1e-6)
    assert epsilon(method(noise_at="server"), **run) == pytest.approx(exact(1 / 2 / 3), rel=1e-6)


@pytest.mark.parametrize("make", [A.losac, A.scaffold, A.feddyn])
def test_client_state_forfeits_amplification_and_the_sum_of_noises(make):
    run = {"rounds": 9, "clients": 100, "clients_per_round": 10, "adversary": "outside", "participations": 4}
    for noise_at in ("client", "server"):
        found = epsilon(method(make, noise_at=noise_at), **run)
        assert found == pytest.approx(exact(1 / 2 / math.sqrt(4)), rel=1e-6)


def test_sampling_amplifies_where_clients_keep_nothing():
    run = {"rounds": 20, "clients": 200, "adversary": "outside"}
    few, all_of_them = (epsilon(method(noise_at="server"), clients_per_round=s, **run) for s in (10, 200))
    assert few < all_of_them / 4
    composed = exact(1 / 2 / math.sqrt(20))
    assert all_of_them == pytest.approx(composed, rel=1e-6)
    nearly = epsilon(method(noise_at="server"), clients_per_round=199, **run)
    assert nearly <= composed * (1 + 1e-9), "amplification is never counted as a loss"


def test_rényi_composition_is_an_upper_bound_within_a_tenth():
    """At q = 1 both ways are at hand: RDP is above the exact value, by less than 10 %."""
    dp = pytest.importorskip("dp_accounting")
    accountant = dp.rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp.SampledWithoutReplacementDpEvent(5, 5, dp.GaussianDpEvent(2.0)), 12)
    bound, true = accountant.get_epsilon(DELTA), exact(2.0 / math.sqrt(12))
    assert true <= bound <= 1.1 * true


@pytest.mark.parametrize("adversary", ["server", "outside"])
def test_more_noise_fewer_rounds_and_a_larger_delta_are_more_private(adversary):
    run = {"rounds": 10, "clients": 50, "clients_per_round": 5, "adversary": adversary}
    base = epsilon(method(), **run)
    assert epsilon(method(z=2.0), **run) < base
    assert epsilon(method(), **run | {"rounds": 5}) < base
    assert epsilon(method(), **run, delta=1e-3) < base
    assert epsilon(method(A.mime_svrg), **run) > base


@pytest.mark.parametrize(
    ("made", "run"),
    [
        (method(A.losac), {"rounds": 30, "clients": 20}),
        (method(A.losac, noise_at="server"), {"rounds": 30, "clients": 20, "adversary": "outside"}),
        (method(), {"rounds": 5, "clients": 100, "clients_per_round": 10, "adversary": "outside"}),
    ],
    ids=["server", "outside", "sampled"],
)
def test_the_noise_for_an_epsilon_gives_that_epsilon(made, run):
    z = noise_multiplier_for(made, epsilon=3.0, **run)
    (noise,) = made.uploads
    found, less = (epsilon(made.replace(uploads=(noise.replace(noise_multiplier=v),)), **run) for v in (z, 0.999 * z))
    assert found <= 3.0 < less


def test_no_noise_is_no_privacy_and_other_refusals():
    run = {"rounds": 5, "clients": 10}
    with pytest.raises(ValueError, match="only clips"):
        epsilon(method(z=0.0), **run)
    with pytest.raises(ValueError, match="does not protect from the server"):
        epsilon(method(noise_at="server"), **run)
    with pytest.raises(ValueError, match="0 gaussian transforms"):
        epsilon(A.fedavg(0.1), **run)
    with pytest.raises(ValueError, match="weighting='loss'"):
        epsilon(method(weighting="average"), adversary="outside", **run)
    for wrong in (
        {"delta": 0.0},
        {"clients_per_round": 11},
        {"fewest": 11},
        {"participations": 6},
        {"adversary": "me"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            epsilon(method(), **run | wrong)
    with pytest.raises(ValueError, match="out of reach"):
        noise_multiplier_for(method(), epsilon=1e-9, **run, delta=1e-12)


def test_the_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match=r"losac\[privacy\]"):
        epsilon(method(), rounds=5, clients=10)


def test_who_keeps_state():
    kept = {name for name, make in A.ALGORITHMS.items() if keeps_state(make(0.1))}
    assert {"losac", "scaffold", "feddyn", "fedadmm", "vrl_sgd", "fedsaga"} <= kept
    assert not kept & {"fedavg", "dsgd", "fedprox", "mime_svrg", "mime", "fedcm", "fedadam"}
    assert keeps_state(A.fedavg(0.1, uploads=(A.top_k(0.5),)))


def test_typical_norms_are_the_medians_of_what_is_sent():
    """DSGD sends ∇f_i(x⁰) in the first round, and MimeSVRG in its first phase too."""
    problem = quadratic(clients=7)
    x, y = zip(*map(problem.data.client, range(7)))
    median = np.median([np.linalg.norm(a.T @ b) for a, b in zip(x, y)])
    (found,) = typical_norms(problem.task, A.dsgd(0.01), rounds=1)
    assert found == {"upload": pytest.approx(median, rel=1e-5)}
    first, own = typical_norms(problem.task, A.mime_svrg(1e-3, 2), rounds=1)
    assert first == {"upload": pytest.approx(median, rel=1e-5)}
    assert set(own) == {"upload"}
    (pair,) = typical_norms(problem.task, A.losac(1e-4, 2, 2), rounds=3, clients_per_round=2)
    assert pair["phi"] > 100 * pair["x"] > 0
