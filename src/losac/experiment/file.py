"""An experiment as a file: what ``losac init``, ``run`` and ``tune`` write, and ``losac run FILE`` takes.

A command writes what the user asked for into the folder of the results first, before any import that could take time:
a command that was killed while it was still getting ready can be resumed. A run replaces the file by the configuration
with all values filled in.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from losac._own import name_of
from losac.experiment.options import Experiment, Method
from losac.experiment.schema import (
    ALGORITHM,
    COMPARE,
    PROBLEM,
    SIMULATION,
    TUNED,
    field_choices,
    field_names,
    file_model,
)
from losac.experiment.settings import build_algorithms, override, split_entry, without_rivals

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from losac.algorithms import Algorithm

Content = Mapping[str, Any]
Options = TypeVar("Options", bound=Method)
COMMON = ("step_size", "local_steps", "blocks")
"""Settings that a comparison takes for all of its algorithms from the section of one."""
_OWN = ("seed", "target")
"""Options of a run besides those that it shares with other commands."""


@dataclass(frozen=True)
class File:
    """The content of a file: options of the experiment, the algorithm if it names one, and its settings."""

    options: Mapping[str, Any] = field(default_factory=dict)
    algorithm: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    target: float | None = None
    comparison: bool = False
    algorithms: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    tuned_rounds: int | None = None
    """Of the trials, if losac tune wrote the file."""

    def fill(self, options: Options, given: Collection[str]) -> Options:
        """Return options with those of the file that they have, unless the command line gives them."""
        known = {each.name for each in dataclasses.fields(options)} - set(given)
        return dataclasses.replace(options, **{k: v for k, v in self.options.items() if k in known})

    def build_algorithm(self, experiment: Method, **usual: Any) -> Algorithm:
        """Return the file's algorithm; settings from the command line replace the file's.

        ``usual`` are settings that replace the data set's defaults.
        """
        entry = str(self.algorithm), self.settings
        (algorithm,) = build_algorithms([entry], {}, {}, experiment.usual_settings() | usual)
        wide, given = experiment.chosen()
        return override(algorithm, given | wide)


def read_file(path: Path) -> File:
    """Read a file; the error names the field, what it may be, and the nearest right name."""
    return parse(read_content(path), str(path))


def read_content(path: Path) -> dict[str, Any]:
    """Read a file without checking its fields, which would take heavy imports."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give a file, such as {path / 'experiment.toml'}")
    if not path.is_file():
        raise ValueError(f"{path} is not there; losac init {path} writes an experiment to start from")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    if not content:
        raise ValueError(f"{path} is empty; losac init NAME.toml writes an experiment to start from")
    return content


def parse(content: Mapping[str, Any], source: str) -> File:
    """Return the content of sections, after checking them; errors call them ``source``."""
    from pydantic import ValidationError

    try:
        file_model().model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{source}: {_explained(error.errors())}") from None
    compared = dict(content.get(COMPARE, {}))
    lists = {name: compared.pop(name, None) for name in ("algorithms", "seeds")}
    said = {**compared, **content.get(PROBLEM, {}), **content.get(SIMULATION, {})}
    if said.get("data_dir") is not None:
        said["data_dir"] = Path(said["data_dir"])
    own = {name: said.pop(name) for name in _OWN if name in said}
    settings = dict(content.get(ALGORITHM, {}))
    name = settings.pop("name", "losac") if ALGORITHM in content else None
    tuned = content.get(TUNED, {}).get("rounds")
    rounds = tuned if isinstance(tuned, int) else None
    return File(said, name, settings, comparison=COMPARE in content, tuned_rounds=rounds, **lists, **own)


def sections_of(algorithm: Algorithm) -> dict[str, Any]:
    """Return the section of an algorithm: its name, as the user gave it, and its settings as plain values."""
    from losac.history.history import plain_settings

    own = algorithm.settings()
    settings = {k: name_of(v, v) if callable(v) else v for k, v in own.items() if v not in (None, ())}
    return {"name": name_of(type(algorithm), algorithm.label), **plain_settings(settings)}


def run_request(
    experiment: Experiment, content: Content, given: Collection[str], algorithm: str, **own: Any
) -> str | None:
    """Return the file of a run: the given file, with what the command line replaces.

    None if the file has no proper sections, which the later check reports. ``own`` are the seed and the target.
    """
    sections = _common(experiment, content, given, own)
    if sections is None:
        return None
    wide, chosen = experiment.chosen()
    if ALGORITHM in content and "algorithm" not in given:
        changed, said = chosen | wide, content[ALGORITHM]
        unset = dict.fromkeys(set(COMMON) - set(without_rivals(dict.fromkeys(COMMON), said)))
        settings = unset | without_rivals(said, changed) | changed
    else:
        name, entry = split_entry(algorithm)
        settings = {"name": name} | without_rivals(chosen, entry) | wide | entry
    return _toml(sections | {ALGORITHM: settings})


