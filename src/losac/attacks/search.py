"""Search for the data that explains an observation: minimise the mismatch with any optimiser of optax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from losac.trees import Array, Tree, map_trees

Value = Callable[[Tree], Array]


class Trace(NamedTuple):
    """A search: the final guess, and the mismatch and the recorded values at its start and after every step."""

    guess: Tree
    mismatch: Array
    recorded: Array


def search(
    mismatch: Value,
    start: Tree,
    optimizer: Any,
    *,
    steps: int,
    signed: bool = False,
    project: Callable[[Tree], Tree] = lambda guess: guess,
    record: Value = lambda guess: jnp.zeros(()),
) -> Trace:
    """Minimise a mismatch.

    Args:
      mismatch: of a guess, any pytree of unknowns.
      start: the first guess.
      optimizer: optax's; ``optax.sgd`` is plain gradient descent, ``optax.lbfgs`` searches along its directions.
      steps: how many.
      signed: use the signs of the derivatives only.
      project: brings a guess back into the allowed set.
      record: a value to keep of every guess.

    >>> trace = search(lambda z: (2 * z - 4) ** 2, jnp.zeros(()), optax.sgd(0.1), steps=20, record=lambda z: abs(z - 2))
    >>> trace.guess.round(3), trace.recorded[0], trace.recorded[-1].round(3)
    (Array(2., dtype=float32), Array(2., dtype=float32), Array(0., dtype=float32))
    """
    optimizer = optax.with_extra_args_support(optimizer)

    def step(carry: tuple[Tree, Any], _: None) -> tuple[tuple[Tree, Any], tuple[Array, Array]]:
        guess, state = carry
        value, slope = jax.value_and_grad(mismatch)(guess)
        used = map_trees(jnp.sign, slope) if signed else slope
        update, state = optimizer.update(used, state, guess, value=value, grad=used, value_fn=mismatch)
        return (project(optax.apply_updates(guess, update)), state), (value, record(guess))

    (guess, _), (values, recorded) = jax.lax.scan(step, (start, optimizer.init(start)), None, length=steps)
    return Trace(guess, jnp.append(values, mismatch(guess)), jnp.append(recorded, record(guess)))
