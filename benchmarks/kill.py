"""Kills a run again and again with SIGKILL, resumes it, and compares with a run that nobody disturbed.

    python benchmarks/kill.py                # ten runs, each killed at one random moment and resumed
    python benchmarks/kill.py --together     # one run, killed ten times on its way

All numbers but the times must be the same, in metrics.csv, metrics.parquet and the final model.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import losac

OPTIONS = ["--data", "digits", "--model", "2nn", "--eval-every", "20", "--checkpoint-seconds", "0.3", "--quiet"]


def command(folder: Path, rounds: int, *more: str) -> list[str]:
    return [sys.executable, "-m", "losac", "run", *OPTIONS, "--rounds", str(rounds), "--out", str(folder), *more]


def disturbed(folder: Path, rounds: int, moments: list[float]) -> list[str]:
    """Run, killing at these seconds after each start, until the run ends; return what was found after each kill."""
    found = []
    for moment in moments:
        process = subprocess.Popen(command(folder, rounds, "--resume"), stdout=subprocess.DEVNULL)
        time.sleep(moment)
        process.send_signal(signal.SIGKILL)
        process.wait()
        found.append(state_of(folder))
    subprocess.run(command(folder, rounds, "--resume"), check=True, stdout=subprocess.DEVNULL)
    return found


def state_of(folder: Path) -> str:
    if not (folder / "run.json").exists():
        return "not begun"
    run = losac.runs.open_run(folder)
    history = run.history()
    return f"{run.status} at round {'none' if history is None else history.rounds[-1]}"


def compare(folder: Path, whole: Path) -> bool:
    """Whether all numbers but the times are the same."""
    import jax
    import pandas as pd

    same = True
    for read, name in ((pd.read_csv, "metrics.csv"), (pd.read_parquet, "metrics.parquet")):
        mine, theirs = (read(path / name).drop(columns="seconds") for path in (folder, whole))
        same &= mine.equals(theirs)
    models = [jax.tree.leaves(losac.History.load(path / "history.npz").params) for path in (folder, whole)]
    return same and all(np.array_equal(a, b) for a, b in zip(*models, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--together", action="store_true")
    chosen = parser.parse_args()
    random.seed(chosen.seed)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        began = time.perf_counter()
        subprocess.run(command(root / "whole", chosen.rounds), check=True, stdout=subprocess.DEVNULL)
        took = time.perf_counter() - began
        print(f"undisturbed: {took:.1f} s")
        moments = [random.uniform(0.2, took) for _ in range(chosen.kills)]
        plans = [moments] if chosen.together else [[moment] for moment in moments]
        failures = 0
        for number, plan in enumerate(plans):
            folder = root / str(number)
            found = disturbed(folder, chosen.rounds, plan)
            same = compare(folder, root / "whole")
            failures += not same
            for moment, state in zip(plan, found):
                print(f"killed after {moment:5.1f} s: {state}")
            print("  resumed: equal" if same else "  resumed: DIFFERENT")
    print(f"{len(plans) - failures} of {len(plans)} equal to the undisturbed run")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
