"""The studies of the theory: the probe against the simulator and NumPy, and verdicts computed from made-up results."""

from __future__ import annotations

import itertools
import math

import jax
import numpy as np
import pytest

import losac.algorithms as A
from losac.simulation import Layout
from losac.simulation.engines.resident import ResidentEngine, precision
from losac.simulation.options import SimulationOptions
from losac.simulation.program import rounds as program
from losac.task import Task
from losac_reproduction import JobResult, Options, probe
from losac_reproduction.convex import convex, logistic_optimum, smooth
from losac_reproduction.studies import divergence, lasso, lemma1, lemmas, theorem1
from losac_reproduction.studies.divergence import Key, looks
from losac_reproduction.studies.theorem1 import (
    best_share,
    exponents,
    greatest_h,
    least_condition,
    level,
    rate,
    reach,
)
from problems import blocks_of, drawn_blocks, drawn_clients, quadratic

STEPS, BLOCKS, SAMPLED = 3, 4, 2
PROBLEM = quadratic(clients=6)
ETA = 0.1 / PROBLEM.curvature


def played(algorithm, rounds: int = 2):
    """The probe's local models of the next round, the state before it, and the model after it by the simulator."""
    where = Layout(SAMPLED, 1)
    options = SimulationOptions.of(
        PROBLEM.task,
        rounds=rounds,
        clients_per_round=SAMPLED,
        seed=5,
        dtype="float64",
        layout=where,
        gradients="formed",
    )
    with precision(np.float64):
        engine = ResidentEngine(PROBLEM.task, algorithm, options)
        step = jax.jit(program.one_round, static_argnums=0)
        state, active = engine.state, np.ones(SAMPLED, bool)
        for r in range(rounds):
            ids = drawn_clients(5, r, 6, SAMPLED).astype(np.int32)
            state = step(engine.shape, engine.problem, state, ids, active)
        ids = drawn_clients(5, rounds, 6, SAMPLED).astype(np.int32)
        key = jax.random.fold_in(state.key, state.round)
        models = jax.jit(probe.play, static_argnums=0)(engine.shape, engine.problem, state, ids, key)
        after = step(engine.shape, engine.problem, state, ids, active)
        return (
            np.asarray(models),
            np.asarray(algorithm.model(state.server)),
            np.asarray(algorithm.model(after.server)),
            ids,
        )


@pytest.mark.parametrize(
    "algorithm",
    [A.fedavg(ETA, STEPS, BLOCKS), A.mime_svrg(ETA, STEPS, BLOCKS), A.losac(ETA / 10, STEPS, BLOCKS)],
    ids=lambda a: a.label,
)
def test_the_probe_sees_the_simulator(algorithm):
    """The local models start at the server's, and their ends make its next: by the mean, or LoSAC's sum over N."""
    models, before, after, _ = played(algorithm)
    assert models.shape == (SAMPLED, STEPS + 1, 4)
    np.testing.assert_array_equal(models[:, 0], np.broadcast_to(before, (SAMPLED, 4)))
    share = 1 / 6 if algorithm.table else 1 / SAMPLED
    np.testing.assert_allclose(before + share * (models[:, -1] - before).sum(0), after, rtol=1e-14, atol=1e-15)


def test_directions_are_the_block_gradients_of_fedavg():
    """d_i^t = g_ij(x_i^t) with the blocks that the engine draws, in NumPy."""
    models, _, _, ids = played(A.fedavg(ETA, STEPS, BLOCKS))
    for trail, client in zip(models, ids):
        x, y = (blocks_of(a, BLOCKS) for a in PROBLEM.data.client(int(client)))
        for t, j in enumerate(drawn_blocks(5, 2, int(client), STEPS, BLOCKS)):
            expected = BLOCKS * x[j].T @ (x[j] @ trail[t] - y[j])
            np.testing.assert_allclose((trail[t] - trail[t + 1]) / ETA, expected, rtol=1e-9, atol=1e-9)


