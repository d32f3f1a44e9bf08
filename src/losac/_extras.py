"""Packages that only some parts of the library need."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class MissingExtraError(ImportError, ValueError):
    """A package of an optional extra is needed but not installed."""


def need(module: str, purpose: str, extra: str) -> Any:
    """Return a module of an optional package, or say what needs it and how to install it.

    >>> need("no_such_package", "drawing dragons", "dragons")
    Traceback (most recent call last):
      ...
    losac._extras.MissingExtraError: drawing dragons needs no_such_package: pip install 'losac[dragons]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise missing(module, purpose, extra) from error


def missing(module: str, purpose: str, extra: str) -> MissingExtraError:
    """Return the error of a module that cannot be imported."""
    package = module.split(".")[0]
    return MissingExtraError(f"{purpose} needs {package}: pip install 'losac[{extra}]'", name=package)
