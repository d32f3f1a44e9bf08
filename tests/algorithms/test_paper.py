"""The paper's rivals of LoSAC against their published equations, in NumPy, and against closed forms."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import losac
from losac.algorithms import dsgd, fedavg, scaffold
from losac.algorithms.fedadmm import Fedadmm
from losac.algorithms.fedcm import Fedcm
from losac.algorithms.fedprox import Fedprox
from losac.algorithms.mfl import Mfl
from losac.algorithms.mime import Mime, MimeLite, MimeSvrg
from losac.algorithms.server_optimizers import Fedadagrad, Fedadam, Fedavgm, Fedyogi
from losac.algorithms.vrl_sgd import VrlSgd
from problems import drawn_clients, quadratic

N, S, K, D = 6, 2, 3, 3
START = np.array([0.5, -1.0, 2.0])
PROBLEM = quadratic(clients=N, samples=8, dim=D)
OPTIMUM = PROBLEM.optimum
HESSIANS, OPTIMA = PROBLEM.hessians, PROBLEM.optima
ETA = 0.2 / PROBLEM.curvature


def task(**options: Any) -> losac.Task:
    """The quadratic problem from a start that is not zero."""
    return losac.Task(losac.losses.SquaredError(losac.models.linear(D), 0.5), START, PROBLEM.data, **options)


TASK = task()


def gradient(i: int, w: np.ndarray) -> np.ndarray:
    return HESSIANS[i] @ (w - OPTIMA[i])


def run(algorithm: Any, rounds: int, sampled: int = S, problem: losac.Task = TASK, **options: Any) -> losac.History:
    return losac.simulate(
        problem,
        algorithm,
        rounds=rounds,
        clients_per_round=sampled,
        eval_every=rounds,
        dtype="float64",
        keep_state=True,
        **options,
    )


def distance(algorithm: Any, rounds: int, sampled: int = S, **options: Any) -> float:
    return float(np.abs(run(algorithm, rounds, sampled, **options).params - OPTIMUM).max())


# ---------------------------------------------------------------- the published equations, transcribed
# Each takes the server's state as a dict with the clients' memory, changes it by one round, and calls the model "x".

Round = Callable[[dict[str, Any], list[int]], None]


def local_sgd(i: int, x: np.ndarray, direction: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    w = x.copy()
    for _ in range(K):
        w = w - ETA * direction(w)
    return w


def mean_update(s: dict[str, Any], ids: list[int], mu: float = 0.0) -> np.ndarray:
    """FedAvg's mean Δ, with FedProx's term."""
    x = s["x"]
    return np.mean([local_sgd(i, x, lambda w, i=i: gradient(i, w) + mu * (w - x)) - x for i in ids], axis=0)


def fedprox_round(s: dict[str, Any], ids: list[int]) -> None:
    s["x"] = s["x"] + mean_update(s, ids, mu=1.5)


def fedcm_round(s: dict[str, Any], ids: list[int]) -> None:
    x, delta, alpha = s["x"], s.setdefault("delta", np.zeros(D)), 0.3
    ends = [local_sgd(i, x, lambda w, i=i: alpha * gradient(i, w) + (1 - alpha) * delta) for i in ids]
    s["delta"] = np.mean([x - w for w in ends], axis=0) / (K * ETA)
    s["x"] = x - 0.7 * K * ETA * s["delta"]


def mfl_round(s: dict[str, Any], ids: list[int]) -> None:
    ends = []
    for i in ids:
        w, v = s["x"].copy(), s.setdefault("v", np.zeros(D)).copy()
        for _ in range(K):
            v = 0.4 * v + gradient(i, w)
            w = w - ETA * v
        ends.append((w, v))
    s["x"], s["v"] = (np.mean(part, axis=0) for part in zip(*ends))


def mime_svrg_round(s: dict[str, Any], ids: list[int]) -> None:
    x = s["x"]
    c = np.mean([gradient(j, x) for j in ids], axis=0)
    ends = [local_sgd(i, x, lambda w, i=i: gradient(i, w) - gradient(i, x) + c) for i in ids]
    s["x"] = x + 0.7 * np.mean([w - x for w in ends], axis=0)


def base_optimizer(name: str, b1: float, b2: float, eps: float) -> tuple[Any, Any]:
    """U and V of the table of Karimireddy et al."""

    def use(g: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
        return ((1 - b1) * g + b1 * m) / ((eps + np.sqrt(v)) if name == "adam" else 1)

    def renew(g: np.ndarray, m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (1 - b1) * g + b1 * m, (1 - b2) * g**2 + b2 * v

    return use, renew


def mime_round(name: str, corrected: bool) -> Round:
    use, renew = base_optimizer(name, 0.8, 0.7, 0.5)

    def one(s: dict[str, Any], ids: list[int]) -> None:
        x, m, v = s["x"], s.setdefault("m", np.zeros(D)), s.setdefault("v", np.zeros(D))
        c = np.mean([gradient(j, x) for j in ids], axis=0)

        def direction(i: int, w: np.ndarray) -> np.ndarray:
            return use(gradient(i, w) - gradient(i, x) + c if corrected else gradient(i, w), m, v)

        ends = [local_sgd(i, x, lambda w, i=i: direction(i, w)) for i in ids]
        s["m"], s["v"] = renew(c, m, v)
        s["x"] = x + 0.7 * np.mean([w - x for w in ends], axis=0)

    return one


def adaptive_round(name: str) -> Round:
    def one(s: dict[str, Any], ids: list[int]) -> None:
        delta = mean_update(s, ids)
        m, v = s.setdefault("m", np.zeros(D)), s.setdefault("v", np.full(D, 0.05**2))
        s["m"] = 0.8 * m + 0.2 * delta
        s["v"] = {
            "adagrad": v + delta**2,
            "yogi": v - (1 - 0.7) * delta**2 * np.sign(v - delta**2),
            "adam": 0.7 * v + (1 - 0.7) * delta**2,
        }[name]
        s["x"] = s["x"] + 0.3 * s["m"] / (np.sqrt(s["v"]) + 0.05)

    return one


def fedavgm_round(s: dict[str, Any], ids: list[int]) -> None:
    s["v"] = 0.6 * s.setdefault("v", np.zeros(D)) + mean_update(s, ids)
    s["x"] = s["x"] + 0.7 * s["v"]


def vrl_sgd_round(s: dict[str, Any], ids: list[int]) -> None:
    delta = s.setdefault("delta", np.zeros((N, D)))
    ends = np.array([local_sgd(i, s["x"], lambda w, i=i: gradient(i, w) - delta[i]) for i in range(N)])
    s["x"] = ends.mean(0)
    s["delta"] = delta + (s["x"] - ends) / (K * ETA)


RHO = 2.0


def soft(v: np.ndarray, threshold: float) -> np.ndarray:
    return np.sign(v) * np.maximum(abs(v) - threshold, 0)


def fedadmm_round(strength: float, exact: bool) -> Round:
    """The appendix as printed: f_i, π_i and ρ with 1/N absorbed, steps N times as long; the server comes last."""
    rho, eta, eta_g = RHO / N, ETA * N, 0.02 * N

    def one(s: dict[str, Any], ids: list[int]) -> None:
        x, pi, z = s.setdefault("X", np.tile(START, (N, 1))), s.setdefault("pi", np.zeros((N, D))), s["x"]
        for i in ids:
            for _ in range(K):
                x[i] = (rho * eta * z - eta * pi[i] + x[i] - eta * gradient(i, x[i]) / N) / (1 + rho * eta)
                pi[i] = pi[i] + rho * (x[i] - z)
        if exact:  # the minimiser of Σ⟨π_i, X_i − Z⟩ + ρ/2‖X_i − Z‖² + λ‖Z‖₁
            z = soft((x + pi / rho).mean(0), strength / (N * rho))
        else:
            for _ in range(20):
                z = soft(z - eta_g * (N * rho * z - (pi + rho * x).sum(0)), strength * eta_g)
        s["x"] = z

    return one


def gong_round(s: dict[str, Any], ids: list[int]) -> None:
    w, a, x = s.setdefault("w", np.tile(START, (N, 1))), s.setdefault("a", np.zeros((N, D))), s["x"]
    moves = []
    for i in ids:
        new = local_sgd(i, x, lambda u, i=i: gradient(i, u) + a[i] + RHO * (u - x))
        dual = a[i] + RHO * (new - x)
        moves.append((new - w[i]) + (dual - a[i]) / RHO)
        w[i], a[i] = new, dual
    s["x"] = x + 0.7 * np.mean(moves, axis=0)


class Case(NamedTuple):
    """A method, its equations, and the model sizes that a client sends and receives in a round."""

    algorithm: Any
    transcription: Round
    up: int = 1
    down: int = 1
    sampled: int = S
    l1: float = 0.0


ADAPTIVE = {"server_step": 0.3, "momentum": 0.8, "tau": 0.05}
MIME = {"server_step": 0.7, "momentum": 0.8, "decay": 0.7, "epsilon": 0.5}

CASES = [
    Case(Fedprox(ETA, K, mu=1.5), fedprox_round),
    Case(Fedcm(ETA, K, alpha=0.3, server_step=0.7), fedcm_round, 1, 2),
    Case(Mfl(ETA, K, momentum=0.4), mfl_round, 2, 2),
    Case(MimeSvrg(ETA, K, server_step=0.7), mime_svrg_round, 2, 3),
    Case(Mime(ETA, K, optimizer="momentum", **MIME), mime_round("momentum", True), 2, 4),
    Case(Mime(ETA, K, optimizer="adam", **MIME), mime_round("adam", True), 2, 5),
    Case(MimeLite(ETA, K, optimizer="momentum", **MIME), mime_round("momentum", False), 2, 2),
    Case(MimeLite(ETA, K, optimizer="adam", **MIME), mime_round("adam", False), 2, 3),
    Case(Fedadam(ETA, K, decay=0.7, **ADAPTIVE), adaptive_round("adam")),
    Case(Fedyogi(ETA, K, decay=0.7, **ADAPTIVE), adaptive_round("yogi")),
    Case(Fedadagrad(ETA, K, **ADAPTIVE), adaptive_round("adagrad")),
    Case(Fedavgm(ETA, K, server_step=0.7, momentum=0.6), fedavgm_round),
    Case(VrlSgd(ETA, K), vrl_sgd_round, sampled=N),
    Case(Fedadmm(ETA, K, rho=RHO, server_step=0.02), fedadmm_round(0.3, exact=False), l1=0.3),
    Case(Fedadmm(ETA, K, rho=RHO, variant="exact"), fedadmm_round(0.3, exact=True), l1=0.3),
    Case(Fedadmm(ETA, K, rho=RHO, server_step=0.7, variant="gong"), gong_round),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.algorithm).replace(" ", ""))
def test_trajectory_is_the_published_one(case: Case):
    """Ten rounds agree with the equations of the paper that introduced the method."""
    problem = task(regularizer=losac.prox.l1(case.l1)) if case.l1 else TASK
    rounds = 10
    history = run(case.algorithm, rounds, case.sampled, problem, seed=3)
    per_model = rounds * case.sampled * D * 8
    assert (history.bytes_up[-1] / per_model, history.bytes_down[-1] / per_model) == (case.up, case.down)
    state: dict[str, Any] = {"x": START.copy()}
    for r in range(rounds):
        ids = [int(i) for i in drawn_clients(3, r, N, S)] if case.sampled == S else list(range(N))
        case.transcription(state, ids)
    assert np.abs(state["x"] - START).max() > 0.05
    np.testing.assert_allclose(history.params, state["x"], rtol=1e-11, atol=1e-12)


# ---------------------------------------------------------------- law 1: fixed points

EXACT = [
    (MimeSvrg(ETA, K), N),
    (MimeSvrg(ETA, K, 4), N),  # random blocks: the same data in both gradients of a step
    (Mime(0.03 * ETA, K, optimizer="adam", epsilon=0.1), N),
    (VrlSgd(ETA, K), N),
    (Fedadmm(ETA, K, rho=RHO, variant="exact"), S),
    (Fedadmm(ETA, K, rho=RHO, server_step=0.02), S),
    (Fedadmm(ETA, K, rho=RHO, server_step=S / N, variant="gong"), S),
]


@pytest.mark.parametrize(("algorithm", "sampled"), EXACT, ids=str)
def test_reaches_the_optimum(algorithm: Any, sampled: int):
    assert distance(algorithm, 2500, sampled) <= 1e-9


def affine_fixed_point(one_round: Round, *extra: str) -> np.ndarray:
    """The fixed point of a round with all clients, an affine map of the server's state, by solving for it."""
    names = ("x", *extra)

    def advance(z: np.ndarray) -> np.ndarray:
        s = dict(zip(names, z.reshape(len(names), D)))
        one_round(s, list(range(N)))
        return np.concatenate([s[name] for name in names])

    size = D * len(names)
    shift = advance(np.zeros(size))
    slope = np.stack([advance(e) - shift for e in np.eye(size)], axis=1)
    return np.linalg.solve(np.eye(size) - slope, shift)[:D]


