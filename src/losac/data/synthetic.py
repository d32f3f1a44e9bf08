"""Synthetic problems from a seed, with a known truth.

Each client is drawn from its own stream, seeded by (seed, client): adding clients does not change the others.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from losac import _random
from losac._checks import NONNEGATIVE, check_list, check_number, is_number, is_whole, shown
from losac._seeds import check_seed
from losac.data.federated import FederatedData, check_data

_GROUP = 4096
"""How many clients of a crowd share a stream."""


def quadratic(
    clients: int = 10,
    samples: int | Sequence[int] = 8,
    dim: int = 5,
    *,
    heterogeneity: float = 1.0,
    condition: float = 10.0,
    noise: float = 0.1,
    seed: int = 0,
) -> FederatedData:
    """Least squares where every client is strongly convex and has its own optimum.

    Client i has rows a_r, with A_i^T A_i / n_i of eigenvalues from 1/condition to 1 in random directions,
    and targets b_r = <a_r, w_i> + noise, with w_i = w + heterogeneity * N(0, I).

    Args:
        clients: number of clients.
        samples: rows of each client, one number for all or one for each; at least `dim`.
        dim: number of unknowns.
        heterogeneity: how far apart the clients' optima are; 0 gives all the same.
        condition: condition number of each client's mean loss.
        noise: standard deviation of the noise on the targets.
        seed: fixes everything.

    Returns:
        float64 data; `info["optimum"]` minimises (1/N) sum_i sum_r 1/2 (<a_r, w> - b_r)^2.

    >>> data = quadratic(clients=3, samples=[5, 6, 9], dim=4)
    >>> data
    FederatedData('quadratic': 3 clients, 20 rows (5 to 9 each), x (4,) float64, y () float64)
    >>> A, b, w = data.x, data.y, data.info["optimum"]
    >>> bool(np.allclose(A.T @ (A @ w - b), 0))
    True
    """
    _at_least("clients", clients, 1)
    _at_least("dim", dim, 1)
    check_number("condition", condition)
    if not condition >= 1:
        raise ValueError(f"condition={condition}; give at least 1")
    check_number("heterogeneity", heterogeneity, NONNEGATIVE)
    check_number("noise", noise, NONNEGATIVE)
    seed = check_seed(seed)
    sizes = [samples] * clients if is_whole(samples) else check_list("samples", samples, "a whole number, or a list")
    if len(sizes) != clients:
        raise ValueError(f"samples has {len(sizes)} entries for clients={clients}; give one number for each")
    for i, size in enumerate(sizes):
        _at_least(f"samples[{i}]", size, 1)
        if size < dim:
            raise ValueError(
                f"client {i} has samples={size} < dim={dim}, so its loss is not strongly convex; "
                f"give at least {dim} samples or a smaller dim"
            )
    shared = _random.shared_generator(seed).standard_normal(dim)
    scales = np.geomspace(1.0, 1.0 / condition, dim)
    pairs = []
    for i, size in enumerate(sizes):
        rng = _random.client_generator(seed, i)
        columns, _ = np.linalg.qr(rng.standard_normal((size, dim)))
        rotation, _ = np.linalg.qr(rng.standard_normal((dim, dim)))
        rows = np.sqrt(size) * (columns * np.sqrt(scales)) @ rotation.T
        own = shared + heterogeneity * rng.standard_normal(dim)
        pairs.append((rows, rows @ own + noise * rng.standard_normal(size)))
    data = FederatedData.from_clients(pairs, name="quadratic")
    return FederatedData(data.x, data.y, data.offsets, name=data.name, info={"optimum": least_squares_optimum(data)})


def least_squares_optimum(
    data: FederatedData,
    reduction: Literal["sum", "mean"] = "sum",
    weights: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Return the minimiser of sum_i p_i f_i(w), f_i the sum or mean over client i of 1/2 (<a_r, w> - b_r)^2.

    Args:
        data: rows of any shape, targets [n].
        reduction: what a client's loss is: the sum over its rows or their mean.
        weights: p_i, all equal if left out.

    Returns:
        float64, of the shape of one row of `data.x`.
    """
    check_data(data)
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction={reduction!r}; give 'sum' or 'mean'")
    if data.y.ndim != 1:
        raise ValueError(f"least squares needs one target per row, not rows of shape {data.y.shape[1:]}")
    p = np.full(data.num_clients, 1 / data.num_clients) if weights is None else _weights(weights, data.num_clients)
    scale = np.sqrt(np.repeat(p / data.sizes if reduction == "mean" else p, data.sizes))
    rows = data.x.reshape(len(data), -1).astype(np.float64)
    solution, *_ = np.linalg.lstsq(rows * scale[:, None], data.y * scale, rcond=None)
    return np.asarray(solution, dtype=np.float64).reshape(data.x.shape[1:])


