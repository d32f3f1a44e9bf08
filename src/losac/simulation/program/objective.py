"""Losses and metrics over batches that may end in rows of padding, without any influence of the padding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac import _random
from losac._checks import described
from losac.simulation.program.alike import first_alike
from losac.task import Task
from losac.trees import Array, Tree

Chunk = tuple[Array, Array]


class Batch(NamedTuple):
    """Rows of one client; of these the first ``size`` are real, the others repeat the first real one."""

    x: Array
    y: Array
    size: Any


class Cut(NamedTuple):
    """Static facts about the batches of a phase: their padded length and the real sizes that occur."""

    rows: int
    sizes: tuple[int, ...]

    @property
    def even(self) -> bool:
        """Whether no batch has padding."""
        return self.sizes == (self.rows,)


class Objective(NamedTuple):
    """A user's loss and what it takes besides parameters and batch."""

    loss: Callable[..., Any]
    takes_key: bool
    takes_state: bool
    coupled: bool
    takes_training: bool = False
    whole: bool = False
    """Whether the rows are coupled in evaluation too, which then takes all of them at once."""
    takes_frozen: bool = False

    @classmethod
    def of(cls, task: Task) -> Objective:
        """Read a task's loss."""
        takes_state, takes_training = task.takes("state"), task.takes("training")
        whole = task.coupled or (takes_state and not takes_training)
        loss, coupled = first_alike(task.loss), task.coupled or takes_state
        return cls(loss, task.takes("key"), takes_state, coupled, takes_training, whole, task.frozen is not None)

    def given(self, frozen: Tree) -> Objective:
        """Return the objective with the frozen weights in place, inside a program that has them as an argument."""
        return self._replace(loss=partial(self.loss, frozen=frozen)) if self.takes_frozen else self

    def call(self, params: Tree, chunk: Chunk, key: Array, state: Tree, training: bool = True) -> tuple[Array, Tree]:
        """Return the mean loss of a batch of real rows and the model's next state."""
        extras: dict[str, Any] = {"key": key} if self.takes_key else {}
        if self.takes_training:
            extras["training"] = training
        if not self.takes_state:
            return scalar("loss", self.loss(params, chunk, **extras)), state
        found = self.loss(params, chunk, state=state, **extras)
        if not isinstance(found, tuple) or len(found) != 2:
            raise TypeError(f"the loss takes the model's state, but returned {_kind(found)}; return (value, new_state)")
        if _kinds(found[1]) != _kinds(state):
            raise TypeError("the loss returned a model state of another structure, shape or dtype than it was given")
        return scalar("loss", found[0]), found[1]

    def each(self, params: Tree, chunk: Chunk, key: Array, state: Tree) -> Array:
        """Return the loss of every single row."""
        return per_row(lambda p, c, k: self.call(p, c, k, state)[0], params, chunk, key)

    def total(self, params: Tree, batch: Batch, cut: Cut, key: Array, state: Tree) -> tuple[Array, Tree]:
        """Return the sum of the losses of the real rows and the model's next state."""
        if cut.even:
            value, state = self.call(params, (batch.x, batch.y), key, state)
            return value * cut.rows, state
        if self.coupled:
            branches = [self._slice(size) for size in cut.sizes]
            which = jnp.searchsorted(jnp.asarray(cut.sizes), batch.size)
            return jax.lax.switch(which, branches, params, batch, key, state)
        losses = self.each(params, (batch.x, batch.y), key, state)
        return jnp.where(jnp.arange(cut.rows) < batch.size, losses, 0).sum(), state

    def _slice(self, size: int) -> Callable[..., tuple[Array, Tree]]:
        def branch(params: Tree, batch: Batch, key: Array, state: Tree) -> tuple[Array, Tree]:
            value, after = self.call(params, (batch.x[:size], batch.y[:size]), key, state)
            return value * size, after

        return branch


def scalar(name: str, value: Any) -> Array:
    """Return the mean that a loss or metric has computed; refuse what is not a floating-point number."""
    if not hasattr(value, "dtype") or jnp.shape(value) or not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(f"the {name} returned {_kind(value)}; it must return the mean of the batch, one float")
    return value


def _kind(value: Any) -> str:
    return f"{value.dtype}{list(jnp.shape(value))}" if hasattr(value, "dtype") else described(value)


def _kinds(tree: Tree) -> Any:
    return jax.tree.map(lambda leaf: (jnp.shape(leaf), str(jnp.result_type(leaf))), tree)


def per_row(function: Callable[..., Array], params: Tree, chunk: Chunk, key: Array) -> Array:
    """Evaluate ``function(params, batch, key)``, a mean over a batch, on every row as a batch of one."""
    keys = _random.row_keys(key, chunk[0].shape[0])
    return jax.vmap(lambda x, y, k: function(params, (x[None], y[None]), k))(*chunk, keys)


def weighted_sum(
    function: Callable[..., Array], params: Tree, chunk: tuple[Array, Array, Array], key: Array, coupled: bool
) -> Array:
    """Return Σ v_r · function(row r) over a chunk of x, y and v, which is zero on padding.

    A function that couples its rows is evaluated on the whole chunk and weighted by the sum of v.
    """
    x, y, v = chunk
    if coupled:
        return v.sum() * function(params, (x, y), key)
    return v @ per_row(function, params, (x, y), key).astype(v.dtype)
