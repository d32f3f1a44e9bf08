"""What the Tab key offers.

Each function takes the beginning of a word and returns the words that continue it, each with a line about it; they are
the ``autocompletion`` of options and arguments. None of them imports jax or numpy.
"""

from __future__ import annotations

from collections.abc import Iterable

from losac.cli import source

Word = tuple[str, str]
_NOT_BY_TEXT = "uploads"
"""A setting that takes objects, and so cannot be written on a command line."""


def data_names(incomplete: str) -> list[Word]:
    """Offer the data sets."""
    return _matching(incomplete, _data_sets())


def download_names(incomplete: str) -> list[Word]:
    """Offer the data sets that can be downloaded."""
    known = {named["name"] for _, named in source.calls(source.ROOT / "data" / "sources.py", "Source")}
    return _matching(incomplete, (word for word in _data_sets() if word[0] in known))


def algorithm_names(incomplete: str) -> list[Word]:
    """Offer the algorithms, and after ``scaffold:`` its settings."""
    name, colon, chosen = incomplete.partition(":")
    known = source.algorithms()
    if not colon:
        return [(each, source.first_sentence(each)) for each in known if each.startswith(name)]
    begun, comma, last = chosen.rpartition(",")
    if name not in known or "=" in last:
        return []
    given = {part.partition("=")[0] for part in begun.split(",")} | {_NOT_BY_TEXT}
    free = [each for each in source.settings(name) if each.startswith(last) and each not in given]
    return [(f"{name}:{begun}{comma}{each}=", f"a setting of {name}") for each in free]


def bare_algorithm_names(incomplete: str) -> list[Word]:
    """Offer the algorithms where no settings are taken."""
    return [] if ":" in incomplete else algorithm_names(incomplete)


def model_names(incomplete: str) -> list[Word]:
    """Offer the models."""
    from losac.cli.experiment import MODELS

    return _matching(incomplete, ((name, "by data set" if name == "auto" else "") for name in MODELS))


def partition_names(incomplete: str) -> list[Word]:
    """Offer the partitions; those that take a number end in a colon."""
    forms = source.table(source.ROOT / "data" / "partition.py", "_FORMS")
    shapes = {name: source.first_text(entry) for name, entry in forms.items()}
    return _matching(incomplete, ((f"{name}:" if ":" in form else name, form) for name, form in shapes.items()))


def study_names(incomplete: str) -> list[Word]:
    """Offer the parts of the paper, and all of them."""
    files = sorted((source.ROOT / "reproduce" / "parts").glob("*.py"))
    found = [(texts[0], texts[1]) for path in files for texts, _ in source.calls(path, "Study")]
    return _matching(incomplete, [*found, ("all", "every part")])


def attack_names(incomplete: str) -> list[Word]:
    """Offer the attacks, also behind a comma."""
    begun, comma, last = incomplete.rpartition(",")
    known = source.table(source.ROOT / "attacks" / "attack.py", "ATTACKS")
    free = [name for name in known if name.startswith(last) and name not in begun.split(",")]
    return [(f"{begun}{comma}{name}", "") for name in free]


def _data_sets() -> list[Word]:
    entries = source.table(source.ROOT / "data" / "load.py", "_DATASETS")
    return [(name, source.first_text(entry)) for name, entry in entries.items()]


def _matching(incomplete: str, words: Iterable[Word]) -> list[Word]:
    return [word for word in words if word[0].startswith(incomplete)]
