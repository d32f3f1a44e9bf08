"""The bytes that a rule for adapters sends: what each message must hold, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from losac._costs import COSTS
from losac.trees import Tree, nbytes


class Ledger:
    """Counts the bytes of a run, round by round.

    Args:
      rule: its name.
      model: with adapters.
      params: its trained parameters.
      frozen: its frozen weights.
    """

    def __init__(self, rule: str, model: Any, params: Tree, frozen: Tree) -> None:
        self.rule = rule
        pairs = [params[name] for name in model.adapted]
        self.size = {part: sum(nbytes(pair[part]) for pair in pairs) for part in ("a", "b")}
        self.beside = sum(nbytes(leaf) for name, leaf in params.items() if name not in model.adapted)
        self.dense = sum(nbytes(frozen["base"][name]) for name in model.adapted)
        self.merged: list[int] = []
        self.trained: list[str] = []
        self.here: dict[int, int] = {}
        self.totals = [np.zeros(len(COSTS))]

    @property
    def both(self) -> int:
        """The bytes of A and B."""
        return self.size["a"] + self.size["b"]

    def add(self, round_index: int, ids: np.ndarray, parts: str) -> None:
        """Count a round: ``parts`` of the adapters are trained by these clients."""
        up = {"both": self.both, **self.size}[parts] + self.beside
        up = self.size["a"] if self.rule == "fedsa" else up
        spent = {"bytes_up": len(ids) * up, "bytes_down": sum(self._down(int(i)) for i in ids), "gradients": 0}
        self.totals.append(self.totals[-1] + np.array([spent[name] for name in COSTS], float))
        self.here |= {int(i): round_index for i in ids}
        self.trained.append(parts)
        self.merged.append({"flora": len(ids), "fedex": len(ids) - 1}.get(self.rule, 0) * self.both)

    def between(self, first: int, stops: Sequence[int]) -> np.ndarray:
        """Return the costs [pieces, costs] of the rounds from one stop to the next."""
        totals = np.array([self.totals[r] for r in (first, *stops)])
        return np.diff(totals, axis=0)

    def _down(self, client: int) -> int:
        """Return what the server sends to a client that was last there at some round, or never."""
        last = self.here.get(client)
        missed = min(sum(self.merged[0 if last is None else last :]), self.dense)
        if self.rule == "rolora":
            changed = {"a", "b"} if last is None else set(self.trained[last:])
            return sum(self.size[part] for part in changed) + self.beside
        shared = {"ffa": self.size["b"] + self.beside, "fedsa": self.size["a"], "flora": self.beside}
        return shared.get(self.rule, self.both + self.beside) + missed
