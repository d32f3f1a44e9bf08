"""``python -m losac.experiment.generate`` writes the names that :mod:`losac.experiment.words` reads."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from losac.algorithms import ALGORITHMS
from losac.attacks import ATTACKS, Plan
from losac.data import datasets
from losac.data.partition import _FORMS
from losac.data.sets import SETS
from losac.data.sources import SOURCES
from losac.experiment.options import MODELS, OWN
from losac.experiment.settings import OBJECTS
from losac.experiment.words import FILE
from losac.jobs.workers import Workers
from losac.simulation.options import ComputeOptions, RunOptions
from losac.tuning.options import SearchOptions


def current_words() -> dict[str, Any]:
    """Return the current words of the library."""
    return {
        "data": datasets(),
        "downloads": [*SOURCES, *SETS],
        "algorithms": {name: (inspect.getdoc(kind) or "").partition("\n")[0] for name, kind in ALGORITHMS.items()},
        "settings": {name: _settings(kind) for name, kind in ALGORITHMS.items()},
        "models": {name: "by data set" if name == "auto" else "" for name in MODELS},
        "partitions": {name: form for name, (form, _, _) in _FORMS.items()},
        "attacks": list(ATTACKS),
        "options": list(option_rows(RunOptions, ComputeOptions, without=OWN)),
        "search": list(option_rows(SearchOptions, defaults=True)),
        "workers": list(option_rows(Workers, defaults=True)),
        "attack": list(option_rows(Plan, defaults=True)),
    }


def _settings(kind: Any) -> list[str]:
    return [each.name for each in dataclasses.fields(kind) if each.init and each.name not in OBJECTS]


def option_rows(*kinds: Any, without: Collection[str] = (), defaults: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the fields of dataclasses that text can give, as rows of a table.

    Args:
      kinds: the dataclasses, whose fields have the metadata of :func:`losac._options.about`.
      without: fields that have an option of their own.
      defaults: whether the rows have the fields' defaults too.
    """
    for kind in kinds:
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            types = [each for each in get_args(hints[field.name]) or [hints[field.name]] if each is not NoneType]
            choices = [each for each in types if isinstance(each, str)]  # of a Literal, or of one or None
            choices += [value for each in types if get_origin(each) is Literal for value in get_args(each)]
            several = get_origin(hints[field.name]) is tuple
            plain = next((each.__name__ for each in (bool, int, float, str) if each in types), "str" if choices else "")
            named = "list" if several else plain
            if named and field.name not in without:
                row = {"name": field.name, "type": named, "help": field.metadata["help"], **field.metadata["shown"]}
                row |= {"choices": choices} if choices else {}
                default: Any = field.default
                yield row | ({"value": list(default) if several else default} if defaults else {})


def write(current: Mapping[str, Any], file: Path = FILE) -> None:
    """Keep words in a file."""
    file.write_text(json.dumps(current, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(current_words())
