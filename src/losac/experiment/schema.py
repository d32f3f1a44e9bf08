"""What an experiment's file may hold, made from the fields of the options: pydantic models, and a JSON schema."""

from __future__ import annotations

import dataclasses
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from losac._own import PATTERN
from losac.experiment.fields import Option
from losac.experiment.options import Experiment, Seed, Target
from losac.experiment.settings import OBJECTS

if TYPE_CHECKING:
    from pydantic import BaseModel

PROBLEM, ALGORITHM, SIMULATION, COMPARE, TUNED = "problem", "algorithm", "simulation", "compare", "tuned"
MOST = 2**63 - 1
"""The largest whole number that arrays and files can hold."""


def file_schema() -> dict[str, Any]:
    """Return the schema: the sections, and for each algorithm the settings that it has."""
    from losac.algorithms import ALGORITHMS

    found = file_model().model_json_schema()
    found["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    found["$defs"]["Algorithm"]["allOf"] = [
        {"if": {"properties": {"name": {"const": name}}, "required": ["name"]}, "then": _settings(name)}
        for name in ALGORITHMS
    ]
    return found


def _settings(name: str) -> dict[str, Any]:
    """Return the settings of one algorithm; those that take objects are for Python only."""
    from losac.algorithms import ALGORITHMS
    from losac.report.describe import describe
    from losac.report.markup import plain_text

    fields = {field.name: field for field in dataclasses.fields(ALGORITHMS[name])}
    settings: dict[str, Any] = {"name": {"const": name}}
    for each in describe(name).parameters:
        if each.name not in OBJECTS:
            text = plain_text(f"{each.meaning} ({each.allowed}; default: {each.default})")
            settings[each.name] = {**_kind(fields[each.name].metadata), "description": text}
    return {"properties": settings, "additionalProperties": False}


def _kind(metadata: Any) -> dict[str, Any]:
    if "number" in metadata:
        words = metadata["words"]
        return {"anyOf": [{"type": "number"}, {"enum": list(words)}]} if words else {"type": "number"}
    if metadata.get("count"):
        return {"type": "integer", "minimum": 1}
    choices = metadata.get("choices")
    return {"enum": list(choices)} if choices else {"type": "string"}


@cache
def file_model() -> type[BaseModel]:
    """Return the model of a whole file, with pydantic models as its sections."""
    from pydantic import ConfigDict, Field, create_model

    from losac.algorithms import ALGORITHMS

    strict = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    parts: dict[str, Any] = {}
    for section, words in (
        (PROBLEM, "What is solved: data, clients, model, loss."),
        (SIMULATION, "How long, with how many clients, and the seed."),
    ):
        model = create_model(section.capitalize(), __config__=strict, __doc__=words, **_fields(section))
        parts[section] = (model, Field(default_factory=model, description=words))
    names: Any = Literal[tuple(ALGORITHMS)] | Annotated[str, Field(pattern=f"^{PATTERN}$")]
    algorithm = create_model(
        "Algorithm",
        __config__=ConfigDict(strict=True, extra="allow"),
        __doc__="The method by its name, and any of its settings; see losac algorithms NAME.",
        name=(names, Field("losac", description="The algorithm.")),
    )
    parts[ALGORITHM] = (algorithm, Field(default_factory=algorithm, description=algorithm.__doc__))
    own: dict[str, Any] = {"algorithms": (list[str] | None, None), "seeds": (list[int] | None, None)}
    words = "What losac compare keeps besides the problem: the algorithms, the seeds, and the settings of all."
    compare = create_model("Compare", __config__=strict, __doc__=words, **own, **_fields(ALGORITHM))
    parts[COMPARE] = (compare | None, Field(None, description=words))
    parts[TUNED] = (dict[str, Any], Field(default_factory=dict, description="What losac tune records of its search."))
    return create_model("Experiment", __config__=strict, __doc__="An experiment of losac.", **parts)


def field_names(section: str) -> list[str]:
    """Return the fields of a section that are options of the command line too."""
    return [name for name, (option, _) in _options().items() if option.section.lower() == section]


def help_of(name: str) -> str:
    """Return what a field is for."""
    return _options()[name][0].help


def field_choices(section: str, name: str) -> tuple[str, ...]:
    """Return the values that a field may have."""
    model: Any = file_model().model_fields[section].annotation
    kind = model.model_fields[name].annotation
    return tuple(get_args(get_args(kind)[0] if get_origin(kind) in (Union, UnionType) else kind))


def _fields(section: str) -> dict[str, Any]:
    from pydantic import Field

    found: dict[str, Any] = {}
    for name in field_names(section):
        default = {"seed": 0, "target": None}.get(name, getattr(Experiment, name, None))
        found[name] = (_plain_type(name), Field(default, description=help_of(name), **_limits(name)))
    return found


def _limits(name: str) -> dict[str, Any]:
    """Return the limits of a whole number, those of its option."""
    option, hint = _options()[name]
    kind = get_args(hint)[0]
    whole = int in (kind, *get_args(kind))
    return {"ge": option.min, "le": MOST if option.max is None else option.max} if whole else {}


@cache
def _options() -> dict[str, tuple[Option, Any]]:
    """Return the option and the type of every field."""
    hints = get_type_hints(Experiment, include_extras=True)
    own = {field.name: hints[field.name] for field in dataclasses.fields(Experiment)}
    return {name: (hint.__metadata__[0], hint) for name, hint in {**own, "seed": Seed, "target": Target}.items()}


def _plain_type(name: str) -> Any:
    """Return an option's type as a file has it: choices as literals, paths as texts."""
    from pydantic import Field

    option, hint = _options()[name]
    kind = get_args(hint)[0]
    if not option.choices:
        return str | None if "Path" in str(kind) else kind
    words: Any = Literal[option.choices()]
    return words if option.pattern is None else words | Annotated[str, Field(pattern=option.pattern)]