def fedavg_round(s: dict[str, Any], ids: list[int]) -> None:
    s["x"] = s["x"] + mean_update(s, ids)


BIASED = [
    (Fedprox(ETA, K, mu=1.5), fedprox_round, ()),
    (Fedcm(ETA, K, alpha=0.3, server_step=0.7), fedcm_round, ("delta",)),
    (Mfl(ETA, K, momentum=0.4), mfl_round, ("v",)),
    (MimeLite(ETA, K, momentum=0.8, server_step=0.7), mime_round("momentum", False), ("m",)),
    (Fedadam(ETA, K, server_step=0.01, tau=0.05), fedavg_round, ()),
    (Fedyogi(ETA, K, server_step=0.01, tau=0.05), fedavg_round, ()),
    (Fedadagrad(ETA, K, server_step=0.1, tau=0.05), fedavg_round, ()),
    (Fedavgm(ETA, K, momentum=0.6), fedavg_round, ()),
]


@pytest.mark.parametrize(("algorithm", "one_round", "extra"), BIASED, ids=lambda v: str(v)[:12])
def test_settles_at_the_bias_that_the_algebra_gives(algorithm: Any, one_round: Round, extra: tuple[str, ...]):
    due = affine_fixed_point(one_round, *extra)
    assert np.abs(due - OPTIMUM).max() >= 1e-3
    np.testing.assert_allclose(run(algorithm, 2500, N).params, due, rtol=0, atol=1e-9)


