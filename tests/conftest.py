"""Every machine tests with two CPU devices, whatever its cores; real-data tests say why they were skipped."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("LOSAC_CPU_DEVICES", "2")
os.environ.setdefault("LOSAC_PROGRAMS", "off")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the federation of processes first: by far the longest test, it must not be what all others wait for."""
    items.sort(key=lambda item: item.get_closest_marker("processes") is None)


@pytest.fixture(autouse=True)
def few_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget compiled programs now and then: each maps memory, and a process may have only so many maps."""
    yield
    config = request.config
    done = getattr(config, "_tests_done", 0) + 1
    config._tests_done = done
    if done % 20 == 0 and "jax" in sys.modules:
        sys.modules["jax"].clear_caches()


@pytest.fixture
def real_data() -> Path:
    folder = Path(os.environ.get("LOSAC_DATA_DIR", ""))
    if "LOSAC_DATA_DIR" not in os.environ or not (folder / "mnist.npz").exists():
        pytest.skip(
            "the real data sets are not here: set LOSAC_DATA_DIR to the folder that holds mnist.npz, har.npz, …"
        )
    return folder
