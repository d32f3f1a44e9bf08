"""A client's walk through one phase, in plain Python: begin, step after step, end, transform, record.

All computation outside the compiled simulator goes through :func:`walk`: uncompiled clients
(:mod:`losac.federation.eager`), shapes and costs found by tracing (:mod:`losac.federation.shapes`,
:mod:`losac.torch.costs`), all clients of a phase at once in PyTorch (:mod:`losac.torch.together`), the replays of
attacks (:mod:`losac.attacks.replay`), and the laws of the contract (:mod:`losac.testing.contract`). The compiled form
of the same walk is ``train`` and ``send`` in the simulator's client; ``tests/test_walk.py`` compares the two for every
algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import jax

from losac.trees import Tree, axpy


class Functions(Protocol):
    """The functions of a phase that a client calls: the phase itself, or a wrapper that watches or vectorises them."""

    @property
    def table(self) -> bool:
        """Whether a step takes a table entry y_j and returns the new one."""

    def begin(self, here: Any, message: Tree, client: Tree) -> tuple[Tree, Tree]:
        """Return the local variables to start from and the client's state."""

    def step(self, here: Any, message: Tree, client: Tree, local: Tree, grad: Any, *y: Tree) -> Tree:
        """Return the local variables after one step (with the new y_j if there is a table)."""

    def end(self, here: Any, message: Tree, client: Tree, local: Tree) -> tuple[Tree, Tree]:
        """Return the upload and the client's next state."""


class Step(NamedTuple):
    """What one local step uses: its gradient function, and the block of the table entry that it reads and writes."""

    gradient: Any
    block: Any = 0


class TableEntries(Protocol):
    """A client's table: ``table[j]`` is y_j. A dictionary will do."""

    def __getitem__(self, j: Any, /) -> Tree:
        """Return y_j."""

    def __setitem__(self, j: Any, y: Tree, /) -> None:
        """Replace y_j."""


def _same(tree: Tree) -> Tree:
    return tree


class Border(NamedTuple):
    """How arrays are converted for the steps: ``begin`` and ``step`` see one kind, ``end`` and ``record`` another.

    Args:
      enter: converts a tree on its way to the steps.
      leave: converts a tree on its way from the steps.
      here: what the client knows, for ``end`` and ``record``; None: the same as for the steps.
    """

    enter: Callable[[Tree], Tree] = _same
    leave: Callable[[Tree], Tree] = _same
    here: Any = None


class Sending(NamedTuple):
    """How an upload is transformed before it leaves.

    Args:
      encode: upload → (the payload, the upload as the server reads it, the transforms' next states).
      record: :meth:`~losac.algorithms.contract.Algorithm.record`, in the algorithm's own phase; None in others.
    """

    encode: Callable[[Tree], tuple[Tree, Tree, Tree]]
    record: Callable[..., tuple[Tree, Tree]] | None = None


class Walked(NamedTuple):
    """The result of a walk.

    Args:
      upload: as the algorithm makes it.
      payload: what is sent; the upload itself if nothing transforms it.
      client: the client's next state.
      transforms: the transforms' next states; () if nothing transforms the upload.
    """

    upload: Tree
    payload: Tree
    client: Tree
    transforms: Tree = ()


def walk(
    phase: Functions,
    here: Any,
    message: Tree,
    client: Tree,
    steps: Iterable[Step],
    table: TableEntries | None = None,
    border: Border | None = None,
    sending: Sending | None = None,
) -> Walked:
    """Take one client through a phase.

    Args:
      phase: the functions to call.
      here: what the client knows (:class:`~losac.algorithms.contract.Local`), in the kind of arrays of its steps.
      message: what the server sends.
      client: the client's state.
      steps: the local steps, one after the other; the next is asked for only after the one before is done.
      table: the client's table, changed in place; only phases with a table need it.
      border: how arrays are converted around the steps; None: not at all.
      sending: how the upload is transformed; None: it isn't.
    """
    border = border or Border()
    outside = here if border.here is None else border.here
    given = border.enter(message)
    local, client = phase.begin(here, given, border.enter(client))
    visited: dict[Any, None] = {}
    for gradient, block in steps:
        if phase.table:
            assert table is not None
            local, table[block] = phase.step(here, given, client, local, gradient, table[block])
            visited[block] = None
        else:
            local = phase.step(here, given, client, local, gradient)
    client, local = border.leave((client, local))
    upload, client = border.leave(phase.end(outside, message, client, local))
    if sending is None:
        return Walked(upload, upload, client)
    payload, sent, transforms = sending.encode(upload)
    if sending.record is not None:
        client, change = sending.record(outside, upload, sent, client)
        if jax.tree.leaves(change):
            assert table is not None
            for block in visited:
                table[block] = axpy(1 / len(visited), change, border.leave(table[block]))
    return Walked(upload, payload, border.leave(client), transforms)