def test_seen_against_numpy():
    """With one client of one block and T = 1, all that the probe sees of gradient descent has a closed form."""
    task, x = PROBLEM.task, np.zeros(4)
    found = probe.trace(
        task, A.fedavg(ETA, 1, 1), 0, sampled=6, at=[0], plays=2, graded=[0], dtype="float64"
    )[0]  # fmt: skip
    each = [a.T @ (a @ x - b) for a, b in map(task.data.client, range(6))]
    mean = np.mean(each, axis=0)
    assert found["square"][0] == pytest.approx(np.mean([g @ g for g in each]), rel=1e-9)
    spread = sum((g - mean) @ (g - mean) for g in each) / 6 * 12 / 11
    assert found["variance"][0] == pytest.approx(spread, rel=1e-9)
    assert found["gradient"][0] == pytest.approx(mean @ mean, rel=1e-9)
    assert found["towards"][0] == pytest.approx(mean @ mean, rel=1e-9)
    assert found["slope"] == pytest.approx(mean @ mean, rel=1e-9)
    assert found["bias"] == pytest.approx(0, abs=1e-6)
    assert found["way"][0] == pytest.approx(ETA * np.linalg.norm(mean), rel=1e-9)
    assert found["spread"][0] == pytest.approx(ETA * np.mean([np.linalg.norm(g - mean) for g in each]), rel=1e-9)


def test_a_random_number_of_steps_is_refused():
    with pytest.raises(ValueError, match="no fixed number of local steps"):
        probe.trace(PROBLEM.task, A.tamuna(ETA, blocks=BLOCKS, probability=0.5), 0, sampled=2, at=[0], dtype="float64")


def test_newton_finds_the_optimum():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 5)), rng.integers(0, 2, 200).astype(float)
    w = logistic_optimum(x, y, 0.1)
    assert np.abs(x.T @ (1 / (1 + np.exp(-x @ w)) - y) / 200 + 0.1 * w).max() < 1e-15


def test_the_distance_is_one_at_the_start():
    made = convex("quadratic")
    assert isinstance(made.task, Task)
    assert float(made.task.metrics["distance"](np.zeros(4), None)) == pytest.approx(1)
    assert float(made.task.metrics["distance"](made.optimum, None)) == pytest.approx(0)


def test_h_is_never_positive():
    """Theorem 1 with the paper's |D| and N, against a search over α, β and μ/L of h as printed."""
    rows, clients = 7352, 100
    alpha, beta, share = np.meshgrid(np.logspace(-2, 4, 121), np.logspace(-6, 2, 33), np.linspace(0.01, 1, 34))
    h = share * (2 * rows + clients) / (1 + alpha) - (1 + share / alpha) * (1 + beta) * (rows + clients)
    assert h.max() < 0
    assert greatest_h(rows, clients) == pytest.approx(h.max() / (rows + clients), rel=1e-3)
    assert least_condition(rows, clients) > 5


def test_rates_and_levels():
    rounds = np.arange(0, 300, 10)
    falling = 0.9 ** rounds.astype(float)
    assert rate(rounds, falling) == pytest.approx(0.9)
    assert reach(rounds, falling, 1e-10) == pytest.approx(np.log(1e-10) / np.log(0.9))
    assert reach(rounds, np.full(30, 0.1), 1e-10) is None
    assert level(np.r_[1.0, np.full(29, 0.2)]) == pytest.approx(0.2)
    assert rate(rounds[:2], falling[:2]) is None


def row(share: float, reached: float | None, end: float | None) -> dict:
    return {"share": share, "seed": 0, "reached": reached, "level": end, "rate": 0.9 if reached else None}


def test_the_best_step_reaches_soonest_or_ends_nearest():
    assert best_share([row(0.1, 200.0, 1e-12), row(0.3, 90.0, 1e-11), row(1.0, None, None)]) == 0.3
    assert best_share([row(0.1, None, 0.02), row(0.3, None, 0.2)]) == 0.1
    assert best_share([row(0.1, None, None)]) is None


def test_exponents():
    sizes = itertools.product((1, 2, 4), (0.5, 1.0, 4.0))
    found = exponents({(t, s): [100 / (s * t) if s * t < 5 else math.nan] for t, s in sizes})
    assert found["small"] == {1: 200.0, 2: 100.0, 4: 50.0}
    assert found["large_exponent"] == pytest.approx(-1)
    assert found["best"] == {1: 25.0, 2: 50.0, 4: 25.0}


