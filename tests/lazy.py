"""Packages that are imported when they are first used, so that collecting the tests does not wait for them."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

import pytest


class Lazy:
    """A package by its name; the same attributes, once somebody asks for one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_") or attribute == "pytestmark":  # pytest looks for these in every collected object
            raise AttributeError(attribute)
        return getattr(importlib.import_module(self._name), attribute)


def needs(name: str) -> pytest.MarkDecorator:
    """Return the mark of tests that are skipped without a package."""
    return pytest.mark.skipif(find_spec(name) is None, reason=f"could not import {name!r}")
