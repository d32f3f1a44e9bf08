"""Every command that writes is killed at random moments, begun twice at once, and given a full disk: nothing is lost.

A few disturbances of each; ``python benchmarks/kill.py`` is the long form.
"""

from __future__ import annotations

import importlib
import random
import sys
import time
from pathlib import Path

import pytest

from paths import ROOT
from run_folders import write_run

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def kill(tmp_path_factory):
    """The benchmark's module, with processes that have everything imported."""
    if sys.platform == "win32":
        pytest.skip("Windows has no SIGKILL and no forks")
    sys.path.insert(0, str(BENCHMARKS))
    try:
        module = importlib.import_module("kill")
        with module.forks(tmp_path_factory.mktemp("cache")):
            yield module
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.parametrize("name", ["run", "compare", "tune", "attack", "report", "reproduce"])
def test_whatever_ends_a_command_nothing_is_lost(kill, name, tmp_path):
    random.seed(name)
    write_run(tmp_path / "finished")
    command = kill.commands(tmp_path / "finished")[name]
    done = list(kill.check(kill.Processes(tmp_path), name, command, tmp_path, times=2, replacing=1))
    assert len(done) == 3


@pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux lists processes in /proc")
def test_the_workers_of_a_killed_reproduce_end_with_it(kill, tmp_path):
    """They waited for jobs forever."""
    arguments = ["reproduce", "squares", "--jobs", "2", "--quiet", "--out", str(tmp_path / "out")]
    process, _ = kill.Processes(tmp_path).start(arguments)
    while not list((tmp_path / "out" / "jobs").glob("*.json")):
        assert process.is_alive()
        time.sleep(0.01)
    workers = children(process.pid)
    process.kill()
    process.join()
    assert workers
    last = time.monotonic() + 20
    while any(Path(f"/proc/{worker}/cmdline").exists() for worker in workers):
        assert time.monotonic() < last, "orphans"
        time.sleep(0.05)


def children(parent):
    """The processes that a process has started."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = status.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == parent:
            found.append(int(status.parent.name))
    return found
