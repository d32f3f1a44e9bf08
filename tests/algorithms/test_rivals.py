"""The rivals of LoSAC: closed forms on quadratics, and NumPy transcriptions of the published equations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any

import jax
import numpy as np
import optax
import pytest

import losac
from losac._compat import enable_x64
from losac.algorithms.compression import Qsgd
from losac.algorithms.contract import Federation
from losac.algorithms.fedavg import Fedavg
from losac.algorithms.feddualavg import Feddualavg
from losac.algorithms.feddyn import Feddyn
from losac.algorithms.fedexp import Fedexp
from losac.algorithms.fedlin import Fedlin
from losac.algorithms.fedmid import Fedmid
from losac.algorithms.fedvarp import Fedvarp
from losac.algorithms.ghbm import Ghbm
from losac.algorithms.local_svrg import LocalSvrg
from losac.algorithms.mifa import Mifa
from losac.algorithms.mime import MimeSvrg
from losac.algorithms.momentum import FedavgMomentum, ScaffoldMomentum
from losac.algorithms.scaffnew import Scaffnew
from losac.algorithms.scaffold import Scaffold
from losac.algorithms.tamuna import Pattern, Tamuna, pack, unpack
from losac.simulation.program.drawing import block_of
from problems import drawn_clients, quadratic

N, S, K, D = 6, 3, 4, 3
SPARSE = 0.6
"""The weight of ‖·‖₁ in the composite problem: it leaves some coordinates of the optimum at zero, not all."""
PROBLEM = quadratic(clients=N, samples=8, dim=D)
SINGLE = quadratic(clients=1, samples=8, dim=D, seed=4)
HESSIANS, OPTIMA = np.array(PROBLEM.hessians), np.array(PROBLEM.optima)
ETA = 0.1 / PROBLEM.curvature

Iterates = Iterator[np.ndarray]


def gradient(i: int, w: np.ndarray) -> np.ndarray:
    return HESSIANS[i] @ (w - OPTIMA[i])


def mean_gradient(w: np.ndarray) -> np.ndarray:
    return np.mean([gradient(i, w) for i in range(N)], axis=0)


def shrink(v: np.ndarray, by: float) -> np.ndarray:
    return np.sign(v) * np.maximum(np.abs(v) - by, 0)


def composite(strength: float, problem: Any = PROBLEM) -> losac.Task:
    return losac.regression(losac.models.linear(D), problem.data, regularizer=losac.prox.l1(strength))


def lasso(hessian: np.ndarray, linear: np.ndarray, strength: float) -> np.ndarray:
    """Minimise ½ x·Hx − b·x + λ‖x‖₁ by proximal gradient."""
    x, step = np.zeros(D), 1 / np.linalg.norm(hessian, 2)
    for _ in range(20000):
        x = shrink(x - step * (hessian @ x - linear), step * strength)
    return x


def run(
    algorithm: Any, rounds: int, sampled: int = N, task: losac.Task = PROBLEM.task, **options: Any
) -> losac.History:
    settings = {"eval_every": rounds, "dtype": "float64", "keep_state": True} | options
    return losac.simulate(task, algorithm, rounds=rounds, clients_per_round=sampled, **settings)


def fedavg_rest(eta: float, steps: int) -> np.ndarray:
    """x = mean_i[(I − ηA_i)^K x + (I − (I − ηA_i)^K) x_i*]: where FedAvg with all clients rests."""
    powers = [np.linalg.matrix_power(np.eye(D) - eta * a, steps) for a in HESSIANS]
    pull = np.mean([(np.eye(D) - p) @ x for p, x in zip(powers, OPTIMA)], axis=0)
    return np.linalg.solve(np.eye(D) - np.mean(powers, axis=0), pull)


def away(params: np.ndarray, point: np.ndarray = PROBLEM.optimum) -> float:
    return float(np.abs(params - point).max())


def descend(w: np.ndarray, direction: Callable[[np.ndarray], np.ndarray], eta: float, steps: int = K) -> np.ndarray:
    for _ in range(steps):
        w = w - eta * direction(w)
    return w


# --- Transcriptions: x after each round, for S sampled clients and full local gradients -------------------------------


def chosen(r: int) -> np.ndarray:
    return drawn_clients(0, r, N, S)


def decaying(r: Any) -> Any:
    return ETA / (1 + 0.5 * r)


def feddyn(alpha: float) -> Iterates:
    """Acar et al., Algorithm 1, with K gradient steps for the argmin and their ∇L_k = h_k."""
    x, h, own = np.zeros(D), np.zeros(D), np.zeros((N, D))
    for r in range(100):
        models = []
        for i in chosen(r):
            w = descend(x, lambda w, i=i, x=x: gradient(i, w) - own[i] + alpha * (w - x), ETA)
            own[i] = own[i] - alpha * (w - x)
            models.append(w)
        h = h - alpha / N * sum(w - x for w in models)
        x = np.mean(models, axis=0) - h / alpha
        yield x


def fedavg_momentum(beta: float, gamma: float) -> Iterates:
    """Cheng et al., FedAvg-M; the server step is γKη."""
    x, g = np.zeros(D), np.zeros(D)
    for r in range(100):
        models = [descend(x, lambda w, i=i, g=g: beta * gradient(i, w) + (1 - beta) * g, ETA) for i in chosen(r)]
        g = sum(x - w for w in models) / (ETA * S * K)
        x = x - gamma * K * ETA * g
        yield x


def scaffold_momentum(beta: float, gamma: float) -> Iterates:
    """Cheng et al., SCAFFOLD-M: c_i is the mean of the local gradients."""
    x, g, c, own = np.zeros(D), np.zeros(D), np.zeros(D), np.zeros((N, D))
    for r in range(100):
        models, change = [], np.zeros(D)
        for i in chosen(r):
            w, seen = x, []
            for _ in range(K):
                seen.append(gradient(i, w))
                w = w - ETA * (beta * (seen[-1] - own[i] + c) + (1 - beta) * g)
            models.append(w)
            change += np.mean(seen, axis=0) - own[i]
            own[i] = np.mean(seen, axis=0)
        c = c + change / N
        g = sum(x - w for w in models) / (ETA * S * K)
        x = x - gamma * K * ETA * g
        yield x


def fedvarp(gamma: float) -> Iterates:
    x, y = np.zeros(D), np.zeros((N, D))
    for r in range(100):
        eta = float(decaying(r))
        now = {i: (descend(x, lambda w, i=i: gradient(i, w), eta) - x) / eta for i in chosen(r)}
        x = x + gamma * eta * (np.mean([u - y[i] for i, u in now.items()], axis=0) + y.mean(0))
        for i, u in now.items():
            y[i] = u
        yield x


def mifa(gamma: float) -> Iterates:
    x, y = np.zeros(D), np.zeros((N, D))
    for r in range(100):
        eta = float(decaying(r))
        for i in chosen(r):
            y[i] = (descend(x, lambda w, i=i: gradient(i, w), eta) - x) / eta
        x = x + gamma * eta * y.mean(0)
        yield x


def fedexp(epsilon: float) -> Iterates:
    x = np.zeros(D)
    for r in range(100):
        moves = [descend(x, lambda w, i=i: gradient(i, w), ETA) - x for i in chosen(r)]
        mean = np.mean(moves, axis=0)
        x = x + max(1.0, sum(m @ m for m in moves) / (2 * S * (mean @ mean + epsilon))) * mean
        yield x


def ghbm(beta: float, tau: int) -> Iterates:
    past = [np.zeros(D)]
    for r in range(100):
        x = past[-1]
        momentum = (past[max(0, r - tau)] - x) / tau
        models = [descend(x, lambda w, i=i, m=momentum: gradient(i, w) + beta / (ETA * K) * m, ETA) for i in chosen(r)]
        past.append(np.mean(models, axis=0))
        yield past[-1]


def feddualavg(gamma: float) -> Iterates:
    """Yuan et al., Algorithm 3: the primal point of step (r, k) is prox of η̃ = γηrK + ηk."""
    z = np.zeros(D)
    for r in range(100):
        duals = []
        for i in chosen(r):
            dual = z
            for k in range(K):
                dual = dual - ETA * gradient(i, shrink(dual, SPARSE * (gamma * ETA * r * K + ETA * k)))
            duals.append(dual)
        z = z + gamma * np.mean([d - z for d in duals], axis=0)
        yield shrink(z, SPARSE * gamma * ETA * (r + 1) * K)


def fedmid(gamma: float, local: bool) -> Iterates:
    x = np.zeros(D)
    for r in range(100):
        models = []
        for i in chosen(r):
            w = x
            for _ in range(K):
                w = shrink(w - ETA * gradient(i, w), SPARSE * ETA * local)
            models.append(w)
        x = shrink(x + gamma * np.mean([w - x for w in models], axis=0), SPARSE * gamma * ETA * K)
        yield x


SMOOTH, COMPOSITE = PROBLEM.task, composite(SPARSE)
CURVE = 0.2 * PROBLEM.curvature
TRANSCRIPTIONS = {
    "feddyn": (Feddyn(ETA, K, alpha=CURVE), feddyn(CURVE), SMOOTH, 1, 1),
    "fedavg_momentum": (FedavgMomentum(ETA, K, alpha=0.3, server_step=0.7), fedavg_momentum(0.3, 0.7), SMOOTH, 1, 2),
    "scaffold_momentum": (
        ScaffoldMomentum(ETA, K, alpha=0.3, server_step=0.7),
        scaffold_momentum(0.3, 0.7),
        SMOOTH,
        2,
        3,
    ),
    "fedvarp": (Fedvarp(decaying, K, server_step=0.7), fedvarp(0.7), SMOOTH, 1, 1),
    "mifa": (Mifa(decaying, K, server_step=0.7), mifa(0.7), SMOOTH, 1, 1),
    "fedexp": (Fedexp(ETA, K, epsilon=0.01), fedexp(0.01), SMOOTH, 1 + 1 / D, 1),
    "ghbm": (Ghbm(ETA, K, window=4, momentum=0.8), ghbm(0.8, 4), SMOOTH, 1, 2),
    "feddualavg": (Feddualavg(ETA, K, server_step=0.7), feddualavg(0.7), COMPOSITE, 1 + 1 / D, 1 + 1 / D),
    "fedmid": (Fedmid(ETA, K, server_step=0.7), fedmid(0.7, True), COMPOSITE, 1 + 1 / D, 1),
    "fedmid_osp": (Fedmid(ETA, K, server_step=0.7, prox="server"), fedmid(0.7, False), COMPOSITE, 1 + 1 / D, 1),
}
MEANS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "feddyn": lambda s: (s.store.rows.state, s.server.h),
    "scaffold_momentum": lambda s: (s.store.rows.state, s.server.c),
    "fedvarp": lambda s: (s.store.rows.server, s.server.mean),
    "mifa": lambda s: (s.store.rows.server, s.server.mean),
}
"""What the clients (or the server for them) hold, and the server's mean of it: equal for ever."""