def test_mime_svrg_does_not_converge_with_sampled_clients():
    assert distance(MimeSvrg(ETA, K), 2500) >= 1e-3


def test_mime_svrg_with_one_client_a_round_is_gradient_descent_on_it():
    """c is the mean over this round's clients, so a lone one is not corrected at all."""
    alone = [[r % N] for r in range(4)]
    one, other = (run(a, 4, 1, sampling=alone).params for a in (MimeSvrg(ETA, K), fedavg(ETA, K)))
    np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize(("gamma", "eta", "steps"), [(1.0, 4 * ETA, 40), (0.2, ETA, K)])
def test_gong_ends_where_the_algebra_says(gamma: float, eta: float, steps: int):
    """∇f(x) = ρ(1 − S/(γN))(x − x⁰), a point that depends on the start."""
    h, b = np.mean(HESSIANS, axis=0), np.mean([a @ o for a, o in zip(HESSIANS, OPTIMA)], axis=0)
    rho = 0.5
    factor = rho * (1 - S / (gamma * N))
    due = np.linalg.solve(h - factor * np.eye(D), b - factor * START)
    assert np.abs(due - OPTIMUM).max() >= 1e-3
    found = run(Fedadmm(eta, steps, rho=rho, server_step=gamma, variant="gong"), 2500).params
    np.testing.assert_allclose(found, due, rtol=0, atol=1e-9)


