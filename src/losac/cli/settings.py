"""Algorithms from text: ``scaffold:server_step=3``, ``--set name=value``, and the options of all."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from losac.algorithms import Algorithm

_WORDS = {"true": True, "false": False, "none": None}
_FIXED_BLOCKS, _MINI_BATCHES = {"blocks"}, {"batch_size", "epochs"}


def parse_value(text: str) -> Any:
    """Return the number, truth value or word that a text stands for.

    >>> parse_value("3"), parse_value("1e-4"), parse_value("true"), parse_value("exact")
    (3, 0.0001, True, 'exact')
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def parse_settings(texts: Sequence[str], where: str) -> dict[str, Any]:
    """Return the settings of texts of the form NAME=VALUE."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ValueError(f"{where} {text!r} is not of the form NAME=VALUE, such as server_step=3")
        settings[name.strip().replace("-", "_")] = parse_value(value.strip())
    if "uploads" in settings:
        raise ValueError(f"{where} cannot set uploads, which takes objects; use losac.simulate in Python for it")
    if settings.get("local_optimizer") is not None:
        settings["local_optimizer"] = find_optimizer(str(settings["local_optimizer"]))
    return settings


def split_entry(entry: str) -> tuple[str, dict[str, Any]]:
    """Return an algorithm's name and its own settings.

    >>> split_entry("scaffold:server_step=3,step_size=1e-4")
    ('scaffold', {'server_step': 3, 'step_size': 0.0001})
    """
    name, _, settings = entry.partition(":")
    return name, parse_settings([part for part in settings.split(",") if part], entry)


def build_algorithms(
    entries: Sequence[tuple[str, Mapping[str, Any]]],
    wide: Mapping[str, Any],
    given: Mapping[str, Any],
    usual: Mapping[str, Any],
) -> list[Algorithm]:
    """Return the algorithms.

    Args:
      entries: names with the settings that are meant for that one alone.
      wide: settings for every algorithm that has them.
      given: settings that the user chose for all.
      usual: settings that hold unless an algorithm has no use for them.
    """
    classes = [find_algorithm(name) for name, _ in entries]
    fields = [_field_names(cls) for cls in classes]
    for name in wide:
        if not any(name in known for known in fields):
            raise ValueError(_no_setting(entries[0][0], name, fields[0]))
    built = []
    for (label, own), cls, known in zip(entries, classes, fields):
        refuse_unknown(label, own, cls)
        chosen = _without_rivals(given, own) | {k: v for k, v in wide.items() if k in known} | dict(own)
        built.append(_construct(cls, chosen, _without_rivals(usual, chosen)))
    return built


def override(algorithm: Algorithm, chosen: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm with some settings changed, and without those of its own that contradict them."""
    refuse_unknown(algorithm.label, chosen, type(algorithm))
    kept = _without_rivals(algorithm.settings(), chosen)
    cleared = {name: None for name in algorithm.settings() if name not in kept}
    return algorithm.replace(**{**cleared, **chosen})


def refuse_unknown(label: str, names: Iterable[str], cls: type[Algorithm]) -> None:
    """Refuse settings that an algorithm does not have."""
    known = _field_names(cls)
    for name in names:
        if name not in known:
            raise ValueError(_no_setting(label, name, known))


def find_algorithm(name: str) -> type[Algorithm]:
    """Return the class of an algorithm's name."""
    from losac._settings import nearest
    from losac.algorithms import ALGORITHMS

    if name not in ALGORITHMS:
        known = list(ALGORITHMS)
        raise ValueError(f"unknown algorithm {name!r}{nearest(name, known)}; known are {', '.join(known)}")
    return ALGORITHMS[name]


def find_optimizer(name: str) -> Callable[..., Any]:
    """Return the optax optimiser of a name: a function that needs a step size and nothing else."""
    import optax

    from losac._settings import nearest

    known = [word for word in dir(optax) if not word.startswith("scale_") and _takes_step_size(getattr(optax, word))]
    if name not in known:
        raise ValueError(f"unknown local_optimizer {name!r}{nearest(name, known)}; known are {', '.join(known)}")
    return getattr(optax, name)


def _takes_step_size(function: Any) -> bool:
    if not inspect.isfunction(function):
        return False
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD] == ["learning_rate"]


def _construct(cls: type[Algorithm], chosen: Mapping[str, Any], usual: Mapping[str, Any]) -> Algorithm:
    """Make the algorithm; a usual number of local steps or blocks gives way where the method has its own."""
    try:
        return cls(**{**usual, **chosen})
    except ValueError:
        for kept in ({"step_size", "blocks"}, {"step_size"}):
            try:
                return cls(**{**{k: v for k, v in usual.items() if k in kept}, **chosen})
            except ValueError:
                continue
        raise


def _without_rivals(settings: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what contradicts stronger settings: blocks against mini-batches, steps against epochs."""
    dropped: set[str] = set()
    if _MINI_BATCHES & set(stronger):
        dropped |= _FIXED_BLOCKS | {"local_steps"}
    if _FIXED_BLOCKS & set(stronger):
        dropped |= _MINI_BATCHES
    return {name: value for name, value in settings.items() if name not in dropped}


def _field_names(cls: type[Algorithm]) -> list[str]:
    return [field.name for field in dataclasses.fields(cls) if field.init]


def _no_setting(label: str, name: str, known: list[str]) -> str:
    from losac._settings import nearest

    return f"{label} has no setting {name!r}{nearest(name, known)}; it has {', '.join(known)}"