@pytest.mark.parametrize("name", TRANSCRIPTIONS)
def test_published_equations(name: str):
    """The model, the bytes of the messages (in model sizes up and down), and the invariant where there is one."""
    algorithm, iterates, task, up, down = TRANSCRIPTIONS[name]
    *_, last = islice(iterates, 9)
    assert away(last, np.zeros(D)) > 0.1
    result = run(algorithm, 9, S, task)
    np.testing.assert_allclose(result.params, last, rtol=1e-11, atol=1e-12)
    assert result.bytes_up[-1] == pytest.approx(9 * S * D * 8 * up)
    assert result.bytes_down[-1] == pytest.approx(9 * S * D * 8 * down)
    if name in MEANS:
        rows, mean = map(np.asarray, MEANS[name](result.state))
        np.testing.assert_allclose(rows.mean(0), mean, atol=1e-10)


@pytest.mark.parametrize("name", ["feddyn", "scaffold_momentum", "fedvarp"])
def test_invariant_survives_quantised_uploads(name: str):
    rows, mean = map(np.asarray, MEANS[name](run(TRANSCRIPTIONS[name][0].replace(uploads=(Qsgd(2),)), 9, S).state))
    assert np.abs(mean).max() > 1e-2
    np.testing.assert_allclose(rows.mean(0), mean, atol=1e-10)


