"""Builds the contenders' virtual environments under benchmarks/.envs from the pinned files of benchmarks/environments.

    python benchmarks/build.py [NAME …]

An environment that is up to date is left alone; one that cannot be built is reported, and the others are built. Which
package index pip uses is pip's own setting; where it offers several builds of PyTorch, a CPU build is enough.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENTS, BUILT = HERE / "environments", HERE / ".envs"


def interpreter(name: str) -> Path | None:
    """Return the Python of an environment, or None where it is not built; losac's is the one that runs this."""
    if name == "losac":
        return Path(sys.executable)
    python = BUILT / name / "bin" / "python"
    return python if (BUILT / name / ".ready").exists() else None


def build(name: str) -> bool:
    """Build an environment unless its pinned versions are installed already; return whether it is there."""
    wanted, folder = (ENVIRONMENTS / f"{name}.txt").read_text(), BUILT / name
    mark = folder / ".ready"
    if mark.exists() and mark.read_text() == wanted:
        return True
    print(f"building the environment {name}", flush=True)
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)]).returncode == 0
    pip = [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    if not made or subprocess.run([*pip, "-r", str(ENVIRONMENTS / f"{name}.txt")]).returncode:
        print(f"the environment {name} could not be built: its contenders will be left out", flush=True)
        return False
    mark.write_text(wanted)
    return True


def main() -> None:
    names = sys.argv[1:] or sorted(path.stem for path in ENVIRONMENTS.glob("*.txt"))
    for name in names:
        build(name)


if __name__ == "__main__":
    main()
