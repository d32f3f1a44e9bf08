"""The sections of an experiment's file as pydantic models, made of the same fields as the command line's options."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

from losac.cli.experiment import Choices, Experiment, Seed, Target

if TYPE_CHECKING:
    from pydantic import BaseModel

PROBLEM, ALGORITHM, SIMULATION, TUNED = "problem", "algorithm", "simulation", "tuned"


@cache
def file_model() -> type[BaseModel]:
    """Return the model of a whole file."""
    from pydantic import ConfigDict, Field, create_model

    strict = ConfigDict(strict=True, extra="forbid")
    parts: dict[str, Any] = {}
    for section, words in (
        (PROBLEM, "What is solved: data, clients, model, loss."),
        (SIMULATION, "How long, with how many clients, from which seed."),
    ):
        model = create_model(section.capitalize(), __config__=strict, __doc__=words, **_fields(section))
        parts[section] = (model, Field(default_factory=model, description=words))
    names: Any = Literal[_algorithm_names()]
    algorithm = create_model(
        "Algorithm",
        __config__=ConfigDict(strict=True, extra="allow"),
        __doc__="The method by its name, and any of its settings beside it; see losac algorithms NAME.",
        name=(names, Field("losac", description="The algorithm.")),
    )
    parts[ALGORITHM] = (algorithm, Field(default_factory=algorithm, description=algorithm.__doc__))
    parts[TUNED] = (dict[str, Any], Field(default_factory=dict, description="What losac tune says of its search."))
    return create_model("Experiment", __config__=strict, __doc__="An experiment of losac.", **parts)


def field_names(section: str) -> list[str]:
    """Return the fields of a section that are options of the command line too."""
    return [name for name, (_, _, panel) in _options().items() if panel == section]


def help_of(name: str) -> str:
    """Return what a field is for, without the marks of the terminal."""
    words = _options()[name][0].help or ""
    return str(words).replace("[bold]", "").replace("[/bold]", "").partition(" Default:")[0]


def _fields(section: str) -> dict[str, Any]:
    from pydantic import Field

    found: dict[str, Any] = {}
    for name in field_names(section):
        hint, default = _options()[name][1], getattr(Experiment, name, None)
        default = {"seed": 0, "target": None}.get(name, default)
        found[name] = (_plain_type(hint), Field(default, description=help_of(name)))
    return found


@cache
def _options() -> dict[str, tuple[Any, Any, str]]:
    """Return of every field its option, its type, and its section."""
    hints = get_type_hints(Experiment, include_extras=True)
    hints = {field.name: hints[field.name] for field in dataclasses.fields(Experiment)}
    found = {}
    for name, hint in {**hints, "seed": Seed, "target": Target}.items():
        option = next(part for part in get_args(hint) if hasattr(part, "rich_help_panel"))
        found[name] = (option, hint, str(option.rich_help_panel).lower())
    return found


def _plain_type(hint: Any) -> Any:
    """Return an option's type as a file has it: choices as literals, paths as texts, limits as they are."""
    assert get_origin(hint) is Annotated
    kind, *marks = get_args(hint)
    kind = str | None if "Path" in str(kind) else kind
    for mark in marks:
        if isinstance(mark, Choices):
            kind = Literal[mark.values()]
        elif type(mark).__module__.startswith("annotated_types"):
            kind = Annotated[kind, mark]
    return kind


def _algorithm_names() -> tuple[str, ...]:
    from losac.algorithms import ALGORITHMS

    return tuple(ALGORITHMS)
