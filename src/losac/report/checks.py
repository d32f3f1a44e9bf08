"""The arguments that reports share, checked."""

from __future__ import annotations

from typing import Any

from losac._checks import check_list, check_number, described
from losac.history import History


def check_histories(histories: Any) -> list[History]:
    """Return runs as a list; refuse other values, and an empty list."""
    found = check_list("histories", histories, "a list of losac.History")
    for k, history in enumerate(found):
        if not isinstance(history, History):
            raise TypeError(f"histories[{k}] must be a losac.History, not {described(history)}")
    if not found:
        raise ValueError("there are no histories to show; give at least one")
    return found


def check_labels(labels: Any, histories: int) -> None:
    """Refuse labels that are not one text for each run."""
    if labels is None:
        return
    found = check_list("labels", labels, "a list of texts, one for each history")
    for k, label in enumerate(found):
        if not isinstance(label, str):
            raise TypeError(f"labels[{k}] must be a text, not {described(label)}")
    if len(found) != histories:
        raise ValueError(f"labels has {len(found)} entries for {histories} histories; give one for each")


def check_target(target: Any) -> None:
    """Refuse a target that is not a number."""
    if target is not None:
        check_number("target", target)
