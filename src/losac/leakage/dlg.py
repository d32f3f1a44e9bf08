"""Deep leakage from gradients: look for data whose gradient is the one observed.

Reference: L. Zhu, Z. Liu, S. Han, *Deep leakage from gradients*, NeurIPS 2019; here with plain gradient descent, as in
H. Chen et al., *LoSAC*, Definition 1 and the section on the defence against DLG.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac.trees import Array, Tree, axpy, scale, squared_norm, sub


class Trace(NamedTuple):
    """An attack: the guess at its end, and over its steps, the start among them, the mismatch and the error."""

    guess: Tree
    mismatch: Array
    error: Array


def descend(
    gradient: Callable[[Tree], Tree],
    observed: Tree,
    start: Tree,
    error: Callable[[Tree], Array],
    *,
    steps: int = 100,
    step_size: float = 1e-3,
) -> Trace:
    """Minimise ‖gradient(guess) − observed‖² by gradient descent.

    Args:
      gradient: the gradient that the client would have sent, were its data the guess (any pytree of unknowns).
      observed: what the server takes for that gradient.
      start: the first guess.
      error: how far a guess is from the truth; only recorded.
      steps, step_size: of the descent.

    >>> trace = descend(lambda z: 2 * z, jnp.array([4.0]), jnp.array([0.0]), lambda z: abs(z - 2).sum(), step_size=0.1)
    >>> trace.guess.round(3), trace.error[0].round(3), trace.error[-1].round(3)
    (Array([2.], dtype=float32), Array(2., dtype=float32), Array(0., dtype=float32))
    """

    def mismatch(guess: Tree) -> Array:
        return squared_norm(sub(gradient(guess), observed))

    def step(guess: Tree, _: None) -> tuple[Tree, tuple[Array, Array]]:
        value, slope = jax.value_and_grad(mismatch)(guess)
        return axpy(-step_size, slope, guess), (value, error(guess))

    guess, (values, errors) = jax.lax.scan(step, start, None, length=steps)
    return Trace(guess, jnp.append(values, mismatch(guess)), jnp.append(errors, error(guess)))


def gradient_of(loss: Callable[..., Array], x: Tree, data: Array, labels: Array) -> Tree:
    """Return ∇f_i(x) of a client with this data, where f_i is the sum of its losses and ``loss`` their mean."""
    return jax.grad(lambda p: data.shape[0] * loss(p, (data, labels)))(x)


def model_in(message: Any) -> Tree:
    """Return the model in a message, or the change of the model in an upload, whatever else they hold."""
    return getattr(message, "x", message)


def mean_step(upload: Any, step_size: float, steps: int) -> Tree:
    """Return Δx/(ηL), what the paper's attack takes for a gradient: it is *minus* the mean direction of L steps."""
    return scale(1 / (step_size * steps), model_in(upload))


def add_up(changes: Sequence[Tree]) -> Tree:
    """Return the sum of all that a client ever sent of a control variate, which starts at zero: its present value.

    LoSAC's Δφ at M = 1 add up to the client's last local gradient, SCAFFOLD's Δc to its mean gradient of the round.
    """
    return jax.tree.map(lambda *parts: sum(parts), *changes)