def theorem1_results(exact: bool) -> list[JobResult]:
    rounds = list(range(0, 1001, 20))
    reached, curve = (400.0, [0.95**r for r in rounds]) if exact else (None, [0.1] * 51)
    rates = [
        ("losac", reached, 1e-15 if exact else 0.1, curve),
        ("scaffold", None, 0.1, [0.1] * 51),
        ("fedavg", None, None, None),
    ]
    found = [
        JobResult(
            "", {"problem": "quadratic", "member": member, "rounds": 1000, "seeds": [0]},
            {"rows": [row(0.1, at, end)], "best": None if end is None else 0.1,
             "curve": {} if values is None else {"round": rounds, "distance": values}}, 1.0,
        )
        for member, at, end, values in rates
    ]  # fmt: skip
    sizes = [(1, 2, 800.0), (4, 2, 200.0), (4, 10, None if not exact else 190.0)]
    return found + [
        JobResult(
            "", {"problem": "quadratic", "t": t, "s": s, "seeds": [0]}, [{"share": 0.1, "seed": 0, "reached": at}], 1.0
        )
        for t, s, at in sizes
    ]


def test_theorem1_verdicts_follow_the_numbers(tmp_path):
    found = theorem1.STUDY.findings(theorem1_results(exact=True), Options(quick=True))
    assert [claim.verdict for claim in found.claims] == ["fails", "holds", "holds", "holds", "holds"]
    other = theorem1.STUDY.findings(theorem1_results(exact=False), Options(quick=True))
    assert [claim.verdict for claim in other.claims] == ["fails", "fails", "holds", "holds", "not testable"]
    for figure in (*found.figures, *other.figures):
        figure.draw().savefig(tmp_path / "figure.png")


def lemma1_results(last: float) -> list[JobResult]:
    def runs(values):
        return {"unit": 2.0, "runs": [[{"round": r, "loss": 1.0, "variance": [v], "square": [v]} for r, v in values]]}

    def one(problem, member, values):
        at = [r for r, _ in values]
        return JobResult("", {"problem": problem, "member": member, "at": at, "seeds": [0]}, runs(values), 1.0)

    return [
        one("quadratic", "losac", [(0, 4.0), (1000, last)]),
        one("quadratic", "fedavg", [(0, 4.0), (1000, 3.0)]),
        one("har", "losac", [(0, 1.0), (20, 40.0), (500, 4.0)]),
        one("har", "scaffold", [(0, 1.0), (20, 2.0), (500, 1.0)]),
    ]


def test_lemma1_verdicts_follow_the_numbers(tmp_path):
    found = lemma1.STUDY.findings(lemma1_results(1e-20), Options())
    assert [claim.verdict for claim in found.claims] == ["holds", "holds", "evidence"]
    assert lemma1.STUDY.findings(lemma1_results(1.0), Options()).claims[0].verdict == "fails"
    assert "nan" not in " ".join(claim.evidence for claim in found.claims)
    found.figures[0].draw().savefig(tmp_path / "figure.png")


def look_record(cosine: list[float], scalar: float, drift: float, bad: bool = False) -> dict:
    c = np.array(cosine)
    return {
        "round": 20, "fixed": True, "reached": False, "loss": 0.5, "variance": [1.0] * 3,
        "towards": [scalar] * 3, "square": ((scalar / c) ** 2).tolist(), "slope": 1.0,
        "spread": [drift] * 3, "way": [1.0] * 3, "inner": [scalar] * 3, "length": ((scalar / c) ** 2).tolist(),
        "gradient": [1.0] * 3, "bias": None if bad else 0.1,
    }  # fmt: skip


def divergence_results() -> list[JobResult]:
    members = {
        "losac": look_record([0.8, 0.8, 0.8], 50.0, 0.1),
        "scaffold": look_record([0.5, 0.4, 0.3], 1.0, 0.5),
        "fedavg": look_record([0.2, 0.1, 0.1], 1.0, 2.0),
        "fedsaga": look_record([0.3, 0.1, 0.1], 1.0, 2.0),
        "fedcm": look_record([0.3, 0.1, 0.1], 1.0, 2.0, bad=True),
    }
    return [
        JobResult("", {"data": "har", "partition": "sorted", "member": name, "at": [20], "seeds": [0]}, [[record]], 1.0)
        for name, record in members.items()
    ]