@pytest.mark.parametrize("variant", [{"variant": "exact"}, {"server_step": 0.02}], ids=str)
def test_fedadmm_reaches_the_composite_optimum(variant: dict[str, Any]):
    """(1/N) Σ f_i + λ‖·‖₁ with sampled clients; the reference is plain proximal gradient on the whole."""
    strength = 0.8
    h, b = np.mean(HESSIANS, axis=0), np.mean([a @ o for a, o in zip(HESSIANS, OPTIMA)], axis=0)
    x, step = START, 1 / np.linalg.norm(h, 2)
    for _ in range(5000):
        x = soft(x - step * (h @ x - b), step * strength)
    assert np.abs(x - OPTIMUM).max() >= 1e-2
    found = run(Fedadmm(ETA, K, rho=RHO, **variant), 3000, problem=task(regularizer=losac.prox.l1(strength))).params
    np.testing.assert_allclose(found, x, rtol=0, atol=1e-9)


def test_the_printed_server_steps_of_fedadmm_leave_a_third_of_the_gap():
    """20 steps with γNρ = 0.05 leave 0.95²⁰ = 0.358 of the way from Z to the exact step."""
    one, exact = (
        run(Fedadmm(ETA, K, rho=RHO, **variant), 1).params
        for variant in ({"server_step": 0.05 / (N * RHO)}, {"variant": "exact"})
    )
    np.testing.assert_allclose((one - exact) / (START - exact), 0.95**20, rtol=1e-9)


