"""A round between two crashes: its clients are fixed, and its sum is still masked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from losac.federation.book import Book
from losac.federation.protocol import fill, parse_token
from losac.federation.rounds import Attempt
from losac.federation.secure.session import Session
from losac.federation.work import Message
from losac.trees import Tree


class Sealed(NamedTuple):
    """What a server must know to unmask a sum and to finish its round.

    ``before`` are the clients of the phase before, ``own`` those of the algorithm's own phase, ``levels`` what these
    were credited; all None before the phase.
    """

    session: Session
    asked: tuple[str, ...]
    server: Tree
    gradients: float
    before: tuple[str, ...] | None
    own: tuple[str, ...]
    levels: list[np.ndarray] | None

    @staticmethod
    def of(attempt: Attempt, session: Session, before: Sequence[str] | None) -> Sealed:
        """Return a round whose present phase is a session's."""
        return Sealed(
            session, tuple(attempt.asked), attempt.server, attempt.gradients, None if before is None else tuple(before),
            tuple(attempt.own), attempt.levels,
        )  # fmt: skip

    def attempt(self, book: Book) -> Attempt:
        """Return the round as it was, with the token that it had."""
        _, start, tick = parse_token(self.session.token)
        book = book._replace(starts=start, tick=tick)
        uploads = None if self.before is None else {name: Message(()) for name in self.before}
        own = {name: ((), book.members[name].row) for name in self.own}
        return Attempt(
            book, list(self.asked), self.server, book.model_state, self.session.phase_index, uploads, own,
            gradients=self.gradients, levels=self.levels,
        )  # fmt: skip

    def parts(self) -> tuple[dict[str, Any], dict[str, Sequence[np.ndarray]]]:
        """Return what a file holds of it: plain values, and arrays by name."""
        values = {
            "session": self.session.plain(), "asked": self.asked, "gradients": self.gradients, "before": self.before,
            "own": self.own, "has_levels": self.levels is not None,
        }  # fmt: skip
        arrays = {"sealed total": self.session.total, "sealed server": jax.tree.leaves(self.server)}
        return values, arrays | {"sealed levels": self.levels or []}


def from_parts(values: Mapping[str, Any], arrays: Mapping[str, Sequence[np.ndarray]], server: Tree) -> Sealed:
    """Return what a file holds; the server's state has the structure of another."""
    session = Session(**values["session"], total=list(arrays["sealed total"]))
    before = values["before"]
    return Sealed(
        session, tuple(values["asked"]), fill(server, arrays["sealed server"]), values["gradients"],
        None if before is None else tuple(before), tuple(values["own"]),
        list(arrays["sealed levels"]) if values["has_levels"] else None,
    )  # fmt: skip
