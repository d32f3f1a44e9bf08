"""Compares the simulator of another checkout with this one's: the same jobs in turns, in one run.

    git worktree add ../before COMMIT
    LOSAC_DATA_DIR=path/to/data python benchmarks/versions.py ../before

Both checkouts run in the Python that starts the command, each in its own process with its own sources. They compute in
turns: a noisy machine disturbs both. A ratio is taken within a turn; the table has the median and, in brackets, the
smallest and largest. More than 1 means that this checkout is slower.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
JOBS = ("J1", "J2", "J3", "J4", "J1-losac")


def serve(name: str, rounds: int) -> None:
    """Get a job ready, then answer each line of input with the seconds per round of one repetition."""
    from export import federated, first_weights
    from jobs import JOBS as ALL
    from simulator import Simulator, make_algorithm, make_task

    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    job = ALL[name]
    simulator = Simulator(make_task(job, federated(job), first_weights(job)), make_algorithm(job), job.sampled)
    for _ in range(2):
        simulator.run(rounds)
    print("ready", file=answers)
    for _ in sys.stdin:
        print(simulator.run(rounds) / rounds, file=answers)


class Checkout:
    """The process of one checkout on one job."""

    def __init__(self, folder: Path, job: str, rounds: int) -> None:
        paths = [folder / part for part in ("src", "benchmarks", "reproduction")]
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "versions.py"), str(folder), "--serve", job, "--rounds", str(rounds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONSAFEPATH": "1"},
        )
        self.answer()

    def answer(self) -> str:
        """Return the next line, or raise where the process has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a checkout ended early, with exit code {self.process.wait()}")
        return line

    def repeat(self) -> float:
        """Return the seconds per round of one repetition."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.answer())

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def compare(folders: list[Path], job: str, rounds: int, repeat: int) -> list[list[float]]:
    """Return the seconds per round of each turn, for each checkout."""
    running: list[Checkout] = []
    try:
        for folder in folders:
            running.append(Checkout(folder, job, rounds))
        return [[one.repeat() for one in running] for _ in range(repeat)]
    finally:
        for one in running:
            one.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--jobs", default=",".join(JOBS), help="comma-separated, from benchmarks/jobs.py")
    parser.add_argument("--rounds", type=int, default=30, help="rounds in one repetition")
    parser.add_argument("--repeat", type=int, default=15, help="turns")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.rounds)
        return
    found = {}
    for job in arguments.jobs.split(","):
        turns = compare([arguments.other.resolve(), HERE.parent], job, arguments.rounds, arguments.repeat)
        ratios = [ours / other for other, ours in turns]
        ours = statistics.median(ours for _, ours in turns)
        found[job] = {"turns": turns, "ratio": statistics.median(ratios)}
        print(
            f"{job:10} {1000 * ours:8.2f} ms per round, {statistics.median(ratios):.3f} "
            f"({min(ratios):.3f}-{max(ratios):.3f}) times the other's",
            flush=True,
        )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
