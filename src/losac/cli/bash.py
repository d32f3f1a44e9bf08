"""The Tab key of bash, which breaks ``scaffold:server_step=3`` into five words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from click.shell_completion import add_completion_class, get_completion_class, split_arg_string

_BREAKS = (":", "=")


def mend_bash() -> None:
    """Have the completion of bash put such words together, and answer with what follows the last break only."""
    usual: Any = get_completion_class("bash")

    class Bash(usual):  # type: ignore[misc]
        told = 0

        def get_completion_args(self) -> tuple[list[str], str]:
            words, current = split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
            *before, last = rejoin(words[: current + 1]) if current < len(words) else [*rejoin(words), ""]
            if current < len(words) and words[current] != last:
                self.told = _length_to_last_break(last)
            return before[1:], last

        def format_completion(self, item: Any) -> str:
            return str(item.value)[self.told :]

    add_completion_class(Bash, "bash")


def rejoin(words: Sequence[str]) -> list[str]:
    """Return the words as they were before bash broke them.

    >>> rejoin(["losac", "run", "--algorithm", "scaffold", ":", "server_step", "=", "3"])
    ['losac', 'run', '--algorithm', 'scaffold:server_step=3']
    """
    joined: list[str] = []
    for word in words:
        if joined and (word[0] in _BREAKS or joined[-1][-1] in _BREAKS):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _length_to_last_break(word: str) -> int:
    """Return how much of a value stands before what bash takes for the current word."""
    value = word.partition("=")[2] if word.startswith("-") else word
    return max(value.rfind(each) for each in _BREAKS) + 1