def round_draws(r: int, p: float) -> tuple[int, np.ndarray]:
    """The number of steps, by adding up geometric probabilities, and the order of the columns."""
    with enable_x64(True):
        key = jax.random.fold_in(jax.random.key(0), r)
        uniform = float(jax.random.uniform(jax.random.fold_in(key, 2**31 - 1), (), "float32"))
        common = jax.random.fold_in(jax.random.fold_in(key, 0), N)
        order = np.asarray(jax.random.permutation(common, np.arange(4, dtype=np.int32)))
    steps, below = 1, p
    while uniform >= below:
        below += p * (1 - p) ** steps
        steps += 1
    return steps, order


def test_scaffnew_follows_its_equations():
    p, x, h = 0.3, np.zeros(D), np.zeros((N, D))
    counts = set()
    for r in range(9):
        steps, _ = round_draws(r, p)
        counts.add(steps)
        eta = float(decaying(r))
        models = [descend(x, lambda w, i=i, h=h: gradient(i, w) - h[i], eta, steps) for i in range(N)]
        x = np.mean(models, axis=0)
        h = h + p / eta * (x - np.array(models))
    assert len(counts) > 2
    result = run(Scaffnew(decaying, probability=p), 9)
    np.testing.assert_allclose(result.params, x, rtol=1e-11)
    np.testing.assert_allclose(result.state.store.rows.state.h.sum(0), 0, atol=1e-10)


