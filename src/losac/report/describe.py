"""What an algorithm says of itself: its prose, equations, references and settings, read from its code."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any, NamedTuple

from losac.algorithms import ALGORITHMS
from losac.algorithms.contract import Algorithm


class Parameter(NamedTuple):
    """One setting: its name, default ("required" where there is none), the values it may take, what it means."""

    name: str
    default: str
    allowed: str
    meaning: str


class Description(NamedTuple):
    """What an algorithm's documentation says; ``body`` holds ("text" or "math", content) in order."""

    body: tuple[tuple[str, str], ...]
    parameters: tuple[Parameter, ...]
    reference: str


def describe(algorithm: str | type[Algorithm]) -> Description:
    """Return the prose, equations, references and parameters (less those it refuses) of an algorithm, from its code.

    The algorithm is one of the library by its name, or a class of your own.
    """
    cls = ALGORITHMS[algorithm] if isinstance(algorithm, str) else algorithm
    words, _, link = (inspect.getdoc(cls) or "").partition("\nReference: ")
    words, _, _ = words.partition("\nExample:\n")
    prose, _, arguments = words.partition("\nArgs:\n")
    module = inspect.getdoc(inspect.getmodule(cls)) or ""
    reference = " ".join((re.split(r"References?: ", module, maxsplit=1)[-1] + " " + link).split())
    return Description(tuple(_parts(prose)), _parameters(cls, arguments), reference)


def _parts(prose: str) -> list[tuple[str, str]]:
    """Split a docstring into paragraphs and ``.. math::`` blocks."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", prose.strip()):
        formula = paragraph.removeprefix(".. math::")
        parts.append(("text", " ".join(paragraph.split())) if formula == paragraph else ("math", formula.strip()))
    return parts


def _parameters(cls: type[Algorithm], arguments: str) -> tuple[Parameter, ...]:
    meanings: dict[str, str] = {}
    for entry in re.split(r"\n(?=  \S)", arguments.rstrip()):
        names, _, meaning = entry.strip().partition(": ")
        meanings |= dict.fromkeys(names.split(", "), " ".join(meaning.split()))
    refused: tuple[str, ...] = ("clip_norm", "local_optimizer") if cls.tailored_steps else ()
    refused += ("aggregation",) if cls.server_rows else ()
    fields = [field for field in dataclasses.fields(cls) if field.init and field.name not in refused]
    return tuple(Parameter(f.name, _default(f), _allowed(f), meanings.get(f.name, "")) for f in fields)


def _default(field: dataclasses.Field[Any]) -> str:
    return "required" if field.default is dataclasses.MISSING else repr(field.default)


def _allowed(field: dataclasses.Field[Any]) -> str:
    optional = " or None" if field.default is None else ""
    if "number" in field.metadata:
        return f"{field.metadata['number'].words}, or a schedule{optional}"
    if field.metadata.get("count"):
        return f"a whole number of at least 1{optional}"
    if choices := field.metadata.get("choices"):
        return " or ".join(map(repr, choices))
    if field.name == "aggregation":
        return "mixings and an aggregator"
    if field.name == "local_optimizer":
        return f"a function of the step size{optional}"
    return "upload transforms" if "node" in field.metadata else f"any value{optional}"