def test_divergence_verdicts_follow_the_numbers(tmp_path):
    """LoSAC's angle is better and its length is not; what is not finite is left out."""
    found = divergence.STUDY.findings(divergence_results(), Options())
    assert [claim.verdict for claim in found.claims] == ["holds in part", "holds", "holds", "holds"]
    assert Key("har", "sorted", 20, "fedcm") not in looks(divergence.STUDY.frame(divergence_results()))
    assert len(found.tables) == 1
    found.figures[0].draw().savefig(tmp_path / "figure.png")


def test_the_printed_exponent_is_minus_one_or_it_is_not():
    """Rounds that go as T^−0.57 fall with T, but are not O(1/T)."""
    slow = [
        JobResult("", {"problem": "quadratic", "t": t, "s": 2, "seeds": [0]},
                  [{"share": 0.1, "seed": 0, "reached": 800 * t**-0.57}], 1.0)
        for t in (1, 2, 4)
    ]  # fmt: skip
    found = theorem1.STUDY.findings([*theorem1_results(exact=True)[:3], *slow], Options(quick=True))
    verdicts = {claim.text: claim.verdict for claim in found.claims}
    assert verdicts["The convergence result is O(1/(RT))."] == "holds in part"
    assert verdicts["The convergence is faster if there are more local iterations T."] == "holds"


def test_the_next_models_are_the_simulators():
    """Of the rounds that could follow, the one that is drawn leads to the simulator's next model."""
    algorithm = A.losac(ETA / 10, STEPS, BLOCKS)
    (stop,) = probe.stops_of(PROBLEM.task, algorithm, 5, sampled=SAMPLED, stops=[2], plays=3, dtype="float64")
    _, before, after, ids = played(algorithm)
    np.testing.assert_array_equal(probe.flat(algorithm.model(stop.state.server)), before)
    with precision(np.float64):
        key = jax.random.fold_in(stop.state.key, stop.state.round)
        found = probe.successors(stop.shape, stop.problem, stop.state, ids[None], key[None])
        several = probe.successors(stop.shape, stop.problem, stop.state, stop.ids, stop.keys)
    np.testing.assert_allclose(found[0], after, rtol=1e-14, atol=1e-15)
    assert several.shape == (3, 4)


def test_a_lambda_that_grows_as_the_step_shrinks_is_named():
    points = JobResult("", {"problem": "quadratic"}, lemmas.measure_inequalities("quadratic", 5, [0]), 1.0)
    slow = [progress(share, 0, 1 + 0.1 * share) for share in (0.01, 0.1, 1.0)]
    lemma2 = next(c for c in lemmas.STUDY.findings([points, *slow], Options()).claims if c.where == "Lemma 2")
    assert lemma2.verdict == "fails"
    assert "0 of 2 states" in lemma2.evidence
    assert "it goes as η^−1.00, so no constant does" in lemma2.evidence


def test_the_grid_goes_on_where_the_best_step_is_its_shortest_or_longest(monkeypatch):
    tried = []

    def sweep(problem, member, steps, sampled, rounds, seeds, points, shares=theorem1.SHARES):
        tried.append(tuple(shares))
        at = np.arange(10)
        return [(share, 0, at, np.full(10, share if member == "fedavg" else 1 / share), None) for share in shares]

    monkeypatch.setattr(theorem1, "_sweep", sweep)
    assert theorem1.measure_rate("quadratic", "fedavg", 10, [0])["best"] == 0.001
    assert theorem1.measure_rate("quadratic", "losac", 10, [0])["best"] == 100
    assert tried == [theorem1.SHARES, (0.003, 0.001), theorem1.SHARES, (100.0,)]


