"""The phase where clients measure the curvature of the objective, by power iteration on its Hessian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from losac import _random
from losac._settings import POSITIVE, choice, node, number
from losac.algorithms.contract import Federation, Local, Phase, Received
from losac.trees import Tree, axpy, map_trees, scale, squared_norm, sub


def first_direction(x: Tree) -> Tree:
    """Return a random direction of unit length, always the same."""
    leaves, structure = jax.tree.flatten(x)
    keys = _random.direction_keys(len(leaves))
    drawn = [jax.random.normal(key, jnp.shape(leaf), jnp.asarray(leaf).dtype) for key, leaf in zip(keys, leaves)]
    return unit(jax.tree.unflatten(structure, drawn))


def unit(tree: Tree) -> Tree:
    """Return a tree divided by its norm; zero remains."""
    norm = squared_norm(tree) ** 0.5
    return scale(1 / (norm + (norm == 0)), tree)


class Curvature(Phase):
    r"""The round's clients send how their gradient changes along a direction; the server takes the mean as the next.

    .. math:: w = \frac1S\sum_{i\in\mathcal S}\frac{\nabla f_i(x + \varepsilon v) - \nabla f_i(x)}{\varepsilon}, \qquad
       v \leftarrow w/\|w\|, \quad L \leftarrow \|w\|

    with ε = ``reach`` · √(1 + ‖x‖²). It costs one model up, two down, and two passes over the clients' data.
    Where w = 0, v stays, and L is positive all the same but as good as zero.

    Args:
      read: returns x and v from the server's state.
      absorb: returns the server's next state from what it knows, its present state, v and L.
      probability: with which the phase takes place in a round; None: always.
    """

    read: Callable[[Tree], tuple[Tree, Tree]] = choice()
    absorb: Callable[[Federation, Tree, Tree, Any], Tree] = choice()
    probability: Any = node(default=None)
    reach: Any = number(default=1e-3, domain=POSITIVE, kw_only=True)

    @property
    def chance(self) -> Any:
        """The probability that the curvature is measured in a round."""
        return self.probability

    def broadcast(self, server: Tree) -> tuple[Tree, Tree]:
        """Send x and v."""
        return self.read(server)

    def end(self, here: Local, message: tuple[Tree, Tree], client: Tree, local: Tree) -> tuple[Tree, Tree]:
        """Send the change of the local gradient, over ε."""
        x, direction = message
        epsilon = self.reach * (1 + squared_norm(x)) ** 0.5
        change = sub(here.gradient(axpy(epsilon, direction, x)), here.gradient(x))
        return scale(1 / epsilon, change), client

    def update(self, here: Federation, server: Tree, received: Received) -> Tree:
        """Hand the next direction and the curvature to the algorithm."""
        mean = scale(1 / received.count, received.total)
        length, (_, before) = squared_norm(mean) ** 0.5, self.read(server)
        direction = map_trees(lambda new, old: jnp.where(length > 0, new, old), unit(mean), before)
        return self.absorb(here, server, direction, jnp.maximum(length, jnp.finfo(length.dtype).tiny ** 0.5))
