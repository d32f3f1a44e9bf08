"""How a federation aggregates securely."""

from __future__ import annotations

from dataclasses import dataclass

from losac._checks import check_count

PEERS = "peers.json"
"""The list of peers in a client's state folder; a client that has one sends nothing without masks."""


@dataclass(frozen=True, kw_only=True)
class SecureRules:
    """How uploads are summed under masks.

    Args:
      threshold: how many shares tell a seed; by default, more than two thirds of those that hold them. In any case more
        than half.
      neighbours: with how many others each client shares masks and seeds, an even number; 0 stands for all. Many
        clients need few: about 10 log₁₀ N.
    """

    threshold: int = 0
    neighbours: int = 0

    def __post_init__(self) -> None:
        check_count("threshold", self.threshold, 0)
        check_count("neighbours", self.neighbours, 0)
        if self.neighbours % 2 or self.neighbours == 2:
            raise ValueError(f"neighbours={self.neighbours} must be an even number of at least 4, or 0 for all")
        if self.neighbours and self.threshold > self.neighbours + 1:
            raise ValueError(
                f"threshold={self.threshold} is more than hold the shares of a seed: {self.neighbours} neighbours and "
                "the client itself"
            )