# ---------------------------------------------------------------- law 2: reductions

FEDAVG = fedavg(ETA, K, 2)
REDUCTIONS = [
    (Fedprox(ETA, K, 2, mu=0.0), FEDAVG, S),
    (Fedcm(ETA, K, 2, alpha=1.0), FEDAVG, S),
    (Mfl(ETA, K, 2, momentum=0.0), FEDAVG, S),
    (MimeLite(ETA, K, 2, momentum=0.0), FEDAVG, S),
    (Fedavgm(ETA, K, 2, momentum=0.0, server_step=0.7), fedavg(ETA, K, 2, server_step=0.7), S),
    (Mime(ETA, K, momentum=0.0), MimeSvrg(ETA, K), S),
    (MimeSvrg(ETA, 1), dsgd(ETA), S),
    (VrlSgd(ETA, K, 2), scaffold(ETA, K, 2), N),
]


@cache
def after_six_rounds(algorithm: Any, sampled: int) -> np.ndarray:
    return np.asarray(run(algorithm, 6, sampled).params)


@pytest.mark.parametrize(("general", "special", "sampled"), REDUCTIONS, ids=str)
def test_reduction(general: Any, special: Any, sampled: int):
    one, other = (after_six_rounds(algorithm, sampled) for algorithm in (general, special))
    np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_zero_regulariser_changes_nothing_in_fedadmm():
    algorithm = Fedadmm(ETA, K, 2, rho=RHO, server_step=0.02)
    with_zero = run(algorithm, 5, problem=task(regularizer=losac.prox.l1(0.0))).params
    np.testing.assert_allclose(with_zero, run(algorithm, 5).params, rtol=1e-13)


# ---------------------------------------------------------------- law 3: invariants


def test_vrl_sgd_corrections_sum_to_zero():
    history = run(VrlSgd(ETA, K, 4), 20, N)
    memory = history.state.store.rows.state
    delta = (history.params - np.asarray(memory.q)) / np.asarray(memory.length)[:, None]
    assert np.abs(delta).max() > 0.1
    np.testing.assert_allclose(delta.sum(0), 0, atol=1e-11)


def test_vrl_sgd_refuses_clients_that_take_different_numbers_of_steps():
    """Σ Δ_i would no longer be zero, and the method would end at a wrong point."""
    task = quadratic(clients=3, samples=[4, 4, 9]).task
    by_epochs, by_steps = VrlSgd(1e-3, batch_size=4, epochs=1), VrlSgd(1e-3, 2)
    for algorithm, options in ((by_steps, {"local_steps": [1, 2, 2]}), (by_epochs, {})):
        with pytest.raises(ValueError, match=r"vrl_sgd needs equally many local steps of all clients, .* take 1 to"):
            losac.simulate(task, algorithm, rounds=1, **options)
    losac.simulate(task, by_steps, rounds=1, local_steps=[2, 2, 2])


