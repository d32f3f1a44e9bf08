"""What users run is optimised by the compiler, unlike the other tests' programs (conftest): bit for bit stays so."""

from __future__ import annotations

import os
import subprocess
import sys

from catalogue import ONE_EACH, ids
from paths import ROOT, file_of

LAWS = [
    f"{file_of('test_laws')}::test_engine_independence[{ids(e)}]" for e in ONE_EACH if e.name in ("losac", "scaffold")
]
KINDS = ("losac, M > T", "losac, M <= T", "fedavg", "fedvarp, rows on the server", "record")
"""One algorithm for each way of keeping clients' states; error feedback is gone on with below."""
PAGED = [
    *(f"{file_of('test_paged')}::test_the_numbers_are_those_of_the_ordinary_engine[{kind}]" for kind in KINDS),
    f"{file_of('test_paged')}::test_on_any_layout[losac, M > T-layout0]",
    f"{file_of('test_paged')}::test_a_run_goes_on_bit_for_bit_wherever_its_state_was",
]
FLAGS = "--xla_cpu_parallel_codegen_split_count=1"  # compiles in fewer pieces, for less time in all


def test_two_optimised_programs_agree_bit_for_bit():
    """The engine in pieces and after a resume, and with clients' states in memory or files, as promised there."""
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", *LAWS, *PAGED]
    done = subprocess.run(command, env=os.environ | {"XLA_FLAGS": FLAGS}, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
