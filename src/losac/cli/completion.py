"""What the Tab key offers.

Each function takes the beginning of a word and returns the words that continue it, each with a line about it; they are
the ``autocompletion`` of options and arguments. The Tab key cannot wait for jax: see :mod:`losac.experiment.words`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

from typer.core import TyperGroup

from losac.experiment.words import words

Word = tuple[str, str]
_BREAKS = (":", "=")


def data_names(incomplete: str) -> list[Word]:
    """Offer the data sets."""
    return matching(incomplete, words()["data"].items())


def download_names(incomplete: str) -> list[Word]:
    """Offer the data sets that can be downloaded."""
    return [word for word in data_names(incomplete) if word[0] in words()["downloads"]]


def algorithm_names(incomplete: str) -> list[Word]:
    """Offer the algorithms, and after ``scaffold:`` its settings."""
    name, colon, chosen = incomplete.partition(":")
    if not colon:
        return matching(name, words()["algorithms"].items())
    begun, comma, last = chosen.rpartition(",")
    if "=" in last:
        return []
    given = {part.partition("=")[0] for part in begun.split(",")}
    free = [each for each in words()["settings"].get(name, ()) if each.startswith(last) and each not in given]
    return [(f"{name}:{begun}{comma}{each}=", f"a setting of {name}") for each in free]


def bare_algorithm_names(incomplete: str) -> list[Word]:
    """Offer the algorithms without settings."""
    return [] if ":" in incomplete else algorithm_names(incomplete)


def model_names(incomplete: str) -> list[Word]:
    """Offer the models."""
    return matching(incomplete, words()["models"].items())


def partition_names(incomplete: str) -> list[Word]:
    """Offer the partitions; those that take a number end in a colon."""
    forms = words()["partitions"].items()
    return matching(incomplete, ((f"{name}:" if ":" in form else name, form) for name, form in forms))


def attack_names(incomplete: str) -> list[Word]:
    """Offer the attacks, also behind a comma."""
    begun, comma, last = incomplete.rpartition(",")
    free = [name for name in words()["attacks"] if name.startswith(last) and name not in begun.split(",")]
    return [(f"{begun}{comma}{name}", "") for name in free]


def matching(incomplete: str, offered: Iterable[Word]) -> list[Word]:
    """Return the words that begin like an incomplete one."""
    return [(word, about) for word, about in offered if word.startswith(incomplete)]


def fix_bash_escapes() -> None:
    """Make bash, which breaks ``scaffold:server_step=3`` into five words, offer what continues the last of them."""
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
            value = whole.partition("=")[2] if whole.startswith("-") else whole
            self.told = 0 if whole == current else max(value.rfind(each) for each in _BREAKS) + 1
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
