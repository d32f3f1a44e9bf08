"""Kills every command that writes, with SIGKILL at random moments, and checks that nothing is lost.

    python benchmarks/kill.py                              # all six commands, twenty disturbances each
    python benchmarks/kill.py run compare --times 100 --seed 1

Two processes begin each command on one folder, the second with --overwrite where there is that option: one must finish,
the other must say in one line that the folder is taken. Then the command is disturbed again and again, by a
kill or by a disk where no file may grow beyond a few kilobytes, and continues from what is there; in the end all its
numbers must be those of the undisturbed one. Finally it is killed while it replaces finished results: either all of
the old ones are there, bit for bit, or the new ones, or a run that says what it is. All processes are forks of one that
has imported everything, so most of the time goes into what is tested.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from losac_reproduction import STUDIES, Findings, Job, ResultTable, Study

LARGEST = 2_000
"""Bytes of a file on a full disk: enough for a table that has just begun, not for a checkpoint or a picture."""
SMALL = ["--clients", "6", "--clients-per-round", "3", "--local-steps", "2", "--blocks", "2"]
_ROUNDS = [*SMALL, "--rounds", "600", "--eval-every", "10"]
_FORKS = get_context("forkserver")
_LOADED = [
    "losac.cli.app", "losac.runs", "losac.tuning", "losac.report", "losac.attacks", "orbax.checkpoint", "pandas",
    "matplotlib.figure", "pyarrow.parquet",
]  # fmt: skip


class Command(NamedTuple):
    """How a command begins, continues and replaces what is there; which files it writes at once; what it found."""

    begin: list[str]
    resume: list[str]
    overwrite: list[str]
    together: tuple[str, ...]
    found: Callable[[Path], Any]


class Ended(NamedTuple):
    """How a process ended, and what it said."""

    code: int
    said: str


def square(number: int) -> dict[str, int]:
    """Measure something, in a tenth of a second."""
    time.sleep(0.1)
    return {"square": number**2}


def _squares(*_: Any) -> list[Job]:
    return [Job(square, {"number": number}, f"square of {number}") for number in range(8)]


def _conclude(frame: Any, _: Any) -> Findings:
    rows = frame[["number", "value"]].values.tolist()
    return Findings("Squares.", (), [ResultTable("squares", "Squares", ("x", "x²"), rows)])


def _act(arguments: list[str], output: str, full: bool) -> None:
    """Be a command; on a full disk, if that is asked for."""
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    STUDIES["squares"] = Study("squares", "Squares", _squares, _conclude)
    if full:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, resource.RLIM_INFINITY))
    sys.argv = ["losac", *arguments]
    from losac.cli import main

    main()


class Processes:
    """Starts commands; ``place`` is a folder for what they say."""

    def __init__(self, place: Path) -> None:
        self.place, self.started = place, 0

    def start(self, arguments: list[str], *, full: bool = False) -> tuple[Any, Path]:
        """Begin a command in a separate process."""
        self.started += 1
        output = self.place / f"{self.started}.txt"
        process = _FORKS.Process(target=_act, args=(arguments, str(output), full))
        process.start()
        return process, output

    def run(self, arguments: list[str], *, full: bool = False, until: float | None = None) -> Ended:
        """Let a command run to its end, or kill it after some seconds."""
        process, output = self.start(arguments, full=full)
        process.join(until)
        process.kill()
        return ended(process, output)


def ended(process: Any, output: Path) -> Ended:
    """Wait for the end of a process, which must never show a traceback."""
    process.join()
    said = output.read_text() if output.exists() else ""
    assert "Traceback" not in said, said
    assert "should not happen" not in said, said
    return Ended(process.exitcode, said)


@contextmanager
def forks(cache: Path) -> Iterator[None]:
    """Keep compiled programs in a folder, and have everything imported before the first command."""
    chosen = {"LOSAC_CACHE": str(cache), "LOSAC_PROGRAMS": "on"}
    before = {name: os.environ.get(name) for name in chosen}
    os.environ |= chosen
    _FORKS.set_forkserver_preload([*_LOADED, __name__] if __name__ != "__main__" else _LOADED)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def commands(finished: Path) -> dict[str, Command]:
    """Return the six commands, each with ``{}`` for its folder; ``finished`` is a run to report."""
    run = ["run", *_ROUNDS, "--checkpoint-seconds", "0.1", "--quiet", "--out", "{}"]
    compare = ["compare", "losac", "scaffold:server_step=2", *_ROUNDS, "--seeds", "0", "--quiet", "--out", "{}"]
    tune = ["tune", "losac", *SMALL, "--rounds", "40", "--space", "step_size=1e-4,1e-3", "--no-widen", "--quiet",
            "--out", "{}"]  # fmt: skip
    attack = ["attack", "run", "--rounds", "1", "--clients", "2", "--samples", "2", "--victims", "1", "--attacks",
              "rowspace", "--printed", "paper", "--steps", "20", "--quiet", "--out", "{}"]  # fmt: skip
    report = ["report", str(finished), "--quiet", "--out", "{}/page.html"]
    reproduce = ["reproduce", "squares", "--jobs", "1", "--quiet", "--out", "{}"]
    tuned = ("best.toml", "config.json", "trials.csv", "tuning.png", "tuning.svg")
    attacked = ("audit.json", "config.json", "pictures.png")

    def over(arguments: list[str]) -> list[str]:
        return [*arguments, "--overwrite"]

    def again(name: str) -> list[str]:
        return [name, "--out", "{}", "--resume", "--quiet"]

    return {
        "run": Command(run, again("run"), [*over(run), "--seed", "1"], (), runs),
        "compare": Command(compare, again("compare"), [*over(compare), "--step-size", "1e-4"], (), runs),
        "tune": Command(tune, tune, [*over(tune), "--seeds", "1"], tuned, tuned_settings),
        "attack": Command(attack, attack, [*over(attack), "--seed", "1"], attacked, audited),
        "report": Command(report, report, [*report, "--title", "Another"], ("page.html",), pages),
        "reproduce": Command(reproduce, reproduce, [*reproduce, "--seeds", "1"], (), measured),
    }  # fmt: skip


def runs(folder: Path) -> Any:
    """All numbers of all runs but the times, and their models."""
    import losac

    found = [run.folder for run in losac.runs.find_runs(folder)]
    return {str(path.relative_to(folder)): _numbers(losac.History.load(path / "history.npz")) for path in found}


def _numbers(history: Any) -> str:
    import jax

    table = history.to_frame().drop(columns="seconds").to_csv()
    return table + str([leaf.tolist() for leaf in jax.tree.leaves(history.params)])


def tuned_settings(folder: Path) -> Any:
    """What the search found."""
    return tomllib.loads((folder / "best.toml").read_text())


def audited(folder: Path) -> Any:
    """What the attack found."""
    return json.loads((folder / "audit.json").read_text())


def pages(folder: Path) -> Any:
    """The page without what changes with every writing; it must be whole."""
    text = (folder / "page.html").read_text()
    assert text.rstrip().endswith("</html>"), text[-100:]
    return len(text) > 1000


def measured(folder: Path) -> Any:
    """What every job found."""
    assert json.loads((folder / "squares" / "results.json").read_text())["summary"]
    return gzip.decompress((folder / "squares" / "results.csv.gz").read_bytes())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, except locks and what is still being written."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if not _unfinished(path, folder)}


def _unfinished(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") or ".orbax-checkpoint-tmp" in part for part in path.relative_to(folder).parts)


def said_in(arguments: list[str], folder: Path) -> list[str]:
    """Return a command line with its folder."""
    return [part.replace("{}", str(folder)) for part in arguments]


def begun_twice(processes: Processes, name: str, command: Command, folder: Path) -> None:
    """Let two processes begin at the same time: one finishes, and the other says why it does not."""
    folder.mkdir()
    second = [*command.begin, "--overwrite"] if "--overwrite" in command.overwrite else command.begin
    both = [processes.start(said_in(arguments, folder)) for arguments in (command.begin, second)]
    ends = sorted(ended(*each) for each in both)
    if name == "report":
        assert [end.code for end in ends] == [0, 0], ends
    else:
        assert [end.code for end in ends] == [0, 2], ends
        assert "another run writes into" in ends[1].said, ends
        assert len(ends[1].said.strip().splitlines()) == 1, ends


def timed(processes: Processes, command: Command, folder: Path) -> float:
    """Return how long an undisturbed command takes once its programs are compiled."""
    folder.mkdir()
    began = time.perf_counter()
    end = processes.run(said_in(command.begin, folder))
    assert end.code == 0, end
    return time.perf_counter() - began


def disturbed(processes: Processes, command: Command, folder: Path, moments: list[float]) -> list[str]:
    """Disturb a command at some moments of its way; at a negative one, by a full disk. Return what became of it."""
    story, arguments = [], command.begin
    folder.mkdir()
    for moment in [*moments, None]:
        before = saved(command, folder)
        full = moment is not None and moment < 0
        end = processes.run(said_in(arguments, folder), full=full, until=None if full else moment)
        if end.code == 2 and "there is nothing to resume" in end.said:
            assert not contents(folder), contents(folder).keys()
            story.append("nothing to resume")
            end = processes.run(said_in(command.begin, folder), full=full, until=None if full else moment)
        if end.code == 2 and "is not empty" in end.said:
            assert saved(command, folder) is not None
            end = Ended(0, end.said)
        assert end.code in ((0, 2) if full else (0,) if moment is None else (0, -9)), end
        if before is not None:
            now = saved(command, folder) or {}
            lost = [path for path, content in before.items() if now.get(path) != content]
            assert not lost, lost
        story.append(f"{'full disk' if full else 'end' if moment is None else f'{moment:.2f} s'}: {end.code}")
        arguments = command.resume
    return story


def saved(command: Command, folder: Path) -> dict[str, bytes] | None:
    """Return the files that are there and must stay: all that appear together, or none of them; results of jobs."""
    there = contents(folder)
    together = [name for name in command.together if name in there]
    assert len(together) in (0, len(command.together)), together
    kept = {name: there[name] for name in together} if command.found is not pages else {}
    kept |= {name: content for name, content in there.items() if name.startswith("jobs/") and _is_json(content)}
    return kept or None


def _is_json(content: bytes) -> bool:
    try:
        return json.loads(content) is not None
    except ValueError:
        raise AssertionError("a stored result was cut off") from None


def replaced(processes: Processes, command: Command, old: Path, folder: Path, moment: float) -> str:
    """Kill a command that replaces finished results; return which of them are there."""
    shutil.copytree(old, folder)
    before = contents(folder)
    end = processes.run(said_in(command.overwrite, folder), until=moment)
    assert end.code in (0, -9), end
    now = contents(folder)
    if now == before:
        return "old"
    if command.together:
        saved(command, folder)
    elif "experiment.toml" in now:
        assert now["experiment.toml"] != before["experiment.toml"], "a part of the old run is left as if it were one"
    return "new" if end.code == 0 else "new, not finished"


def check(processes: Processes, name: str, command: Command, place: Path, times: int, replacing: int) -> Iterator[str]:
    """Check one command; yield what happened."""
    began = time.perf_counter()
    begun_twice(processes, name, command, place / "whole")
    took = (time.perf_counter() - began) / 2
    whole = command.found(place / "whole")
    if times > 5:
        took = timed(processes, command, place / "again")
        assert command.found(place / "again") == whole, f"{name}: two undisturbed ones differ"
    yield f"{name}: of two writers one finished; alone it takes about {took:.1f} s"
    moments = [random.uniform(0.05, took) if at % 3 != 1 else -1.0 for at in range(times)]
    for first in range(0, times, 5):
        folder = place / f"disturbed{first}"
        story = disturbed(processes, command, folder, moments[first : first + 5])
        assert command.found(folder) == whole, f"{name}: not the numbers of the undisturbed one"
        yield f"{name}: {', '.join(story)}; equal"
    for at in range(replacing):
        moment = random.uniform(0.05, took)
        state = replaced(processes, command, place / "whole", place / f"replaced{at}", moment)
        yield f"{name}: replacing, killed after {moment:.2f} s: {state}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["run", "compare", "tune", "attack", "report", "reproduce"]
    parser.add_argument("commands", nargs="*", help=f"of {', '.join(names)}; all of them by default")
    parser.add_argument("--times", type=int, default=20, help="disturbances of each command")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    random.seed(chosen.seed)
    with tempfile.TemporaryDirectory() as root, forks(Path(root) / "cache"):
        processes, finished = Processes(Path(root)), Path(root) / "finished"
        known = commands(finished)
        processes.run(said_in(known["run"].begin, finished))
        for name in chosen.commands or names:
            (place := Path(root) / name).mkdir()
            for line in check(processes, name, known[name], place, chosen.times, max(chosen.times // 4, 1)):
                print(line, flush=True)


if __name__ == "__main__":
    main()