def test_tamuna_follows_its_equations():
    """Condat et al., Algorithm 1, with c = 4 of 6 clients, s = 2 and η = pχ."""
    p, c, s = 0.3, 4, 2
    x, h, chi = np.zeros(D), np.zeros((N, D)), N * (s - 1) / (s * (N - 1))
    for r in range(9):
        steps, order = round_draws(r, p)
        template = np.zeros((D, c))
        for k in range(D):
            for j in range(s):
                template[k, (s * k + j) % c] = 1
        clients = drawn_clients(0, r, N, c)
        masks = template[:, order].T
        models = np.array([descend(x, lambda w, i=i: gradient(i, w) - h[i], ETA, steps) for i in clients])
        x = (masks * models).sum(0) / s
        h[clients] += p * chi / ETA * masks * (x - models)
    result = run(Tamuna(ETA, probability=p, sparsity=s), 9, c)
    np.testing.assert_allclose(result.params, x, rtol=1e-11)
    np.testing.assert_allclose(result.state.store.rows.state.h, h, rtol=1e-9, atol=1e-10)
    assert result.bytes_up[-1] == 9 * c * (2 * 8 + 4)  # at most ⌈sD/c⌉ = 2 of 3 numbers, and the column
    np.testing.assert_allclose(h.sum(0), 0, atol=1e-10)


def blocks_of_second_phase(r: int, client: int, blocks: int) -> list[int]:
    with enable_x64(True):
        key = jax.random.key(0)
        for value in (r, 1, client):
            key = jax.random.fold_in(key, value)
        return [int(block_of(key, t, blocks)) for t in range(K)]


def test_local_svrg_follows_its_equations():
    q, blocks = 0.4, 2
    parts = [PROBLEM.data.client(i) for i in range(N)]

    def block_gradient(i: int, j: int, w: np.ndarray) -> np.ndarray:
        a, b = (np.array_split(v, blocks)[j] for v in parts[i])
        return blocks * a.T @ (a @ w - b)

    x = y = np.zeros(D)
    mean, renewals = np.zeros(D), 0
    for r in range(9):
        with enable_x64(True):
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), r), 0)
            lot = float(jax.random.uniform(jax.random.fold_in(key, 2**31 - 2), (), "float32"))
        if lot < q:
            y, mean, renewals = x, mean_gradient(x), renewals + 1
        models = []
        for i in chosen(r):
            w = x
            for j in blocks_of_second_phase(r, i, blocks):
                w = w - ETA * (block_gradient(i, j, w) - block_gradient(i, j, y) + mean)
            models.append(w)
        x = np.mean(models, axis=0)
    assert 1 < renewals < 9
    np.testing.assert_allclose(run(LocalSvrg(ETA, K, blocks, refresh=q), 9, S).params, x, rtol=1e-11)


def test_fedlin_follows_its_equations():
    x = np.zeros(D)
    for _ in range(6):
        mean = mean_gradient(x)
        models = [descend(x, lambda w, i=i, x=x, c=mean: gradient(i, w) - gradient(i, x) + c, ETA) for i in range(N)]
        x = x + 0.7 * (np.mean(models, axis=0) - x)
    np.testing.assert_allclose(run(Fedlin(ETA, K, server_step=0.7), 6).params, x, rtol=1e-11)


# --- Law 1 ------------------------------------------------------------------------------------------------------------

BOLD = 0.3 / PROBLEM.curvature
EXACT = {
    "feddyn, sampled": (Feddyn(BOLD, K, alpha=CURVE), S),
    "scaffnew": (Scaffnew(BOLD, probability=0.3), N),
    "tamuna, sampled and sparse": (Tamuna(BOLD, probability=0.3, sparsity=2), 4),
    "scaffold_momentum, sampled": (ScaffoldMomentum(ETA, K, alpha=0.3), S),
    "fedvarp, sampled, K=1": (Fedvarp(BOLD, 1), S),
    "mifa, sampled, K=1": (Mifa(BOLD, 1, server_step=0.3), S),
    "fedlin": (Fedlin(ETA, K), N),
    "local_svrg, sampled, random blocks": (LocalSvrg(ETA, K, 2, refresh=0.5), S),
}