def test_vrl_sgd_renews_its_correction_with_the_step_that_was_taken():
    """A schedule must not rescale Δ_i: the next η is another than the one that w was reached with."""
    after = 1.7
    algorithm = VrlSgd(lambda r: ETA * jax.numpy.where(r > 0, after, 1.0), K)
    state: dict[str, Any] = {"x": START.copy()}
    vrl_sgd_round(state, [])
    ends = [state["x"]] * N
    for _ in range(K):
        ends = [w - after * ETA * (gradient(i, w) - state["delta"][i]) for i, w in enumerate(ends)]
    np.testing.assert_allclose(run(algorithm, 2, N).params, np.mean(ends, axis=0), rtol=1e-12)


def test_fedcm_keeps_its_direction_when_the_step_changes():
    algorithm = Fedcm(lambda r: ETA * jax.numpy.where(r > 0, 1.7, 1.0), K, alpha=0.3, server_step=0.7)
    state: dict[str, Any] = {"x": START.copy()}
    fedcm_round(state, list(range(N)))
    ends = [state["x"]] * N
    for _ in range(K):
        ends = [w - 1.7 * ETA * (0.3 * gradient(i, w) + 0.7 * state["delta"]) for i, w in enumerate(ends)]
    due = state["x"] + 0.7 * (np.mean(ends, axis=0) - state["x"])
    np.testing.assert_allclose(run(algorithm, 2, N).params, due, rtol=1e-12)


@pytest.mark.parametrize("variant", ["appendix", "exact"])
def test_fedadmm_server_keeps_the_mean_over_all_clients(variant: str):
    history = run(Fedadmm(ETA, K, 4, rho=RHO, variant=variant), 20)
    clients = history.state.store.rows.state
    due = (np.asarray(clients.x) + np.asarray(clients.pi) / RHO).mean(0)
    np.testing.assert_allclose(history.state.server.mean, due, rtol=1e-12)


@pytest.mark.parametrize(
    ("algorithm", "spoil", "sampled"),
    [
        (Fedadmm(ETA, K, rho=RHO, variant="exact"), lambda s: s._replace(pi=s.pi + 1), S),
        (VrlSgd(ETA, K), lambda s: s._replace(q=s.q + 1), N),
    ],
    ids=["fedadmm", "vrl_sgd"],
)
def test_a_start_that_breaks_the_invariant_is_refused(algorithm: Any, spoil: Callable[[Any], Any], sampled: int):
    state = run(algorithm, 2, sampled).state
    assert run(algorithm, 1, sampled, state=state).rounds[-1] == 3
    rows = state.store.rows._replace(state=spoil(state.store.rows.state))
    with pytest.raises(ValueError, match="wrong point"):
        run(algorithm, 1, sampled, state=state._replace(store=state.store._replace(rows=rows)))


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Fedadmm(ETA, variant="exact", server_step=1.0), "has no meaning"),
        (lambda: VrlSgd(ETA, clip_norm=1.0), "cannot take clip_norm"),
        (lambda: Mime(ETA, optimizer="adams"), "adam"),
        (lambda: Fedcm(ETA, alpha=0.0), r"in \(0, 1\]"),
        (lambda: run(VrlSgd(ETA, K), 1, S), "every client"),
        (lambda: run(Fedadmm(ETA, K, variant="gong"), 1, problem=task(regularizer=losac.prox.l1(1.0))), "no proximal"),
    ],
)
def test_refusals(make: Callable[[], Any], words: str):
    with pytest.raises(ValueError, match=words):
        make()


def test_defaults_are_those_of_the_literature():
    admm, gong = Fedadmm(ETA), Fedadmm(ETA, variant="gong")
    assert (admm.penalty, admm.length, admm.server_iterations) == (5.0, 1e-4, 20)
    assert (gong.penalty, gong.length) == (0.01, 1.0)
    adam = Fedadam(ETA)
    assert (adam.momentum, adam.decay, adam.tau, Fedadagrad(ETA).momentum) == (0.9, 0.99, 1e-3, 0.0)
    assert Fedcm(ETA).alpha == 0.1
