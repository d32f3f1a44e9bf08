"""Scale inputs to mean 0 and deviation 1, by each client's own statistics or by those of the federation.

For the federation's statistics no row leaves a client. Each client sends three sums (`client_sums`) twice, and the
server adds them up (`combine`): first the plain sums, which give the mean, then those about this mean, which give the
deviation. With only one exchange the deviation would be a difference of large numbers, and wrong for columns far from
0.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from losac._checks import check_kind, check_list, described
from losac.data.federated import FederatedData, check_data

Array = NDArray[Any]
_ROUNDING = 100 * float(np.finfo(np.float64).eps)
_PIECE = 2**22


class Sums(NamedTuple):
    """A client's message: how many rows it has, and for each input Σ(x − about) and Σ(x − about)²."""

    rows: int
    total: Array
    squares: Array
    about: Array


@dataclass(frozen=True, eq=False)
class Scale:
    """What is subtracted from each input, and what it is then divided by (1 if an input never varies)."""

    mean: Array
    deviation: Array

    def __call__(self, x: Array) -> Array:
        """Return (x − mean) / deviation in the floating-point dtype of x, or in float32 if x holds no floats."""
        dtype = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
        out = np.empty(x.shape, dtype)
        for rows in _pieces(x):
            out[rows] = (x[rows] - self.mean) / self.deviation
        return out


def client_sums(x: Array, about: Array | float = 0.0) -> Sums:
    """Return what a client sends about its rows; all in float64.

    >>> client_sums(np.array([[1.0], [3.0]]))
    Sums(rows=2, total=array([4.]), squares=array([10.]), about=array([0.]))
    """
    if not isinstance(x, np.ndarray) or x.ndim == 0:
        raise TypeError(f"x must be an array with one row per example, not {described(x)}")
    if np.shape(about) not in ((), x.shape[1:]):
        raise ValueError(f"about has shape {np.shape(about)}, but x has rows of shape {x.shape[1:]}")
    centre = np.broadcast_to(np.asarray(about, np.float64), x.shape[1:])
    total, squares = np.zeros(x.shape[1:]), np.zeros(x.shape[1:])
    for rows in _pieces(x):
        shifted = x[rows].astype(np.float64) - centre
        total += shifted.sum(axis=0)
        squares += np.square(shifted).sum(axis=0)
    return Sums(len(x), total, squares, centre)


def combine(messages: Iterable[Sums]) -> Scale:
    """Return the mean and the deviation of all clients' rows together, from their sums.

    >>> messages = [client_sums(np.array([[1.0], [3.0]])), client_sums(np.array([[8.0]]))]
    >>> combine(messages).mean
    array([4.])
    """
    every = check_list("messages", messages, "a list of messages of losac.data.client_sums")
    for message in every:
        check_kind("a message", message, Sums, "make it with losac.data.client_sums(x)")
    if not every:
        raise ValueError("no client sent its sums; give at least one message of client_sums")
    if any(not np.array_equal(message.about, every[0].about) for message in every):
        raise ValueError("the clients' sums are about different points; give all clients the same `about`")
    rows = sum(message.rows for message in every)
    shift = np.sum([message.total for message in every], axis=0) / rows
    variance = np.sum([message.squares for message in every], axis=0) / rows - shift**2
    mean, deviation = every[0].about + shift, np.sqrt(np.maximum(variance, 0.0))
    return Scale(mean, np.where(deviation > _ROUNDING * np.abs(mean), deviation, 1.0))


def federation_scale(data: FederatedData) -> Scale:
    """Return the statistics of all clients' rows, from two exchanges of sums."""

    def exchange(about: Array | float) -> Scale:
        return combine(client_sums(data.client(i)[0], about) for i in range(data.num_clients))

    return exchange(exchange(0.0).mean)


def standardize(data: FederatedData, by: Literal["federation", "client"] | Scale = "federation") -> FederatedData:
    """Return the data with inputs of mean 0 and deviation 1; those that never vary become 0.

    Args:
        data: the clients' data; x is copied into memory.
        by: `"federation"`: by the mean and deviation of all clients' rows, from sums alone; `"client"`: each client by
          its own, which also removes differences between clients; or an earlier `Scale`.

    Returns:
        The data. Its test part is always scaled by the federation's statistics (or the given ones), because its rows
        belong to no client. `info["scale"]` holds them, for future rows.

    >>> data = FederatedData.from_clients([([[1.0], [3.0]], [0, 1]), ([[11.0], [13.0]], [0, 1])])
    >>> standardize(data, by="client").x.ravel()
    array([-1.,  1., -1.,  1.])
    >>> standardize(data).info["scale"].mean
    array([7.])
    """
    check_data(data)
    if not isinstance(by, Scale) and by not in ("federation", "client"):
        raise ValueError(f"by={by!r}; give 'federation', 'client' or a Scale, such as data.info['scale']")
    scale = by if isinstance(by, Scale) else federation_scale(data)
    if scale.mean.shape not in ((), data.x.shape[1:]):
        raise ValueError(
            f"the scale is for rows of shape {scale.mean.shape}, but x has rows of shape {data.x.shape[1:]}"
        )
    info = {key: value for key, value in data.info.items() if key != "optimum"}
    return replace(
        data,
        x=_each_client(data) if by == "client" else scale(data.x),
        test=None if data.test is None else (scale(data.test[0]), data.test[1]),
        info={**info, "scale": scale},
    )


def _each_client(data: FederatedData) -> Array:
    parts = []
    for i in range(data.num_clients):
        x = data.client(i)[0]
        first = combine([client_sums(x)])
        parts.append(combine([client_sums(x, first.mean)])(x))
    return np.concatenate(parts)


def _pieces(x: Array) -> Iterable[slice]:
    """Return slices of rows that are small compared with memory."""
    step = max(1, _PIECE // max(1, int(np.prod(x.shape[1:]))))
    return (slice(start, start + step) for start in range(0, len(x), step))