def test_the_objective_has_the_optimum_and_the_constants_that_it_says():
    made, f = convex("quadratic"), smooth("quadratic")
    x, y = np.random.default_rng(0).normal(size=(2, 4))
    assert np.linalg.norm(f.gradient(made.optimum)) < 1e-12
    slope = [(f.value(x + h * y) - f.value(x - h * y)) / (2 * h) for h in (1e-3,)]
    assert slope[0] == pytest.approx(f.gradient(x) @ y, rel=1e-8)
    gap = np.linalg.norm(f.gradient(x) - f.gradient(y)) / np.linalg.norm(x - y)
    assert f.mu <= gap <= f.smoothness


def test_the_inequalities_of_the_appendix_hold_and_two_steps_of_its_proof_do_not():
    found = {one["inequality"]: one["violated"] for one in lemmas.measure_inequalities("quadratic", 50, [0])}
    assert [found[name] for name in lemmas.EXACT] == [0, 0, 0, 0]
    assert found["smooth"] > 0


def progress(share, at, after, before=1.0):
    result = {"seed": 0, "share": share, "at": at, "step": share, "before": before, "after": after, "error": 0.0,
              "gap": 0.1, "drift": 1.0, "mu": 1.0}  # fmt: skip
    return JobResult("", {"problem": "quadratic"}, [result], 1.0)


def test_lemma_2_is_judged_by_what_small_steps_do(tmp_path):
    points = JobResult("", {"problem": "quadratic"}, lemmas.measure_inequalities("quadratic", 5, [0]), 1.0)
    good = [progress(0.01, 0, 0.99), progress(0.1, 0, 0.9), progress(1.0, 0, 1.5), progress(1.0, 5, 1e-30, 1e-30)]
    found = lemmas.STUDY.findings([points, *good], Options())
    lemma2 = next(claim for claim in found.claims if claim.where == "Lemma 2")
    assert lemma2.verdict == "holds"
    assert "least squares 0.7 at 1" in lemma2.evidence  # λ' ≥ (1.5 − 1 + 2·0.1)/1²
    bad = lemmas.STUDY.findings([points, progress(0.01, 0, 1.0), *good[1:]], Options())
    assert next(claim for claim in bad.claims if claim.where == "Lemma 2").verdict == "fails"
    found.figures[0].draw().savefig(tmp_path / "figure.png")


def test_the_lasso_is_solved_where_the_composite_optimum_is_reached(tmp_path):
    made = lasso.problem()
    assert np.sum(np.abs(made.optimum) > lasso.COUNTED) == lasso.NONZERO

    def one(member, ends, counts):
        runs = [{"share": share, "seed": 0, "diverged": None, "nonzeros": count, "round": [0, 25], "distance": [1, end]}
                for share, end, count in zip((0.1, 1.0), ends, counts)]  # fmt: skip
        return JobResult("", {"member": member, "rounds": 25}, runs, 1.0)

    good = [one("losac", (0.1, 1e-9), (40, 10)), one("exact", (1e-8, 0.2), (10, 50))]
    found = lasso.STUDY.findings([*good, one("scaffold", (0.1, 0.2), (90, 90))], Options())
    assert found.claims[0].verdict == "holds"
    assert "SCAFFOLD-Prox 0.1 (90)" in found.claims[0].evidence
    found.figures[0].draw().savefig(tmp_path / "figure.png")
    dense = lasso.STUDY.findings([good[0], one("exact", (1e-8, 0.2), (11, 50))], Options())
    assert dense.claims[0].verdict == "holds in part"


@pytest.mark.parametrize(
    "study", [lasso.STUDY, lemma1.STUDY, lemmas.STUDY, divergence.STUDY, theorem1.STUDY], ids=lambda s: s.name
)
def test_jobs_can_be_written_down(study):
    for quick in (True, False):
        listed = study.jobs(Options((0, 1), quick))
        assert len({job.digest for job in listed}) == len(listed)


def test_a_tiny_run_of_theorem1():
    """LoSAC reaches 1e-10 in a few hundred rounds where SCAFFOLD stops, sampled clients and blocks and all."""
    found = {name: theorem1.measure_rate("quadratic", name, 600, [0]) for name in ("losac", "scaffold")}
    ends = {name: min(r["level"] for r in v["rows"] if r["level"] is not None) for name, v in found.items()}
    assert any(r["reached"] is not None for r in found["losac"]["rows"])
    assert ends["losac"] < 1e-10
    assert ends["scaffold"] > 1e-3
