"""Compares functions by content: runs can share a compiled program, and reports see that two runs are of one problem.

Two functions made by the same code may do different things: a lambda in a loop, or a closure over another value. What a
function does depends on its code and on all that it reaches: captured values, defaults and global names.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import hashlib
import inspect
import numbers
import re
import sys
from collections.abc import Iterator, Mapping
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import jax
import numpy as np

from losac._settings import Settings
from losac.trees import Tree, as_numpy

LIBRARIES = ("builtins", "functools", "jax", "jaxlib", "losac", "math", "numpy", "operator", "optax")
"""Packages with modules, classes and functions that do not change."""
LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
"""Instructions that read a global name."""
DEEPEST, MOST = 50, 20_000
"""The depth and the number of values that a digest follows; values beyond count by their type."""
WHOLE = 2**24
"""Bytes of the largest array that is read whole; of larger ones every second row is read, every third, and so on."""


class FunctionParts(NamedTuple):
    """A function taken apart: its code, and the values that this reaches."""

    code: CodeType
    captured: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    defaults: tuple[Any, ...] | None
    keyword_defaults: tuple[tuple[str, Any], ...]
    attributes: tuple[tuple[str, Any], ...]


def parts(function: FunctionType) -> FunctionParts:
    """Take a function apart; ValueError where it captures a name that has no value yet."""
    cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    known = function.__globals__
    names = sorted({step.argval for step in steps(function.__code__) if step.opname in LOADS})
    return FunctionParts(
        function.__code__,
        cells,
        tuple((name, known[name]) for name in names if name in known),
        function.__defaults__,
        tuple(sorted((function.__kwdefaults__ or {}).items())),
        tuple(sorted(vars(function).items())),
    )


def steps(code: CodeType) -> Iterator[dis.Instruction]:
    """Yield the instructions of some code and of the code within it."""
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from steps(constant)


def found_in_its_module(value: Any) -> str:
    """Return the module that has a function, class or module under its own name, or an empty text.

    What a library made for a user, such as a partial, has a library's name but is not found there.
    """
    if isinstance(value, ModuleType):
        module, found = value.__name__, sys.modules.get(value.__name__)
    else:
        module = str(getattr(value, "__module__", None))
        found = getattr(sys.modules.get(module), str(getattr(value, "__name__", "")), None)
    return module if found is value else ""


def digest(value: Any) -> str:
    """Return twelve digits that are equal, in every process, for functions or values that are certainly equal.

    Functions count by their code and by all that it reaches, arrays by their content, objects by their class and what
    they hold, numbers to the last digit. Members of an installed package count by their name, and so do modules.
    What cannot be looked into, such as an object of a compiled extension, counts by its text or by its type: two
    different ones may count as equal. Functions that do the same may count as different: if their code is written or
    compiled differently (by another version of Python), or if they capture a list that grows from run to run.

    >>> def times(factor):
    ...     return lambda x: factor * x
    >>> digest(times(1.0)) == digest(times(1.0)), digest(times(1.0)) == digest(times(2.0))
    (True, False)
    """
    return _Digest().of(value)[:12]


def digest_of_arrays(tree: Tree) -> str:
    """Return twelve digits that name a pytree of arrays by its structure and all of its numbers; empty if it has none.

    >>> digest_of_arrays({"w": np.ones(3)}) == digest_of_arrays({"w": np.ones(3)}), digest_of_arrays({})
    (True, '')
    """
    found = hashlib.sha256()
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    for path, leaf in leaves:
        array = np.ascontiguousarray(as_numpy(leaf))
        found.update(f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype}".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()[:12] if leaves else ""


class _Digest:
    """Digests of a value and of all that it reaches."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        self.kept: list[Any] = []  # keeps ids unique: no other object gets the memory of one of these
        self.above: list[int] = []
        self.left = MOST

    def of(self, value: Any) -> str:
        address = id(value)
        if address in self.known:
            return self.known[address]
        if address in self.above:
            return f"level {self.above.index(address)}"
        self.left -= 1
        if len(self.above) >= DEEPEST or self.left < 0:
            return _type(value)
        self.above.append(address)
        try:
            told = self._told(value)
        except Exception:  # inspecting a user's object may raise anything; that must not end a run
            return _type(value)
        finally:
            self.above.pop()
        self.known[address] = hashlib.sha256(repr(told).encode("utf-8", "surrogatepass")).hexdigest()
        self.kept.append(value)
        return self.known[address]

    def _told(self, value: Any) -> Any:
        """Return what distinguishes a value from others, in words and digests."""
        if value is None or value is Ellipsis or isinstance(value, str | bytes | numbers.Number | np.generic):
            return _type(value), repr(value), self._held(value) if type(value).__module__ not in _PLAIN else ""
        if isinstance(value, Settings):
            return _type(value), [(name, self._setting(part)) for name, part in value.settings().items()]
        if isinstance(value, tuple | list):
            return _type(value), [self.of(part) for part in value]
        if isinstance(value, set | frozenset):
            return _type(value), sorted(self.of(part) for part in value)
        if isinstance(value, Mapping):
            return _type(value), [(self.of(name), self.of(part)) for name, part in value.items()]
        if isinstance(value, np.ndarray | jax.Array) or hasattr(value, "detach"):
            return self._array(value)
        if isinstance(value, CodeType):
            return self._code(value)
        if _is_installed(found_in_its_module(value)) or isinstance(value, ModuleType):
            return _type(value), value.__name__, getattr(value, "__module__", None)
        if isinstance(value, type):
            return self._class(value)
        return self._callable(value) or (self.of(type(value)), self._held(value))

    def _callable(self, value: Any) -> Any:
        if isinstance(value, FunctionType):
            try:
                return "function", [self.of(part) for part in parts(value)]
            except ValueError:
                return "function", self.of(value.__code__)
        if isinstance(value, functools.partial):
            return "partial", self.of((value.func, value.args, value.keywords))
        if isinstance(value, MethodType):
            return "method", self.of(value.__func__), self.of(value.__self__)
        if isinstance(value, BuiltinMethodType):
            return "builtin", value.__qualname__, self.of(value.__self__)
        inside = inspect.getattr_static(value, "__wrapped__", None)
        return ("wrapped", _type(value), self.of(value.__wrapped__)) if inside is not None else None

    def _setting(self, value: Any) -> str:
        """A number of settings counts by its value, not by its type."""
        plain = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return repr(float(value)) if plain else self.of(value)

    def _code(self, code: CodeType) -> Any:
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        shape = code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags
        return "code", code.co_code, code.co_exceptiontable, names, shape, self.of(code.co_consts)

    def _array(self, value: Any) -> Any:
        if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
            return str(value.dtype), self._array(jax.random.key_data(value))
        array = as_numpy(value)
        if array.dtype.hasobject:
            return "objects", array.shape, self.of(array.tolist())
        rows = array[:: 1 + array.nbytes // WHOLE] if array.ndim else array
        content = hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()
        return "array", array.shape, array.dtype.str, content

    def _class(self, value: type) -> Any:
        methods = {name: _method(part) for name, part in vars(value).items() if name not in _NOT_OF_A_CLASS}
        known = {name: part for name, part in methods.items() if isinstance(part, _OF_A_CLASS)}
        return "class", [self.of(base) for base in value.__bases__], self.of(known)

    def _held(self, value: Any) -> Any:
        """What an object holds, or else its text."""
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return [(name, self.of(getattr(value, name, None))) for name in names]
        slots = [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
        held = {name: getattr(value, name) for name in slots} | dict(getattr(value, "__dict__", {}))
        own = {name: part for name, part in held.items() if not _is_cached(type(value), name)}
        return self.of(own) if own else re.sub(r" at 0x[0-9a-f]+", "", repr(value))


_PLAIN = ("builtins", "numpy")
_OF_A_CLASS = (FunctionType, bool, int, float, complex, str, bytes, tuple, type(None))
_NOT_OF_A_CLASS = {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__"}


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_installed(module: str) -> bool:
    """Whether a module is of a library: of Python, of those that losac is built on, or installed as a package."""
    top = module.partition(".")[0]
    if not top or top == "__main__":
        return False
    file = str(getattr(sys.modules.get(module), "__file__", None) or "")
    return (
        top in LIBRARIES or top in sys.stdlib_module_names or bool(re.search(r"[\\/](site|dist)-packages[\\/]", file))
    )


def _method(part: Any) -> Any:
    """Return the function within a method of any kind."""
    if isinstance(part, staticmethod | classmethod):
        return part.__func__
    return part.fget if isinstance(part, property) else part


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in ("__dict__", "__weakref__") and not name.startswith("__"))


def _is_cached(kind: type, name: str) -> bool:
    """Whether an attribute exists only after its first use."""
    return isinstance(inspect.getattr_static(kind, name, None), functools.cached_property)
