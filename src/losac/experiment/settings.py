"""Algorithms from text: ``scaffold:server_step=3``, ``--set name=value``, and the options of all."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from losac._own import PATTERN, is_own, load_own
from losac.experiment.words import words

if TYPE_CHECKING:
    from losac.algorithms import Algorithm

_WORDS = {"true": True, "false": False, "none": None}
OBJECTS = ("uploads", "aggregation")
"""The settings that take objects, and so cannot be written as text."""
_FIXED_BLOCKS, _MINI_BATCHES = {"blocks"}, {"batch_size", "epochs"}


def parse_value(text: str) -> Any:
    """Return the number, boolean or word that a text stands for.

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
    settings: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise ValueError(f"{where} {text!r} is not of the form NAME=VALUE, such as server_step=3")
        name = name.replace("-", "_")
        if name in settings:
            raise ValueError(f"{where} sets {name} twice; give it once")
        settings[name] = parse_value(value)
    for name in OBJECTS:
        if name in settings:
            raise ValueError(f"{where} cannot set {name}, which takes objects; use losac.simulate in Python for it")
    return settings


def split_entry(entry: str) -> tuple[str, dict[str, Any]]:
    """Return an algorithm's name and its own settings.

    >>> split_entry("scaffold:server_step=3,step_size=1e-4")
    ('scaffold', {'server_step': 3, 'step_size': 0.0001})
    >>> split_entry("mine.py:Mine:pull=0.5")
    ('mine.py:Mine', {'pull': 0.5})
    """
    own = re.match(f"({PATTERN})(?=:|$)", entry)
    known = entry.partition(":")[0] in words()["algorithms"]
    name = own[0] if own and not known else entry.partition(":")[0]
    colon, settings = entry[len(name) : len(name) + 1], entry[len(name) + 1 :]
    if colon and "=" not in settings and settings:
        raise ValueError(
            f"{entry!r} is not an algorithm; write NAME or NAME:SETTING=VALUE, such as scaffold:server_step=3, or one "
            "of your own as FILE.py:NAME"
        )
    return name, parse_settings(settings.split(",") if colon else [], repr(entry))


def build_algorithms(
    entries: Sequence[tuple[str, Mapping[str, Any]]],
    wide: Mapping[str, Any],
    given: Mapping[str, Any],
    usual: Mapping[str, Any],
) -> list[Algorithm]:
    """Return the algorithms.

    Args:
      entries: names, each with its own settings.
      wide: settings for every algorithm that has them.
      given: settings that the user chose for all.
      usual: defaults, for the algorithms that have a use for them.
    """
    wide = to_objects("--set", wide)
    classes = [find_algorithm(name) for name, _ in entries]
    fields = [_field_names(cls) for cls in classes]
    for name in wide:
        if not any(name in known for known in fields):
            raise ValueError(_no_setting(entries[0][0], name, fields[0]))
    built = []
    for (label, own), cls, known in zip(entries, classes, fields):
        own = to_objects(label, own)
        refuse_unknown(label, own, cls)
        chosen = without_rivals(given, own) | {k: v for k, v in wide.items() if k in known} | dict(own)
        chosen = _with_schedules(label, chosen, cls)
        built.append(_construct(cls, chosen, without_rivals(usual, chosen)))
    return built


def override(algorithm: Algorithm, chosen: Mapping[str, Any]) -> Algorithm:
    """Return the algorithm with some settings changed, and without its old settings that contradict them."""
    chosen = to_objects(algorithm.label, chosen)
    refuse_unknown(algorithm.label, chosen, type(algorithm))
    chosen = _with_schedules(algorithm.label, chosen, type(algorithm))
    kept = without_rivals(algorithm.settings(), chosen)
    cleared = {name: None for name in algorithm.settings() if name not in kept}
    return algorithm.replace(**{**cleared, **chosen})


def to_objects(label: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with words replaced by their values (none, optimisers); refuse what no text can express."""
    for name in OBJECTS:
        if settings.get(name):
            raise ValueError(
                f"{label}: text cannot set {name}, which takes objects; use losac.simulate in Python for it"
            )
    found = {name: None if value == "none" else value for name, value in settings.items() if name not in OBJECTS}
    optimizer = found.get("local_optimizer")
    if optimizer is not None and not callable(optimizer):
        found["local_optimizer"] = find_optimizer(str(optimizer))
    return found


def refuse_unknown(label: str, names: Iterable[str], cls: type[Algorithm]) -> None:
    """Refuse settings that an algorithm does not have."""
    known = _field_names(cls)
    for name in names:
        if name not in known:
            raise ValueError(_no_setting(label, name, known))


def _with_schedules(label: str, settings: Mapping[str, Any], cls: type[Algorithm]) -> dict[str, Any]:
    """Return settings with the texts of schedules replaced by these; refuse other words where numbers are due."""
    from losac import schedules

    found = dict(settings)
    for field in dataclasses.fields(cls):
        value = found.get(field.name)
        if "number" not in field.metadata or not isinstance(value, str) or value in field.metadata["words"]:
            continue
        if not (cls.schedules and ":" in value):
            also = ", or a schedule such as cosine:0.1:500" if cls.schedules else ""
            raise ValueError(f"{label}: {field.name}={value!r} must be a number{also}")
        try:
            found[field.name] = schedules.parse(value)
        except ValueError as error:
            raise ValueError(f"{label}: {field.name}: {error}") from error
    return found


def find_algorithm(name: str) -> type[Algorithm]:
    """Return the class of an algorithm's name: one of the library's, or of the user's."""
    from losac._settings import nearest
    from losac.algorithms import ALGORITHMS
    from losac.algorithms.contract import Algorithm

    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if not is_own(name):
        known = list(ALGORITHMS)
        raise ValueError(f"unknown algorithm {name!r}{nearest(name, known)}; known are {', '.join(known)}")
    found = load_own(name)
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ValueError(f"{name} must be an algorithm: a class derived from losac.algorithms.LocalMethod")
    return found


def find_optimizer(name: str) -> Callable[..., Any]:
    """Return the optax optimiser of a name, or a user's: a function that needs a step size and nothing else."""
    if is_own(name):
        return load_own(name)
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
    """Make the algorithm; a default number of local steps or blocks is dropped if the method has its own."""
    for name in cls.required():
        if name not in chosen and name not in usual:
            raise ValueError(f"{cls.title} needs the setting {name}, which has no default; give --set {name}=VALUE")
    try:
        return cls(**{**usual, **chosen})
    except ValueError:
        for kept in ({"step_size", "blocks"}, {"step_size"}):
            try:
                return cls(**{**{k: v for k, v in usual.items() if k in kept}, **chosen})
            except ValueError:
                continue
        raise


def without_rivals(settings: Mapping[str, Any], stronger: Mapping[str, Any]) -> dict[str, Any]:
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