def compare_request(
    experiment: Experiment, content: Content, given: Collection[str], algorithms: list[str] | None, *,
    seeds: list[int], target: float | None,
) -> str | None:  # fmt: skip
    """Return the file of a comparison, in the same way."""
    sections = _common(experiment, content, given, {"target": target})
    if sections is None:
        return None
    common = {name: value for name, value in content.get(ALGORITHM, {}).items() if name in COMMON}
    before = {**common, **content.get(COMPARE, {})}
    settings = {name: before[name] for name in field_names(ALGORITHM) if name in before}
    settings |= {name: getattr(experiment, name) for name in field_names(ALGORITHM) if name in given}
    entries = algorithms or content.get(COMPARE, {}).get("algorithms")
    return _toml(sections | {COMPARE: {"algorithms": entries, "seeds": seeds, **settings}})


def _common(
    experiment: Experiment, content: Content, given: Collection[str], own: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the problem and the simulation."""
    if not all(isinstance(content.get(name, {}), Mapping) for name in (PROBLEM, SIMULATION, ALGORITHM, COMPARE)):
        return None
    sections = {name: dict(content.get(name, {})) for name in (PROBLEM, SIMULATION)}
    for name, section in sections.items():
        for option in field_names(name):
            if option in given:
                section[option] = own[option] if option in own else getattr(experiment, option)
    return sections


def _toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    import tomli_w

    return tomli_w.dumps(
        {name: {k: _plain(v) for k, v in each.items() if v is not None or name == ALGORITHM}
         for name, each in sections.items()}
    )  # fmt: skip


def _plain(value: Any) -> Any:
    """Return a value as TOML has it, which knows no None."""
    return "none" if value is None else str(value) if isinstance(value, Path) else value


def _explained(errors: list[ErrorDetails]) -> str:
    listed = {error["loc"][:2] for error in errors if error["type"] == "literal_error"}
    errors = [error for error in errors if error["type"] == "literal_error" or error["loc"][:2] not in listed]
    first = _one(errors[0])
    return first if len(errors) == 1 else f"{first} (and {len(errors) - 1} more)"


_WANTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a text",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "dict_type": "a table",
    "model_type": "a section",
    "model_attributes_type": "a section",
}
_LIMITS = {"greater_than_equal": ("ge", "at least"), "less_than_equal": ("le", "at most")}


def _one(error: ErrorDetails) -> str:
    """Return one error in words."""
    from losac._settings import nearest

    location = [str(part) for part in error["loc"] if not str(part).startswith(("constrained", "literal", "nullable"))]
    name, value = ".".join(location[:2]), error["input"]
    if error["type"] == "extra_forbidden":
        return _unknown(location)
    if error["type"] == "literal_error":
        choices = list(field_choices(*location[:2]))
        hint = nearest(value, choices) if isinstance(value, str) else ""
        return f"{name} = {value!r} must be one of {', '.join(map(repr, choices))}{hint}"
    if error["type"] in _LIMITS:
        limit, words = _LIMITS[error["type"]]
        return f"{name} = {value!r} must be {words} {error['ctx'][limit]}"
    return f"{name} = {value!r} must be {_WANTED.get(error['type'], error['msg'])}"


def _unknown(location: list[str]) -> str:
    """Suggest what to write instead of an unknown section or field, or where it belongs."""
    from losac._settings import nearest

    if len(location) == 1:
        known = [PROBLEM, ALGORITHM, SIMULATION]
        homes = [section for section in known[::2] if location[0] in field_names(section)]
        if homes:
            return f"{location[0]!r} is outside the sections; it belongs in [{homes[0]}]"
        return f"there is no section [{location[0]}]{nearest(location[0], known)}; there are {', '.join(known)}"
    section, name = location[:2]
    for home in (PROBLEM, SIMULATION):
        if home != section and name in field_names(home):
            return f"[{section}] has no field {name!r}; it belongs in [{home}]"
    if name in field_names(ALGORITHM):
        return f"[{section}] has no field {name!r}; it belongs in [{ALGORITHM}]"
    known = field_names(section)
    return f"[{section}] has no field {name!r}{nearest(name, known)}; it has {', '.join(known)}"
