"""The examples in docstrings do what they show; a test for each file that has some."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import losac
import losac_reproduction

FILES = sorted(
    path.relative_to(package.parent)
    for package in (Path(losac.__file__).parent, Path(losac_reproduction.__file__).parent)
    for path in package.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_examples(path: Path):
    module = importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    outcome = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert outcome.attempted
    assert not outcome.failed
