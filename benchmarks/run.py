"""Times all contenders on the jobs, alternately, and writes docs/speed.md from what was measured.

    python benchmarks/build.py                                    # the contenders' environments, once
    python benchmarks/run.py                                      # everything: about a quarter of an hour on two cores
    python benchmarks/run.py --jobs J1,J2 --contenders losac,torch_loop --quick
    python benchmarks/run.py --docs                               # only the page and the figure, from the results

Every contender is a process in its own environment. All are started, one after the other; then they take turns
(A B C, A B C, …), and only one computes at a time, so a noisy machine disturbs all alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from build import interpreter
from jobs import CONTENDERS, JOBS, Job

HERE = Path(__file__).parent
WORK, RESULTS = HERE / ".work", HERE / "results"
PATIENCE = 900.0
LONG, AT_LEAST = 3.0, 3
"""A contender that takes longer than LONG seconds for a repetition takes part in only AT_LEAST of them."""


class Contender:
    """A process that waits for its turn."""

    def __init__(self, name: str, job_name: str, path: Path) -> None:
        self.name, self.rounds = name, 1
        self.seconds: list[float] = []
        self.idle = 0.0
        self.found: dict[str, Any] = {}
        script, environment, _ = CONTENDERS[name]
        python = interpreter(environment)
        if python is None:
            raise RuntimeError(f"the environment {environment} is not built (python benchmarks/build.py {environment})")
        surroundings = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        if environment == "losac":
            surroundings["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "src"), str(HERE)])
        self.log = WORK / f"{job_name}-{name}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [str(python), str(HERE / "contenders" / script), str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=surroundings,
            )
        self.ready = self._answer()
        self.left = self.cpu_seconds()

    def ask(self, question: str) -> dict[str, Any]:
        """Send one question and wait for the answer."""
        self.idle += self.cpu_seconds() - self.left
        assert self.process.stdin is not None
        self.process.stdin.write(question + "\n")
        self.process.stdin.flush()
        answer = self._answer()
        if question != "end":
            self.left = self.cpu_seconds()
        return answer

    def calibrate(self, target: float, most: int) -> None:
        """Choose the number of rounds of a repetition, and run one of that length that does not count."""
        for trial in (1, 10):
            self.ask(f"run {trial}")
            one = self.ask(f"run {trial}")["seconds"] / trial
            if one > target / 20:
                break
        self.rounds = max(1, min(most, int(target / one)))
        self.warm()

    def get_going(self, job: Job, target: float) -> None:
        """Settle how many rounds a repetition has; Flower starts a simulation for each, and has three."""
        if self.name == "flower":
            self.rounds = 3
        elif job.rounds:
            self.rounds = job.rounds
            if job.rounds != job.check:
                self.warm()
        else:
            self.calibrate(target, 500)

    def warm(self) -> None:
        """Run a repetition that does not count: the first of its length may compile."""
        if self.rounds > 1:
            self.ask(f"run {self.rounds}")

    def repeat(self) -> float:
        """Run one repetition; return its seconds per round."""
        self.seconds.append(self.ask(f"run {self.rounds}")["seconds"] / self.rounds)
        return self.seconds[-1]

    @property
    def tired(self) -> bool:
        """Whether it has taken part often enough for its length."""
        return len(self.seconds) >= AT_LEAST and self.seconds[-1] * self.rounds > LONG

    def end(self) -> dict[str, Any]:
        """Let it go; return what it measured."""
        last = self.ask("end")
        self.process.wait(60)
        timed = {"rounds": self.rounds, "seconds_per_round": self.seconds, "idle_cpu_seconds": self.idle}
        return self.ready | timed | last

    def stop(self) -> None:
        """End the process at once."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def cpu_seconds(self) -> float:
        """Return the processor time it has used."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline() if readable else ""
        if not line:
            self.stop()
            last = [s for s in self.log.read_text(errors="replace").splitlines() if s.strip()][-1:]
            raise RuntimeError(f"{'no answer' if not readable else 'ended early'}: {' '.join(last)[:300]}")
        return json.loads(line)


def measure(name: str, job: Job, chosen: list[str], repetitions: int, target: float) -> dict[str, Any]:
    """Run one job: start the contenders, let them take turns, and judge whether all have learned the same."""
    from export import export

    path = export(name, job, WORK)
    running: dict[str, Contender] = {}
    found: dict[str, Any] = {}

    def attempt(who: str, action: Callable[[], None]) -> None:
        try:
            action()
        except (RuntimeError, OSError) as problem:
            print(f"  {name}: {who} is left out: {problem}", flush=True)
            found[who] = {"failed": _without_paths(str(problem))}
            running.pop(who, None)

    def start(who: str) -> None:
        print(f"  {name}: starting {who}", flush=True)
        running[who] = Contender(who, name, path)
        running[who].get_going(job, target)

    def take_turn(who: str, turn: int) -> None:
        if not running[who].tired:
            per_round = running[who].repeat()
            print(f"  {name}: {turn}/{repetitions} {who:12} {per_round:9.5f} s per round", flush=True)

    try:
        for who in (c for c in job.contenders if c in chosen):
            attempt(who, partial(start, who))
        for turn in range(1, repetitions + 1):
            for who in list(running):
                attempt(who, partial(take_turn, who, turn))
        for who in list(running):
            attempt(who, lambda who=who: found.update({who: running[who].end()}))
    finally:
        for contender in running.values():
            contender.stop()
    judge(found)
    return {"job": name, "title": job.title, "check": job.check, "target_seconds": target, "contenders": found}


def judge(found: dict[str, Any]) -> None:
    """Say of each whether its loss after the check is losac's: to 1e-3, or within what other clients would give.

    Where a contender draws its own clients the yardstick is losac with other seeds: the range of their losses, widened
    by its own width on both sides.
    """
    ours = found.get("losac", {})
    if "loss" not in ours:
        return
    drawn = [ours["loss"], *ours.get("other_seeds", [])]
    width = max(drawn) - min(drawn)
    for one in found.values():
        if "loss" not in one:
            continue
        if one["plan"] == "its own":
            one["agrees"] = bool(min(drawn) - width <= one["loss"] <= max(drawn) + width)
        else:
            one["agrees"] = bool(abs(one["loss"] - ours["loss"]) <= 1e-3 * max(1.0, abs(ours["loss"])))


def machine() -> dict[str, Any]:
    """Return what the numbers depend on."""
    model = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _without_paths(text: str) -> str:
    return text.replace(str(HERE.parent), ".").replace(str(Path.home()), "~")


def chosen_from(listed: str | None, known: dict[str, Any], what: str) -> list[str]:
    """Read a comma-separated list of names."""
    names = listed.split(",") if listed else list(known)
    for name in names:
        if name not in known:
            raise SystemExit(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return names


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", help=f"comma-separated, of {', '.join(JOBS)}")
    parser.add_argument("--contenders", help=f"comma-separated, of {', '.join(CONTENDERS)}")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions (5)")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long a repetition should take (1.5)")
    parser.add_argument("--quick", action="store_true", help="2 repetitions of 0.5 s, without Flower unless named")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--docs", action="store_true", help="measure nothing, write docs/speed.md and its figure again")
    arguments = parser.parse_args()
    if not arguments.docs:
        jobs = chosen_from(arguments.jobs, JOBS, "job")
        chosen = chosen_from(arguments.contenders, CONTENDERS, "contender")
        if arguments.quick and not arguments.contenders:
            chosen.remove("flower")
        repetitions, target = (2, 0.5) if arguments.quick else (arguments.repeat, arguments.seconds)
        arguments.results.mkdir(exist_ok=True)
        for name in jobs:
            began, before = time.time(), machine()
            result = measure(name, JOBS[name], chosen, repetitions, target) | {"machine": before}
            result["wall_seconds"] = round(time.time() - began, 1)
            (arguments.results / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    if arguments.results == RESULTS:
        from page import write_page

        write_page(RESULTS, HERE.parent / "docs")


if __name__ == "__main__":
    sys.exit(main())