@pytest.mark.parametrize("name", EXACT)
def test_reaches_the_optimum(name: str):
    algorithm, sampled = EXACT[name]
    assert away(run(algorithm, 3000, sampled).params) <= 1e-9


BIASED = {
    "fedavg_momentum": (FedavgMomentum(BOLD, K, alpha=0.3), N, 0.3 * BOLD),
    "fedvarp, sampled": (Fedvarp(BOLD, K), S, BOLD),
    "mifa, sampled": (Mifa(BOLD, K, server_step=0.3), S, BOLD),
    "fedexp": (Fedexp(BOLD, K, epsilon=1.0), N, BOLD),
    "ghbm": (Ghbm(BOLD, K, window=2, momentum=0.5), N, BOLD),
}


@pytest.mark.parametrize("name", BIASED)
def test_rests_where_fedavg_does(name: str):
    algorithm, sampled, eta = BIASED[name]
    reached = run(algorithm, 2000, sampled).params
    assert away(reached) >= 1e-3
    assert away(reached, fedavg_rest(eta, K)) <= 1e-9


@pytest.mark.parametrize("algorithm", [Feddyn(BOLD, K, 4, alpha=CURVE), ScaffoldMomentum(ETA, K, 4)], ids=str)
def test_random_blocks_keep_it_away(algorithm: Any):
    assert away(run(algorithm, 500, S).params) >= 1e-3


def test_composite_optima():
    hessian = HESSIANS.mean(0)
    linear = np.mean([a @ x for a, x in zip(HESSIANS, OPTIMA)], axis=0)
    optimum = lasso(hessian, linear, SPARSE)
    assert 0 < (optimum == 0).sum() < D
    for algorithm in (Feddualavg(BOLD, 1), Fedmid(BOLD, 1, prox="server")):
        assert away(run(algorithm, 2000, task=COMPOSITE).params, optimum) <= 1e-9
    for algorithm in (Feddualavg(BOLD, K), Fedmid(BOLD, K)):
        assert away(run(algorithm, 2000, task=COMPOSITE).params, optimum) >= 1e-3


def test_fedmid_as_printed_counts_the_regulariser_twice():
    (hessian,), (own,) = SINGLE.hessians, SINGLE.optima
    reached = run(Fedmid(0.3 / SINGLE.curvature, 1), 2000, 1, composite(0.3, SINGLE)).params
    assert away(reached, lasso(hessian, hessian @ own, 0.6)) <= 1e-9
    assert away(reached, lasso(hessian, hessian @ own, 0.3)) >= 1e-3


# --- Reductions and invariants ----------------------------------------------------------------------------------------

REDUCTIONS = {
    "fedavg_momentum": (FedavgMomentum(ETA, K, alpha=1.0, server_step=0.7), Fedavg(ETA, K, server_step=0.7), S),
    "scaffold_momentum": (ScaffoldMomentum(ETA, K, alpha=1.0), Scaffold(ETA, K), S),
    "scaffold_momentum, option 1": (ScaffoldMomentum(ETA, K, alpha=1.0, option=1), Scaffold(ETA, K, option=1), S),
    "fedexp at its floor": (Fedexp(ETA, K, server_step=0.7, epsilon=1e9), Fedavg(ETA, K, server_step=0.7), S),
    "ghbm": (Ghbm(ETA, K, momentum=0.0, server_step=0.7), Fedavg(ETA, K, server_step=0.7), S),
    "fedlin": (Fedlin(ETA, K), MimeSvrg(ETA, K), N),
    "local_svrg": (LocalSvrg(ETA, K, refresh=1.0), Fedlin(ETA, K), N),
    "tamuna": (Tamuna(ETA, probability=0.3), Scaffnew(ETA, probability=0.3), N),
    "scaffnew": (Scaffnew(ETA, probability=1.0), Fedavg(ETA, 1), N),
    "feddualavg": (Feddualavg(ETA, K, server_step=0.7), Fedavg(ETA, K, server_step=0.7), S),
    "fedmid": (Fedmid(ETA, K, server_step=0.7), Fedavg(ETA, K, server_step=0.7), S),
}


