"""A configuration as a file: what ``losac tune`` and ``losac run`` write, and ``losac run --config`` takes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from losac.cli.experiment import Experiment
from losac.cli.settings import build_algorithms, find_optimizer, override

if TYPE_CHECKING:
    from losac.algorithms import Algorithm

_WORDS = ("data", "model", "partition", "reduction", "dtype")
_COUNTS = ("clients", "clients_per_round", "rounds", "eval_every")
_TOLD = ("rows", "versions", "tuned")
"""What such files say for their readers, and no run depends on."""


@dataclass(frozen=True)
class Config:
    """What a file says: options of the experiment, and the algorithm where it names one."""

    options: Mapping[str, Any] = field(default_factory=dict)
    algorithm: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None

    def fill(self, experiment: Experiment, given: Collection[str]) -> Experiment:
        """Return the experiment with the file's options where the command line gives none."""
        return dataclasses.replace(experiment, **{k: v for k, v in self.options.items() if k not in given})

    def build_algorithm(self, experiment: Experiment) -> Algorithm:
        """Return the file's algorithm, with the settings that the command line gives instead of its own."""
        if self.settings.get("uploads"):
            raise ValueError("--config cannot set uploads, which takes objects; use losac.simulate in Python for it")
        settings = {name: value for name, value in self.settings.items() if name != "uploads"}
        if settings.get("local_optimizer") is not None:
            settings["local_optimizer"] = find_optimizer(str(settings["local_optimizer"]))
        (algorithm,) = build_algorithms([(str(self.algorithm), settings)], {}, {}, experiment.usual_settings())
        return override(algorithm, experiment.settings_of_all())


def read_config(path: Path) -> Config:
    """Read a file; the error says what in it is wrong."""
    if not path.is_file():
        raise ValueError(f"--config {path} is not there; losac tune --out DIR writes DIR/best.json")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"--config {path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"--config {path} must hold an object {{…}} and not {type(content).__name__}")
    _check_keys(path, content)
    kinds: dict[str, type] = dict.fromkeys((*_WORDS, "algorithm"), str)
    kinds |= dict.fromkeys((*_COUNTS, "seed"), int) | {"settings": dict}
    for name, kind in kinds.items():
        if name in content and type(content[name]) is not kind:
            wanted = {str: "a text", int: "a whole number", dict: "an object"}[kind]
            raise ValueError(f"--config {path}: {name}={content[name]!r} must be {wanted}")
    options = {name: content[name] for name in (*_WORDS, *_COUNTS) if name in content}
    return Config(options, content.get("algorithm"), content.get("settings", {}), content.get("seed"))


def given_names(context: typer.Context) -> set[str]:
    """Return the names of the options that the user gave, whatever their values."""
    return {name for name in context.params if getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"}


def _check_keys(path: Path, content: Mapping[str, Any]) -> None:
    from losac._settings import nearest

    known = [*_WORDS, *_COUNTS, "algorithm", "settings", "seed"]
    for name in content:
        if name not in known and name not in _TOLD:
            raise ValueError(f"--config {path} has a key {name!r}{nearest(name, known)}; known are {', '.join(known)}")
