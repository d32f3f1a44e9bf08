"""Shapes in annotations are checked while the tests run: ``conftest.py`` has the modules below import themselves so.

Only what jaxtyping says is looked at, in parameters and results, and in the fields of named tuples among them. A name
of a dimension means one length within a call.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import jaxtyping

MODULES = (
    "losac.algorithms.contract",
    "losac.algorithms.invariant",
    "losac.attacks.algebra",
    "losac.attacks.evidence",
    "losac.federation.checks",
    "losac.federation.draws",
    "losac.federation.protocol",
    "losac.federation.work",
    "losac.simulation.placement.store",
    "losac.simulation.program.client",
    "losac.simulation.program.drawing",
    "losac.torch.courses",
)


def install() -> None:
    """Check the modules' shapes from their import on."""
    jaxtyping.install_import_hook(MODULES, "shapes.checked")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that refuses arguments and results whose shapes or dtypes are not those annotated."""
    signature = inspect.signature(function)
    hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}

    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            refuse(name, value, hints[name])
        result = function(*args, **kwargs)
        refuse("result", result, signature.return_annotation)
        return result

    return wrapper


def refuse(name: str, value: Any, hint: Any) -> None:
    """Raise TypeError where a value is not what its annotation says."""
    if not fits(value, hint):
        kind = f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else repr(value)
        raise TypeError(f"{name} is {kind}, but must be {hint}")
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        for field, inner in fields(type(value)).items():
            refuse(f"{name}.{field}", getattr(value, field), inner)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has the shape and dtype that an annotation says, if it says any."""
    if isinstance(hint, type(jaxtyping.PyTree)):
        return isinstance(value, hint)
    arrays = shapes_in(hint)
    return not arrays or not hasattr(value, "shape") or any(isinstance(value, option) for option in arrays)


@lru_cache
def shapes_in(hint: Any) -> tuple[type, ...]:
    """Return the shapes that an annotation allows."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) or typing.get_origin(hint) else (hint,)
    return tuple(each for each in options if isinstance(each, type) and issubclass(each, jaxtyping.AbstractArray))


@lru_cache
def fields(kind: type) -> dict[str, Any]:
    """Return the annotated shapes among the fields of a named tuple, and the named tuples among them."""
    try:
        return typing.get_type_hints(kind)
    except NameError:  # an import for type checkers alone
        return {}
