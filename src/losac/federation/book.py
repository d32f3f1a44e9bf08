"""What a server must not forget: one immutable book, which changes only in whole steps."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np

from losac._checks import is_number, one_of
from losac._seeds import check_seed
from losac.federation.bounds import ADAPTIVE, Tracked
from losac.federation.errors import RefusedError as RefusedError
from losac.federation.protocol import NOTHING, make_token
from losac.federation.secure.rules import SecureRules
from losac.trees import Tree

if TYPE_CHECKING:
    from losac.federation.secure.sealed import Sealed

DTYPES = ("float32", "float64")
Recovery = Literal["ledger", "resync", "reset"]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """How a federation is run.

    Args:
      clients: N, the number of places for clients; an empty place counts as a client that never answers.
      clients_per_round: S, the planned number.
      seed: of everything random.
      fewest: the number of replies below which a round does not count; by default, more than half of S.
      recovery: what happens to the server's sums when a client has lost its state or is gone for good. ``"ledger"``:
        the server keeps every client's sum, and takes it out; ``"resync"``: it asks all others what they hold;
        ``"reset"``: all begin again from the present model.
      largest: the norm above which an upload is refused; ``"adaptive"`` (see :mod:`losac.federation.bounds`), a
        number, or None.
      dtype: the server's precision.
      secure: how uploads are summed under masks, so that the server sees none of them; None: they are not. It needs
        ``recovery="reset"`` and ``largest=None``.
    """

    clients: int
    clients_per_round: int
    seed: int = 0
    fewest: int = 0
    recovery: Recovery = "resync"
    largest: float | str | None = ADAPTIVE
    dtype: str = "float32"
    secure: SecureRules | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", check_seed(self.seed))
        if not 1 <= self.clients_per_round <= self.clients:
            raise ValueError(
                f"clients_per_round={self.clients_per_round} must lie between 1 and clients={self.clients}"
            )
        if self.fewest == 0:
            object.__setattr__(self, "fewest", self.clients_per_round // 2 + 1)
        if not 1 <= self.fewest <= self.clients_per_round:
            raise ValueError(f"fewest={self.fewest} must lie between 1 and clients_per_round={self.clients_per_round}")
        if self.recovery not in get_args(Recovery):
            raise ValueError(f"recovery={self.recovery!r} must be one of {', '.join(get_args(Recovery))}")
        if self.largest not in (None, ADAPTIVE) and not (is_number(self.largest) and 0 < float(self.largest) < np.inf):
            raise ValueError(f"largest={self.largest!r} must be positive, {ADAPTIVE!r} or None")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r} must be {one_of(self.dtype, DTYPES)}")

    @property
    def fixed_bound(self) -> float | None:
        """The norm above which an upload is refused, where it does not depend on others."""
        return None if self.largest in (None, ADAPTIVE) else float(self.largest)


class Member(NamedTuple):
    """What the server knows of one client.

    ``client`` is its number, ``weight`` N·p_i, ``accepted`` the token of the last round accepted from it, ``credit``
    the sum of its credits where a ledger is kept, and ``row`` what the algorithm keeps for it at the server. ``key`` is
    the fingerprint of the node's key, to which the name is bound; empty where nodes have none. ``moved`` is the sum of
    the norms of its credits: what it holds can be no larger. ``share`` is how much was used of what was accepted last,
    where the server does not just sum.
    """

    client: int
    rows: int
    weight: float
    accepted: str = NOTHING
    credit: Tree = None
    row: Tree = None
    key: str = ""
    moved: float = 0.0
    share: Mapping[str, Tree] | None = None


class Book(NamedTuple):
    """All that a server must not forget.

    ``starts`` grows with every start, and ``tick`` with every attempt since the last; ``total`` is the sum of all
    credits accepted and not taken back, ``unsettled`` whether it contains some of clients that no longer have their
    state; ``first`` is the model from which new clients begin; ``bounds`` says how large uploads usually are;
    ``sealed`` is a round whose sum is still masked; ``answered`` are the clients that the last accepted round counts
    for. With secure aggregation ``total`` holds whole numbers.
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
    bounds: Mapping[str, Tracked] = {}
    sealed: Sealed | None = None
    answered: tuple[str, ...] = ()

    @property
    def token(self) -> str:
        """The token of the present attempt."""
        return make_token(self.run, self.starts, self.tick)

    def started(self) -> Book:
        """Return the book of a server that starts, or starts again: its tokens are later than all before.

        By the clock too: this also holds for a book that was put back from a copy.
        """
        return self._replace(starts=max(self.starts + 1, int(time.time())), tick=0)

    def next_attempt(self) -> Book:
        """Return the book with a new token."""
        return self._replace(tick=self.tick + 1)

    def with_member(self, name: str, member: Member) -> Book:
        """Return the book with one member added or changed."""
        return self._replace(members={**self.members, name: member})
