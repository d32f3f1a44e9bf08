"""An experiment as a file: what ``losac init``, ``run`` and ``tune`` write, and ``losac run FILE`` takes."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from losac.cli.experiment import Experiment
from losac.cli.sections import ALGORITHM, PROBLEM, SIMULATION, field_names, file_model
from losac.cli.settings import build_algorithms, find_optimizer, override

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from losac.algorithms import Algorithm

_OWN = ("seed", "target")
"""What a run takes beside the options that it shares with other commands."""


@dataclass(frozen=True)
class File:
    """What a file says: options of the experiment, the algorithm where it names one, and its settings."""

    options: Mapping[str, Any] = field(default_factory=dict)
    algorithm: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    target: float | None = None

    def fill(self, experiment: Experiment, given: Collection[str]) -> Experiment:
        """Return the experiment with the file's options where the command line gives none."""
        return dataclasses.replace(experiment, **{k: v for k, v in self.options.items() if k not in given})

    def build_algorithm(self, experiment: Experiment) -> Algorithm:
        """Return the file's algorithm, with the settings that the command line gives instead of its own."""
        if self.settings.get("uploads"):
            raise ValueError("a file cannot set uploads, which takes objects; use losac.simulate in Python for it")
        settings = {name: value for name, value in self.settings.items() if name != "uploads"}
        if settings.get("local_optimizer") is not None:
            settings["local_optimizer"] = find_optimizer(str(settings["local_optimizer"]))
        (algorithm,) = build_algorithms([(str(self.algorithm), settings)], {}, {}, experiment.usual_settings())
        return override(algorithm, experiment.settings_of_all())


def read_file(path: Path) -> File:
    """Read a file; the error names the field, what it may be, and the nearest right name."""
    if not path.is_file():
        raise ValueError(f"{path} is not there; losac init {path} writes an experiment to start from")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    return parse(content, str(path))


def parse(content: Mapping[str, Any], source: str) -> File:
    """Return what sections say, after checking them; ``source`` is what errors call them."""
    from pydantic import ValidationError

    try:
        file_model().model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{source}: {_explained(error.errors())}") from None
    said = {**content.get(PROBLEM, {}), **content.get(SIMULATION, {})}
    if said.get("data_dir") is not None:
        said["data_dir"] = Path(said["data_dir"])
    own = {name: said.pop(name) for name in _OWN if name in said}
    settings = dict(content.get(ALGORITHM, {}))
    name = settings.pop("name", "losac") if ALGORITHM in content else None
    return File(said, name, settings, **own)


def given_names(context: typer.Context) -> set[str]:
    """Return the names of the options that the user gave, whatever their values."""
    return {name for name in context.params if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"}


def sections_of(algorithm: Algorithm) -> dict[str, Any]:
    """Return the section of an algorithm: its name, and its settings as they can be written down."""
    from losac.history.history import plain_settings

    settings = {name: value for name, value in algorithm.settings().items() if value not in (None, ())}
    return {"name": algorithm.label, **plain_settings(settings)}


def _explained(errors: list[ErrorDetails]) -> str:
    first = _one(errors[0])
    return first if len(errors) == 1 else f"{first} (and {len(errors) - 1} more)"


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "dict_type": "a table",
    "model_type": "a section",
    "model_attributes_type": "a section",
}


def _one(error: ErrorDetails) -> str:
    """Return one error in words."""
    from losac._settings import nearest

    place = [str(part) for part in error["loc"] if not str(part).startswith(("constrained", "literal", "nullable"))]
    name, value = ".".join(place[:2]), error["input"]
    if error["type"] == "extra_forbidden":
        return _unknown(place)
    if error["type"] == "literal_error":
        choices = list(file_choices(place))
        hint = nearest(value, choices) if isinstance(value, str) else ""
        return f"{name} = {value!r} must be one of {', '.join(map(repr, choices))}{hint}"
    if error["type"] == "greater_than_equal":
        return f"{name} = {value!r} must be at least {error['ctx']['ge']}"
    return f"{name} = {value!r} must be {_WANTED.get(error['type'], error['msg'])}"


def file_choices(place: list[str]) -> tuple[str, ...]:
    """Return the values that a field may have."""
    from typing import get_args

    section: Any = file_model().model_fields[place[0]].annotation
    return tuple(get_args(section.model_fields[place[1]].annotation))


def _unknown(place: list[str]) -> str:
    """Say what is there instead of an unknown section or field, or where it belongs."""
    from losac._settings import nearest

    if len(place) == 1:
        known = [PROBLEM, ALGORITHM, SIMULATION]
        homes = [section for section in known[::2] if place[0] in field_names(section)]
        if homes:
            return f"{place[0]!r} stands outside the sections; it belongs in [{homes[0]}]"
        return f"there is no section [{place[0]}]{nearest(place[0], known)}; there are {', '.join(known)}"
    section, name = place[:2]
    for home in (PROBLEM, SIMULATION):
        if home != section and name in field_names(home):
            return f"[{section}] has no field {name!r}; it belongs in [{home}]"
    if name in field_names(ALGORITHM):
        return f"[{section}] has no field {name!r}; it belongs in [{ALGORITHM}]"
    known = field_names(section)
    return f"[{section}] has no field {name!r}{nearest(name, known)}; it has {', '.join(known)}"
