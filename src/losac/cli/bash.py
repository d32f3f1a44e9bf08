"""The Tab key of bash, which breaks ``scaffold:server_step=3`` into five words."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from typer.core import TyperGroup

_BREAKS = (":", "=")


def mend_bash() -> None:
    """Have the completion of bash put such words together, and answer with what follows the last break only."""
    click = TyperGroup.__mro__[1].__module__.rpartition(".")[0]  # newer versions of typer hold a click of their own
    shells: Any = import_module(f"{click}.shell_completion")
    usual = shells.get_completion_class("bash")

    class Bash(usual):  # type: ignore[misc, valid-type]
        told = 0

        def get_completion_args(self) -> tuple[list[str], str]:
            args, current = super().get_completion_args()
            if not current:
                return rejoin(args), current
            *args, whole = rejoin([*args, current])
            self.told = 0 if whole == current else _length_to_last_break(whole)
            return args, whole

        def format_completion(self, item: Any) -> str:
            return str(item.value)[self.told :]

    shells.add_completion_class(Bash, "bash")


def rejoin(words: Sequence[str]) -> list[str]:
    """Return the words as they were before bash broke them.

    >>> rejoin(["losac", "run", "--algorithm", "scaffold", ":", "server_step", "=", "3"])
    ['losac', 'run', '--algorithm', 'scaffold:server_step=3']
    """
    joined: list[str] = []
    for word in words:
        if joined and (word[:1] in _BREAKS or joined[-1].endswith(_BREAKS)):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _length_to_last_break(word: str) -> int:
    """Return how much of a value stands before what bash takes for the current word."""
    value = word.partition("=")[2] if word.startswith("-") else word
    return max(value.rfind(each) for each in _BREAKS) + 1
