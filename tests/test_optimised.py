"""What users run is optimised by the compiler, unlike the other tests' programs (conftest): bit for bit stays so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from catalogue import ONE_EACH
from test_laws import ids

TESTS = Path(__file__).parent
LAWS = [f"test_laws.py::test_engine_independence[{ids(e)}]" for e in ONE_EACH if e.name in ("losac", "scaffold")]
PAGED = [
    "test_paged.py::test_the_numbers_are_those_of_the_ordinary_engine",
    "test_paged.py::test_on_any_layout",
    "test_paged.py::test_a_run_goes_on_bit_for_bit_wherever_its_state_was",
]


def test_two_optimised_programs_agree_bit_for_bit():
    """The engine in pieces and after a resume, and with clients' states in memory or files, as promised there."""
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", *LAWS, *PAGED]
    done = subprocess.run(command, env=os.environ | {"XLA_FLAGS": ""}, cwd=TESTS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
