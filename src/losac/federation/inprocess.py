"""A federation within one process, for experiments and for tests that do not depend on the transport."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from losac.federation.drive import Exchanged, Peer
from losac.federation.protocol import Client, Order, Reply
from losac.trees import nbytes

Wire = Callable[[str, Order], Reply]


class InProcess:
    """A transport that calls the clients one after the other.

    Args:
      clients: by name; this order decides their numbers.
      wire: carries an order to a client and its reply back; by default both are passed on unchanged.
    """

    def __init__(self, clients: Mapping[str, Client], wire: Wire | None = None) -> None:
        self.clients = clients
        self.wire = wire or (lambda name, order: self.clients[name].answer(order))

    def peers(self) -> Iterable[Peer]:
        """Return all clients."""
        return [Peer(name, client.worker.rows, number) for number, (name, client) in enumerate(self.clients.items())]

    def exchange(self, orders: Mapping[str, Order], deadline: float | None) -> Exchanged:
        """Let every client answer; there is no deadline."""
        replies = {name: self.wire(name, order) for name, order in orders.items()}
        down = sum(nbytes((order.message, order.start)) for order in orders.values())
        up = sum(nbytes(reply.upload) for reply in replies.values())
        return Exchanged(replies, {"bytes_up": up, "bytes_down": down})

    def doubt(self, peer: Peer) -> None:
        """Do nothing: a client is always the same one."""
