"""What a new user sees in the first minutes, and what the commands in the docs take: measured, not remembered.

    python benchmarks/newcomer.py          # clone, make demo, a first run, a first report: a few minutes on two cores
    python benchmarks/newcomer.py --long   # also make quick and losac reproduce all --quick: a quarter of an hour more

Clones this repository into an empty folder and runs the commands there, with an environment of their own and empty
caches. Writes the times to docs/results/commands.json and the table of the demo to docs/results/demo; then
``python docs/generate_results.py`` fills them into the pages.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
FIRST = (
    ("make demo", "make demo"),
    ("losac init", ".venv/bin/losac init experiment.toml"),
    ("losac run", ".venv/bin/losac run experiment.toml --out runs/first"),
    ("losac report", ".venv/bin/losac report runs/first demo --out report.html"),
)
"""The commands of the start page; their times count from the clone."""
LONG = (
    ("make quick", "make quick"),
    ("losac reproduce all --quick", ".venv/bin/losac reproduce all --quick --jobs 2"),
)
"""Commands with times of their own. The tests of the first are run twice: the first time builds the environment."""


def main() -> None:
    """Run the commands and keep their times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--long", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone, began = Path(folder) / "losac", time.perf_counter()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        settings = os.environ | {"LOSAC_CACHE": str(Path(folder) / "cache")}
        settings.pop("PYTHONPATH", None)
        for name, command in FIRST:
            run(command, clone, settings)
            keep(name, command, time.perf_counter() - began, "since git clone")
        (RESULTS / "demo").mkdir(exist_ok=True)
        shutil.copy(clone / "demo" / "comparison.csv", RESULTS / "demo" / "comparison.csv")
        for name, command in LONG if arguments.long else ():
            if name == "make quick":
                run(command, clone, settings)
            began = time.perf_counter()
            run(command, clone, settings)
            keep(name, command, time.perf_counter() - began, "")


def run(command: str, clone: Path, settings: dict[str, str]) -> None:
    """Run a command as a user types it."""
    print(f"$ {command}", flush=True)
    subprocess.run(command, shell=True, cwd=clone, env=settings, check=True)


def keep(name: str, command: str, seconds: float, since: str) -> None:
    """Store the time of a command, with what it was measured on."""
    path = RESULTS / "commands.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    known[name] = {
        "command": command.replace(".venv/bin/", ""),
        "seconds": round(seconds, 1),
        "since": since,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "date": date.today().isoformat(),
        "commit": commit,
    }
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    print(f"[{name}: {seconds:.0f} s]", flush=True)


if __name__ == "__main__":
    main()
