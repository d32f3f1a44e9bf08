"""Every machine tests with two CPU devices, whatever its cores; real-data tests say why they were skipped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("LOSAC_CPU_DEVICES", "2")


@pytest.fixture
def real_data() -> Path:
    folder = Path(os.environ.get("LOSAC_DATA_DIR", ""))
    if "LOSAC_DATA_DIR" not in os.environ or not (folder / "mnist.npz").exists():
        pytest.skip(
            "the real data sets are not here: set LOSAC_DATA_DIR to the folder that holds mnist.npz, har.npz, …"
        )
    return folder
