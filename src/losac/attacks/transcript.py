"""What an honest-but-curious server sees: the orders and replies of a running federation, client by client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from losac._checks import check_count, check_list, is_whole, shown
from losac._devices import prepare_jax
from losac._seeds import check_seed
from losac.algorithms.contract import Algorithm
from losac.federation.book import Rules
from losac.federation.drive import Driver, Exchanged, Peer, Transport
from losac.federation.eager import EagerWorker
from losac.federation.inprocess import InProcess
from losac.federation.membership import enrol
from losac.federation.protocol import Client, Order, Reply
from losac.federation.setting import Setting
from losac.federation.shapes import decode
from losac.federation.vault import Memory
from losac.federation.work import Assignment
from losac.prox import Regularizer
from losac.simulation.options import Dtype
from losac.simulation.program.arrays import cast
from losac.simulation.program.setup import check_algorithm, start_params
from losac.simulation.sampling import make_sampler
from losac.task import Reduction, Task, check_task
from losac.trees import Tree, map_trees


class Exchange(NamedTuple):
    """One exchange with one client: what it was asked to do, what it received, and what it sent, in decoded form."""

    task: Assignment
    message: Tree
    upload: Tree


class Transcript(NamedTuple):
    """All that the server knows of one client.

    It knows the method, how many rows the client has, and the seed: in a federation the server hands out the seed, and
    with it the blocks that every step uses.
    """

    algorithm: Algorithm
    rows: int
    reduction: Reduction
    regularizer: Regularizer
    start: Tree
    exchanges: tuple[Exchange, ...]

    def first_rounds(self, count: int) -> Transcript:
        """Return what was seen in the first rounds that the client took part in."""
        rounds = sorted({one.task.round for one in self.exchanges})[:count]
        return self._replace(exchanges=tuple(one for one in self.exchanges if one.task.round in rounds))


class Wiretap:
    """A transport that passes everything on, and keeps what goes to and comes from some clients.

    Args:
      transport: the one that carries the orders.
      keep: called with every order that was answered, and its reply.
    """

    def __init__(self, transport: Transport, keep: Callable[[Order, Reply], None]) -> None:
        self._transport, self._keep = transport, keep

    def peers(self) -> Any:
        """Return the clients that are present."""
        return self._transport.peers()

    def doubt(self, peer: Peer) -> None:
        """Take note that a client is refused."""
        self._transport.doubt(peer)

    def exchange(self, orders: Mapping[str, Order], deadline: float | None) -> Exchanged:
        """Send orders and wait for the replies."""
        found = self._transport.exchange(orders, deadline)
        for name, reply in found.replies.items():
            if orders[name].kind == "train" and reply.status == "done":
                self._keep(orders[name], reply)
        return found


def watch(
    task: Task,
    algorithm: Algorithm,
    clients: Sequence[int] = (0,),
    *,
    rounds: int,
    clients_per_round: int | None = None,
    seed: int = 0,
    dtype: Dtype = "float32",
) -> list[Transcript]:
    """Run a federation in this process and return what its server sees of some clients.

    Its messages are those of :func:`losac.simulate` with the same arguments, and of a federation on Flower; only the
    noise of private uploads follows no seed, as in a real federation.

    Args:
      task, algorithm, clients_per_round, seed, dtype: as for :func:`losac.simulate`.
      clients: the ones to watch.
      rounds: how many rounds.

    >>> import losac
    >>> data = losac.data.load("digits", clients=4)
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> (seen,) = watch(task, losac.algorithms.dsgd(step_size=1e-3), rounds=2)
    >>> len(seen.exchanges), seen.exchanges[1].upload[0]["w"].shape
    (2, (64, 10))
    """
    prepare_jax()
    n = check_task(task).data.num_clients
    check_algorithm(algorithm)
    check_count("rounds", rounds)
    seed = check_seed(seed)
    clients = check_list("clients", clients, "a list of the numbers of clients")
    if not clients:
        raise ValueError("clients names no client; give at least one")
    for client in clients:
        if not is_whole(client) or not 0 <= client < n:
            raise ValueError(f"client={shown(client)} does not exist; the clients are 0 to {n - 1}")
    if task.state is not None or task.frozen is not None or task.takes("key"):
        raise ValueError(
            "attacks need a loss that is a function of parameters and batch alone, without state, key or frozen weights"
        )
    assert task.regularizer is not None
    sampled = n if clients_per_round is None else clients_per_round
    start = map_trees(lambda a: cast(a, np.dtype(dtype)), start_params(task, seed))
    setting = Setting(
        algorithm, Rules(clients=n, clients_per_round=sampled, seed=seed, dtype=dtype), start, (), task.regularizer,
        make_sampler("uniform", n, sampled, algorithm.partial),
    )  # fmt: skip
    found: dict[int, list[Exchange]] = {client: [] for client in clients}

    def keep(order: Order, reply: Reply) -> None:
        if order.task.client in found:
            upload = setting.call(lambda: decode(setting.algorithm, order.task.phase_index, reply.upload.content))
            found[order.task.client].append(Exchange(order.task, order.message.content, upload))

    sizes = [int(size) for size in task.data.sizes]
    book = setting.first_book("0" * 12)
    for i, weight in enumerate(n * task.client_weights):
        book = enrol(setting, book, str(i), sizes[i], i, float(weight))
    workers = {str(i): Client(_worker(task, algorithm, i, start), Memory()) for i in range(n)}
    for _ in Driver(setting, Wiretap(InProcess(workers), keep), book).run(rounds):
        pass
    return [Transcript(algorithm, sizes[i], task.reduction, task.regularizer, start, tuple(found[i])) for i in clients]


def _worker(task: Task, algorithm: Algorithm, client: int, start: Tree) -> EagerWorker:
    x, y = task.data.client(client)
    x, y = np.asarray(cast(x, jax.tree.leaves(start)[0].dtype)), np.asarray(y)
    gradient, loss = mean_gradient(task.loss), mean_loss(task.loss)
    return EagerWorker(
        algorithm, lambda params, rows: gradient(params, (x[rows], y[rows])), len(x), regularizer=task.regularizer,
        reduction=task.reduction, params=start, value=lambda params, rows: {"loss": loss(params, (x[rows], y[rows]))},
    )  # fmt: skip


@lru_cache(maxsize=8)
def mean_loss(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loss as a function of parameters and batch, compiled once for all who use it."""
    return jax.jit(loss)


@lru_cache(maxsize=8)
def mean_gradient(loss: Callable[..., Any]) -> Callable[..., Tree]:
    """Return the gradient of a loss as a function of parameters and batch, compiled once for all who use it."""
    return jax.jit(jax.grad(loss))
