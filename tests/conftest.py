"""Every machine tests with two CPU devices, whatever its cores; real-data tests say why they were skipped."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("LOSAC_CPU_DEVICES", "2")
os.environ.setdefault("LOSAC_PROGRAMS", "off")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1",
)  # making programs fast that run once took most of the time; simulation/test_optimised.py tests the fast ones

gc.set_threshold(100_000, 20, 50)  # traces are many small objects, of which few are garbage

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# pytest would rewrite every file of tests again, and each of the many processes started here compile all of losac

import shapes  # noqa: E402

shapes.install()

LONGEST = ("test_processes", "test_optimised", "test_kills", "test_notebooks")
MAPS = 20_000
"""Beyond so many memory maps compiled programs are forgotten; Linux allows a process 65,530."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest tests first, the federation of processes above all: the others must not wait for them."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


@pytest.fixture(autouse=True)
def few_programs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget compiled programs before they are too many: each maps memory, and a process may have only so many maps."""
    yield
    config = request.config
    done = getattr(config, "_tests_done", 0) + 1
    config._tests_done = done
    if done % 10 == 0 and "jax" in sys.modules and maps() > MAPS:
        sys.modules["jax"].clear_caches()


def maps() -> int:
    """How many memory maps this process has; 0 where the system does not say, since only Linux limits them."""
    listed = Path("/proc/self/maps")
    return listed.read_bytes().count(b"\n") if listed.exists() else 0


@pytest.fixture
def real_data() -> Path:
    folder = Path(os.environ.get("LOSAC_DATA_DIR", ""))
    if "LOSAC_DATA_DIR" not in os.environ or not (folder / "mnist.npz").exists():
        pytest.skip(
            "the real data sets are not here: set LOSAC_DATA_DIR to the folder that holds mnist.npz, har.npz, …"
        )
    return folder