@cache
def plainly(name: str, sampled: int) -> np.ndarray:
    plain = next(plain for _, plain, s in REDUCTIONS.values() if (repr(plain), s) == (name, sampled))
    return run(plain, 5, sampled).params


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduces(name: str):
    special, plain, sampled = REDUCTIONS[name]
    np.testing.assert_allclose(run(special, 5, sampled).params, plainly(repr(plain), sampled), rtol=1e-11)


def test_scaffnew_keeps_its_sum_with_quantised_uploads():
    h = np.asarray(run(Scaffnew(ETA, probability=0.3, uploads=(Qsgd(2),)), 20).state.store.rows.state.h)
    assert np.abs(h).max() > 1e-2
    np.testing.assert_allclose(h.sum(0), 0, atol=1e-10)


@pytest.mark.parametrize("algorithm", [Feddyn(ETA), Scaffnew(ETA), Tamuna(ETA), ScaffoldMomentum(ETA)], ids=str)
def test_a_start_that_breaks_the_invariant_is_refused(algorithm: Any):
    everywhere = jax.tree.map(lambda a: np.ones((N, *np.shape(a))), algorithm.init_client(np.zeros(D)))
    with pytest.raises(ValueError, match="wrong point"):
        algorithm.check_state(Federation(N, S, lambda x, step: x), algorithm.init(np.zeros(D)), everywhere, ())
    zeros = jax.tree.map(np.zeros_like, everywhere)
    algorithm.check_state(Federation(N, S, lambda x, step: x), algorithm.init(np.zeros(D)), zeros, ())


# --- Details ----------------------------------------------------------------------------------------------------------


def test_number_of_steps_is_geometric():
    p, uniform = 0.3, (np.arange(10**5) + 0.5) / 10**5
    drawn = np.asarray(Scaffnew(1.0, probability=p).draw_steps(uniform))
    for k in range(1, 8):
        assert np.mean(drawn == k) == pytest.approx(p * (1 - p) ** (k - 1), abs=1e-4)
    assert drawn.mean() == pytest.approx(1 / p, rel=1e-3)
    assert int(Scaffnew(1.0, probability=1.0).draw_steps(0.9)) == 1


@pytest.mark.parametrize(("senders", "columns", "size"), [(2, 5, 7), (3, 3, 4), (2, 7, 2), (4, 5, 1), (2, 4, 10)])
def test_every_coordinate_has_s_senders(senders: int, columns: int, size: int):
    pattern = Pattern(senders, columns)
    tree = {"a": np.arange(1.0, size + 1), "b": np.full((size, 2), 3.0)}
    parts = [pack(pattern, np.int32(c), tree) for c in range(columns)]
    shares = [unpack(part) for part in parts]
    for name, leaf in tree.items():
        sent = np.array([share[name] for share in shares])
        assert sent.shape[1:] == leaf.shape
        np.testing.assert_array_equal((sent != 0).sum(0), senders)
        np.testing.assert_array_equal(sent.sum(0), senders * leaf)
        assert parts[0][name].values.size == -(-senders * leaf.size // columns)


@pytest.mark.parametrize(("sparsity", "sampled"), [(4, 3), (None, 1)])
def test_tamuna_refuses_too_few_senders(sparsity: int | None, sampled: int):
    with pytest.raises(ValueError, match="2 ≤ sparsity ≤ clients per round"):
        run(Tamuna(ETA, sparsity=sparsity), 2, sampled)


def test_refusals():
    with pytest.raises(ValueError, match="use at least 2"):
        Tamuna(ETA, sparsity=1)
    with pytest.raises(ValueError, match="uploads must be empty"):
        Tamuna(ETA, uploads=(Qsgd(2),))
    for setting in ({"local_steps": 3}, {"batch_size": 4}):
        with pytest.raises(ValueError, match="random number of local steps"):
            Scaffnew(ETA, **setting)
    for algorithm in (Scaffnew(ETA), Fedlin(ETA, K)):
        with pytest.raises(ValueError, match="every client in every round"):
            run(algorithm, 2, S)
    for tailored in (Scaffnew, Tamuna, ScaffoldMomentum, FedavgMomentum, Fedlin, LocalSvrg, Feddualavg, Fedmid, Ghbm):
        with pytest.raises(ValueError, match="cannot take clip_norm"):
            tailored(ETA, clip_norm=1.0)


def test_feddyn_takes_local_optimisers():
    """Its local objective has the same minimiser however it is minimised."""
    momentum = Feddyn(ETA, 8, alpha=CURVE, local_optimizer=lambda rate: optax.sgd(rate, momentum=0.5))
    assert away(run(momentum, 3000, S).params) <= 1e-9
