"""Functions that were made twice but do the same, such as a lambda in a loop: they share a compiled program.

Two functions are the same if their code is the same and all that it can reach is the same and cannot change: numbers,
texts, JAX arrays, modules of a few libraries, and functions with this property too. A function that reaches anything
else, such as a NumPy array, a list or an object of the user's, equals only itself.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import jax
import numpy as np

from losac._functions import LIBRARIES, LOADS, found_in_its_module, parts, steps

MOST = 256
"""The number of functions remembered."""
DEEPEST = 8
"""The depth to which functions that call functions are followed."""
PLAIN = (bool, int, float, complex, str, bytes, np.float64)
"""Types with values that their text describes fully; a subclass may hold anything."""
READERS = {"__import__", "eval", "exec", "globals", "locals", "open", "vars"}
"""Builtin functions that reach what no name in the code shows."""
BINDERS = {"STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME"}
"""Instructions that bind what others read."""

_FIRST: OrderedDict[Any, Callable[..., Any]] = OrderedDict()


class _OtherError(Exception):
    """Something that may change, or that cannot be compared."""


class _Same:
    """An object that equals only itself; it is kept, so no other object gets its memory."""

    def __init__(self, kept: Any) -> None:
        self.kept = kept

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.kept is other.kept

    def __hash__(self) -> int:
        return id(self.kept)


def first_alike(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the first known function that is the same as this one, often the function itself."""
    key = meaning(function)
    if key is None:
        return function
    first = _FIRST.get(key)
    if first is None or (first is not function and meaning(first) != key):  # what it reaches was bound again since
        first = _FIRST[key] = function
    _FIRST.move_to_end(key)
    if len(_FIRST) > MOST:
        _FIRST.popitem(last=False)
    return first


def meaning(function: Callable[..., Any]) -> Any:
    """Return all that decides what a function does, for comparison; None if that may change or is not known."""
    if not isinstance(function, FunctionType | functools.partial):
        return None
    try:
        return _function(function, DEEPEST)
    except (_OtherError, ValueError):  # an empty cell of a closure is a ValueError
        return None


def _function(function: Any, depth: int) -> Any:
    if depth == 0:
        raise _OtherError
    if isinstance(function, functools.partial):
        inside = function.func, function.args, tuple(sorted(function.keywords.items()))
        return "partial", _value(inside, depth - 1)
    for step in steps(function.__code__):
        if step.opname in BINDERS or (step.opname in LOADS and step.argval in READERS):
            raise _OtherError
    code, *reached = parts(function)
    return "function", code, *(_value(part, depth - 1) for part in reached)


def _value(value: Any, depth: int) -> Any:
    """Return what stands for a value that a function reaches."""
    if value is None or type(value) in PLAIN:
        return type(value), repr(value)  # as text: 0.0 is not -0.0, and nan is nan
    if type(value) is tuple:
        return tuple, tuple(_value(entry, depth) for entry in value)
    if isinstance(value, jax.Array):
        return _Same(value)
    if (callable(value) or isinstance(value, ModuleType)) and _of_a_library(value):
        return _Same(value)
    if isinstance(value, FunctionType | functools.partial):
        return _function(value, depth)
    raise _OtherError


def _of_a_library(value: Any) -> bool:
    """Whether a library has this under its own name; what it made for a user, such as a partial, may reach anything."""
    return found_in_its_module(value).partition(".")[0] in LIBRARIES
