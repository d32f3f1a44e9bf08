"""Which sums a client takes part in: large ones, of clients it knows, each of one set of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from losac.federation.errors import RefusedError
from losac.federation.secure.identity import Trust


def check_names(names: Sequence[str], trust: Trust) -> None:
    """Refuse to share keys among too few clients, or with one that is not in the list of peers."""
    if trust.name not in names:
        raise RefusedError("it shows keys among which this client's are missing")
    _check_size(names, trust)
    if unknown := [name for name in names if name not in trust.peers]:
        raise RefusedError(f"{unknown[0]!r} is not in this client's list of peers")


def check_survivors(names: Sequence[str], known: Mapping[str, Any], trust: Trust) -> None:
    """Refuse a sum that shows more than it should; ``known`` is what the client knows of its session."""
    if not set(names) <= set(known["names"]):
        raise RefusedError("a sum holds clients that were not asked")
    if trust.name not in names:
        raise RefusedError("it says that this client dropped out, which has sent its upload")
    _check_size(names, trust)
    if len(set(names) & set(known["holders"])) < known["threshold"]:
        raise RefusedError("a sum holds too few of the clients that share with this one")
    if known["kind"] == "hold" and set(names) != set(trust.peers):
        raise RefusedError(
            "it asks what some of the clients hold: subtracted from the sum of all, that is what the others hold"
        )
    if known["told"].get(phase_of(known), names) != names:
        raise RefusedError(
            "the sum of this phase and round was told before, of other clients: the difference of both would show what "
            "some of them sent; the same clients may try again"
        )


def phase_of(known: Mapping[str, Any]) -> str:
    """Return what a session is a sum of, in its round."""
    return f"{known['kind']} {known['place']}"


def _check_size(names: Sequence[str], trust: Trust) -> None:
    if len(names) < trust.minimum:
        raise RefusedError(f"a sum over {len(names)} clients is smaller than this client's {trust.minimum}")
