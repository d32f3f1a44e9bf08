"""``python -m losac.deploy.guard DIR``: end a federation once the process that started it has ended, in any way.

Its standard input is a pipe from that process: the pipe ends when the process does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from losac.deploy.folder import FederationFolder
from losac.deploy.shutdown import stop_all


def start_guard(root: Path) -> subprocess.Popen[bytes]:
    """Start a guard; it works when its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, "-m", "losac.deploy.guard", str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def dismiss(guard: subprocess.Popen[bytes]) -> None:
    """Close the pipe and wait until the guard has ended."""
    if guard.stdin is not None:
        guard.stdin.close()
    guard.wait()


if __name__ == "__main__":
    sys.stdin.buffer.read()
    stop_all(FederationFolder(Path(sys.argv[1])))
