"""``python -m losac.experiment.generate`` writes the names that :mod:`losac.experiment.words` reads."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from losac.algorithms import ALGORITHMS
from losac.attacks import ATTACKS
from losac.data import datasets
from losac.data.partition import _FORMS
from losac.data.sources import SOURCES
from losac.experiment.options import MODELS, OWN
from losac.experiment.words import FILE
from losac.simulation.options import ComputeOptions, RunOptions

_NOT_BY_TEXT = "uploads"
"""A setting that takes objects, and so cannot be written on a command line."""


def current_words() -> dict[str, Any]:
    """Return the current words of the library."""
    return {
        "data": datasets(),
        "downloads": list(SOURCES),
        "algorithms": {name: (inspect.getdoc(kind) or "").partition("\n")[0] for name, kind in ALGORITHMS.items()},
        "settings": {name: _settings(kind) for name, kind in ALGORITHMS.items()},
        "models": {name: "by data set" if name == "auto" else "" for name in MODELS},
        "partitions": {name: form for name, (form, _, _) in _FORMS.items()},
        "attacks": list(ATTACKS),
        "options": list(option_rows(RunOptions, ComputeOptions)),
    }


def _settings(kind: Any) -> list[str]:
    return [each.name for each in dataclasses.fields(kind) if each.init and each.name != _NOT_BY_TEXT]


def option_rows(*kinds: Any) -> Iterator[dict[str, Any]]:
    """Yield the fields of dataclasses that text can give and that lack their own option, as rows of a table."""
    for kind in kinds:
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            types = [each for each in get_args(hints[field.name]) or [hints[field.name]] if each is not NoneType]
            choices = [each for each in types if isinstance(each, str)]  # of a Literal, or of one or None
            choices += [value for each in types if get_origin(each) is Literal for value in get_args(each)]
            named = next((each.__name__ for each in (int, float, str) if each in types), "str" if choices else "")
            if named and field.name not in OWN:
                row = {"name": field.name, "type": named, "help": field.metadata["help"]}
                yield row | ({"choices": choices} if choices else {})


def write(current: Mapping[str, Any], file: Path = FILE) -> None:
    """Keep words in a file."""
    file.write_text(json.dumps(current, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(current_words())