def _weights(weights: Any, clients: int) -> NDArray[np.float64]:
    """Return weights as an array."""
    listed = check_list("weights", weights, "a list of numbers, one for each client")
    good = len(listed) == clients and all(is_number(w) and NONNEGATIVE.contains(float(w)) for w in listed)
    p = np.array(listed, float) if good else np.zeros(clients)
    if not p.any():
        raise ValueError(
            f"weights={shown(weights)}; give one non-negative number for each of {clients} clients, not all zero"
        )
    return p


def lowrank(clients: int = 100, samples: int = 100, dim: int = 64, rank: int = 8, *, seed: int = 0) -> FederatedData:
    """The paper's low-rank matrix estimation: y_j = <X_G, D_j> + noise, with X_G = diag(I_rank, 0).

    The entries of D_j are N(0.1, 1), the noise has variance 0.1. x is float32 [n, dim, dim], and
    `info["truth"]` is X_G.

    >>> lowrank(clients=2, samples=3, dim=4, rank=1)
    FederatedData('lowrank': 2 clients, 6 rows (3 each), x (4, 4) float32, y () float32)
    """
    _at_least("clients", clients, 1)
    _at_least("samples", samples, 1)
    _at_least("dim", dim, 1)
    seed = check_seed(seed)
    if not is_whole(rank) or not 1 <= rank <= dim:
        raise ValueError(f"rank={shown(rank)}; give a rank from 1 to dim={dim}")
    x = np.empty((clients * samples, dim, dim), dtype=np.float32)
    y = np.empty(clients * samples, dtype=np.float32)
    for i in range(clients):
        rng = _random.client_generator(seed, i)
        rows = slice(i * samples, (i + 1) * samples)
        x[rows] = rng.standard_normal((samples, dim, dim), dtype=np.float32) + np.float32(0.1)
        noise = np.sqrt(0.1) * rng.standard_normal(samples)
        y[rows] = np.einsum("jkk->j", x[rows, :rank, :rank], dtype=np.float64) + noise
    truth = np.diag((np.arange(dim) < rank).astype(np.float32))
    offsets = samples * np.arange(clients + 1, dtype=np.int64)
    return FederatedData(x, y, offsets, name="lowrank", info={"truth": truth})


