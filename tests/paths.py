"""Where the tests and the repository are, wherever a test file is."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent


def file_of(name: str) -> Path:
    """Return the test file of a name, in whatever folder it is."""
    (path,) = TESTS.rglob(f"{name}.py")
    return path
