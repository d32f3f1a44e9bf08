"""What a server must not forget: one immutable book, which changes in whole steps only."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from losac.federation.protocol import NOTHING, make_token
from losac.trees import Tree

Recovery = Literal["ledger", "resync", "reset"]


class RefusedError(ValueError):
    """A client, or what it sent, is not accepted; nothing has changed."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a federation is run.

    Args:
      clients: N, the number of places for clients; one that is not taken counts as a client that never answers.
      clients_per_round: S, the planned number.
      seed: of everything random.
      fewest: the number of replies below which a round does not count.
      recovery: what happens to the server's sums when a client has lost its state or is gone for good. ``"ledger"``:
        the server keeps every client's sum, and takes it out; ``"resync"``: it asks all others what they hold;
        ``"reset"``: all begin anew from the present model.
      largest: the norm above which an upload is refused.
      dtype: in which precision the server computes.
    """

    clients: int
    clients_per_round: int
    seed: int = 0
    fewest: int = 1
    recovery: Recovery = "resync"
    largest: float | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if not 1 <= self.clients_per_round <= self.clients:
            raise ValueError(
                f"clients_per_round={self.clients_per_round} must lie between 1 and clients={self.clients}"
            )
        if not 1 <= self.fewest <= self.clients_per_round:
            raise ValueError(f"fewest={self.fewest} must lie between 1 and clients_per_round={self.clients_per_round}")
        if self.recovery not in get_args(Recovery):
            raise ValueError(f"recovery={self.recovery!r} must be one of {', '.join(get_args(Recovery))}")
        if self.largest is not None and not self.largest > 0:
            raise ValueError(f"largest={self.largest} must be positive")


class Member(NamedTuple):
    """What the server knows of one client.

    ``client`` is its number, ``weight`` N·p_i, ``accepted`` the token of the last round accepted from it, ``credit``
    the sum of its credits where a ledger is kept, and ``row`` what the algorithm keeps for it at the server.
    """

    client: int
    rows: int
    weight: float
    accepted: str = NOTHING
    credit: Tree = None
    row: Tree = None


class Book(NamedTuple):
    """All that a server must not forget.

    ``starts`` grows with every start, and ``tick`` with every attempt since the last; ``total`` is the sum of all
    credits accepted and not taken back, ``unsettled`` whether it contains some of clients that no longer have their
    state; ``first`` is the model from which new clients begin.
    """

    run: str
    starts: int
    tick: int
    round: int
    server: Tree
    model_state: Tree
    total: Tree
    first: Tree
    members: Mapping[str, Member]
    unsettled: bool = False

    @property
    def token(self) -> str:
        """The token of the present attempt."""
        return make_token(self.run, self.starts, self.tick)

    def started(self) -> Book:
        """Return the book of a server that starts, or starts again: its tokens are later than all before.

        By the clock too, so that this holds for a book that was put back from a copy.
        """
        return self._replace(starts=max(self.starts + 1, int(time.time())), tick=0)

    def next_attempt(self) -> Book:
        """Return the book with a token of its own."""
        return self._replace(tick=self.tick + 1)

    def with_member(self, name: str, member: Member) -> Book:
        """Return the book with one member added or changed."""
        return self._replace(members={**self.members, name: member})