def logistic(
    clients: int = 20,
    samples: int = 50,
    dim: int = 10,
    *,
    classes: int = 2,
    heterogeneity: float = 0.5,
    seed: int = 0,
) -> FederatedData:
    """Labels drawn from a softmax model that each client mixes from a shared and an own one.

    With h = heterogeneity, client i has W_i = (1 - h) W + h V_i and inputs N(h u_i, diag(j^-1.2)), all of
    W, V_i, u_i standard normal: with 0 the clients are alike, with 1 they have nothing in common. The test part
    has a quarter as many further rows from every client. After Li et al., arXiv:1812.06127 (Synthetic(a, b)).

    >>> logistic(clients=3, samples=20, dim=4)
    FederatedData('logistic': 3 clients, 60 rows (20 each), x (4,) float32, y () int32, 2 classes,
    test 15 rows)
    """
    _check_classes(clients, samples, dim, classes, heterogeneity, seed)
    shared = _random.shared_generator(seed).standard_normal((dim, classes))
    spread = np.arange(1, dim + 1) ** -0.6
    train: list[tuple[NDArray[Any], NDArray[Any]]] = []
    test: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for i in range(clients):
        rng = _random.client_generator(seed, i)
        model = (1 - heterogeneity) * shared + heterogeneity * rng.standard_normal((dim, classes))
        centre = heterogeneity * rng.standard_normal(dim)
        for part, size in ((train, samples), (test, max(1, samples // 4))):
            x = centre + spread * rng.standard_normal((size, dim))
            y = np.argmax(x @ model + rng.gumbel(size=(size, classes)), axis=1)
            part.append((x.astype(np.float32), y.astype(np.int32)))
    held_out = (np.concatenate([x for x, _ in test]), np.concatenate([y for _, y in test]))
    return FederatedData.from_clients(
        train, test=held_out, name="logistic", num_classes=classes, info={"shared_model": shared}
    )


def crowd(
    clients: int = 1_000_000,
    samples: int = 8,
    dim: int = 60,
    *,
    classes: int = 10,
    heterogeneity: float = 0.5,
    seed: int = 0,
) -> FederatedData:
    """A very large federation of small clients, made in seconds: a million clients with 8 rows of 60 numbers take 2 GB.

    With h = heterogeneity, client i has inputs h u_i + N(0, I) and labels from a softmax of W x + 2 h b_i, with W
    shared and u_i, b_i its own, all standard normal: clients differ in their inputs and in the labels they prefer.
    Clients are drawn in groups of 4,096, each from its own stream. There is no test part.

    >>> crowd(clients=5000, samples=4, dim=6)
    FederatedData('crowd': 5,000 clients, 20,000 rows (4 each), x (6,) float32, y () int32, 10 classes)
    """
    _check_classes(clients, samples, dim, classes, heterogeneity, seed)
    shared = _random.shared_generator(seed).standard_normal((dim, classes), np.float32) / np.float32(dim**0.5)
    x = np.empty((clients * samples, dim), np.float32)
    y = np.empty(clients * samples, np.int32)
    for group, first in enumerate(range(0, clients, _GROUP)):
        rng = _random.client_generator(seed, group)
        rows = rng.standard_normal((_GROUP, samples, dim), np.float32)
        rows += np.float32(heterogeneity) * rng.standard_normal((_GROUP, 1, dim), np.float32)
        prefers = np.float32(2 * heterogeneity) * rng.standard_normal((_GROUP, 1, classes), np.float32)
        noise = -np.log(np.maximum(rng.standard_exponential((_GROUP, samples, classes), np.float32), 1e-30))
        scores = (rows.reshape(-1, dim) @ shared).reshape(_GROUP, samples, classes)
        labels = np.argmax(scores + prefers + noise, axis=-1)
        number = min(_GROUP, clients - first)
        here = slice(first * samples, (first + number) * samples)
        x[here], y[here] = rows[:number].reshape(-1, dim), labels[:number].ravel()
    offsets = samples * np.arange(clients + 1, dtype=np.int64)
    return FederatedData(x, y, offsets, name="crowd", num_classes=classes, info={"shared_model": shared})


def _at_least(name: str, value: Any, low: int) -> None:
    if not is_whole(value) or value < low:
        raise ValueError(f"{name}={shown(value)}; give at least {low}{'' if is_whole(value) else ', a whole number'}")


def _check_classes(clients: int, samples: int, dim: int, classes: int, heterogeneity: float, seed: int) -> None:
    _at_least("clients", clients, 1)
    _at_least("samples", samples, 1)
    _at_least("dim", dim, 1)
    _at_least("classes", classes, 2)
    check_seed(seed)
    if not is_number(heterogeneity) or not 0 <= heterogeneity <= 1:
        raise ValueError(f"heterogeneity={shown(heterogeneity)}; give a number from 0 (alike) to 1 (nothing in common)")
