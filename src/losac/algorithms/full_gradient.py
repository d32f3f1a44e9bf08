"""The phase where clients send their exact local gradient at the server's model.

Shared by the methods with an anchor gradient: Mime and its relatives, FedLin, S-Local-SVRG.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from losac._settings import choice, node
from losac.algorithms.contract import Clients, Federation, Local, Phase, Received
from losac.trees import Tree, scale


class FullGradient(Phase):
    r"""The round's clients send ∇f_i(x); the server puts their mean where the algorithm wants it.

    .. math:: c = \frac1S\sum_{i\in\mathcal S}\nabla f_i(x)

    It has no local step and leaves the clients' state alone.

    Args:
      model: returns x from the server's state.
      absorb: returns the server's next state from the present one and c.
      probability: with which the phase takes place in a round; None: always.
    """

    model: Callable[[Tree], Tree] = choice()
    absorb: Callable[[Tree, Tree], Tree] = choice()
    probability: Any = node(default=None)

    @property
    def chance(self) -> Any:
        """The probability that the gradient is renewed in a round."""
        return self.probability

    def broadcast(self, server: Tree) -> Tree:
        """Send the model only."""
        return self.model(server)

    def end(self, here: Local, x: Tree, client: Tree, local: Tree) -> tuple[Tree, Tree]:
        """Send the exact local gradient."""
        return here.gradient(x), client

    def update(self, here: Federation, server: Tree, received: Received) -> Tree:
        """Pass the mean gradient to the algorithm."""
        return self.absorb(server, scale(1 / received.count, received.total))


class FullGradientOfAll(FullGradient):
    """The same with all N clients, sampled or not: c = ∇f(x)."""

    clients: ClassVar[Clients] = "all"
