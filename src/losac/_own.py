"""What users wrote, by name: ``module:Name``, or ``path.py:Name`` from the current folder."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from losac._checks import nearest

PATTERN = r"(?:[^:]*\.py|[A-Za-z_]\w*(?:\.\w+)*):[A-Za-z_]\w*"
"""How a name looks."""
_NAMES: dict[int, tuple[Any, str]] = {}
_FILES: set[str] = set()
"""The files that were loaded."""


def is_own(text: Any) -> bool:
    """Whether a text names something of the user's.

    >>> is_own("mine.py:Net"), is_own("package.models:Net"), is_own("dirichlet:0.3"), is_own("scaffold:server_step=3")
    (True, True, False, False)
    """
    return isinstance(text, str) and re.fullmatch(PATTERN, text) is not None


def load_own(text: str) -> Any:
    """Return what a text names; the file is run once in a process.

    >>> load_own("fractions:Fraction")(1, 2)
    Fraction(1, 2)
    >>> load_own("fractions:Fractoin")
    Traceback (most recent call last):
    ...
    ValueError: fractions has no 'Fractoin' (did you mean 'Fraction'?), which 'fractions:Fractoin' asks for
    """
    place, _, name = text.rpartition(":")
    module = _of_file(place) if place.endswith(".py") else _of_name(place, text)
    if not hasattr(module, name):
        raise ValueError(f"{place} has no {name!r}{nearest(name, vars(module))}, which {text!r} asks for")
    found = getattr(module, name)
    _NAMES[id(found)] = found, text
    _FILES.add(str(module.__file__))
    return found


def name_of(value: Any, otherwise: Any) -> Any:
    """Return the text that named something loaded by :func:`load_own`, or else another name."""
    return _NAMES[id(value)][1] if id(value) in _NAMES else otherwise


def call_own(text: str, function: Callable[..., Any], offered: Mapping[str, Any]) -> Any:
    """Call a user's function or class with those of the offered arguments that it names.

    >>> call_own("mine.py:make", lambda clients: clients + 1, {"clients": 3, "seed": 0})
    4
    >>> call_own("mine.py:make", lambda depth: depth, {"clients": 3, "seed": 0})
    Traceback (most recent call last):
    ...
    ValueError: mine.py:make needs 'depth'; it can have clients, seed, by these names
    """
    arguments = {name: offered[name] for name in taken(text, function, offered)}
    try:
        return function(**arguments)
    except Exception as error:
        raise ValueError(f"{text} {raised(error)}") from error


def taken(text: str, function: Callable[..., Any], offered: Collection[str]) -> list[str]:
    """Return which of the offered arguments a user's function takes; refuse one that needs others."""
    names: list[str] = []
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # written in C
        return names
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            return list(offered)
        if name in offered:
            names.append(name)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            raise ValueError(f"{text} needs {name!r}; it can have {', '.join(offered)}, by these names")
    return names


def _of_file(place: str) -> ModuleType:
    path = Path(place).expanduser()
    if not path.is_file():
        raise ValueError(
            f"{place} is not there; give the path of a Python file from the current folder, as FILE.py:NAME"
        )
    return _run(path.resolve(), place)


@cache
def _run(whole: Path, place: str) -> ModuleType:
    name = f"_own_{whole.stem}_{hashlib.sha256(str(whole).encode()).hexdigest()[:8]}"
    module = ModuleType(name)
    module.__file__ = str(whole)
    sys.modules[name] = module  # dataclasses and pickles look for it there
    _find_modules_in(whole.parent)
    try:
        exec(compile(whole.read_bytes(), str(whole), "exec"), vars(module))  # no cache: a file may just have changed
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise ValueError(f"{place} {raised(error)}") from error
    return module


def _of_name(place: str, text: str) -> ModuleType:
    _find_modules_in(Path.cwd())
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise ValueError(
                f"there is no module {place!r}, which {text!r} asks for; give module:NAME, or FILE.py:NAME"
            ) from None
        raise ValueError(f"{place} {raised(error)}") from error
    except Exception as error:
        raise ValueError(f"{place} {raised(error)}") from error


def _find_modules_in(folder: Path) -> None:
    """Let users' files import their neighbours, as Python does for a script."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def blamed(error: Exception) -> str | None:
    """Return in words that a user's code raised an error or does not fit, if it was loaded and did; else None."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if frames[-1] in _FILES or (_FILES & set(frames) and not isinstance(error, ValueError)):
        return f"your code {raised(error)}"
    checked = isinstance(error, TypeError) and Path(__file__).parent in Path(frames[-1]).parents
    return str(error) if _FILES and checked else None


def raised(error: Exception) -> str:
    """Return in words that code raised an error, and in which line of the user's own."""
    words = next(iter(str(error).strip().splitlines()), "")
    files = [(Path(each.filename), each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    others = {Path(__file__).parent, Path(inspect.__file__).parent}
    of_user = [at for at in files if "site-packages" not in at[0].parts and not others & set(at[0].parents)]
    where = f" in line {of_user[-1][1]} of {of_user[-1][0].name}" if of_user else ""
    return f"raised {type(error).__name__}{where}{f': {words}' if words else ''}"
