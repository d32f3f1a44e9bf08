"""Jobs in processes of this machine, what travels to them, and the commands that use them."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

import losac
from commands import losac as command
from commands import refused
from errands import check, errands
from losac.jobs import JobCall, JobsFailedError, Workers, open_engine
from losac.jobs.travel import Sender, pack, sender, serve, unpack
from losac.tuning import members

SMALL = ("--clients", "4", "--rounds", "2")
MINE = """
import neighbour
import losac

def net(inputs, classes):
    return losac.models.Dense((inputs, neighbour.WIDTH, classes))
"""


@pytest.mark.quick
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"on": "rai"}, "did you mean 'ray'"),
        ({"on": "ray"}, "needs the address"),
        ({"on": "ray", "address": "there"}, "must be auto, HOST:PORT"),
        ({"address": "auto"}, "is for on='ray'"),
        ({"on": "ray", "address": "auto", "slurm": ("mem=8G",)}, "is for on='slurm'"),
        ({"on": "slurm", "slurm": ("partition",)}, "must be NAME=VALUE"),
        ({"cpus": 2}, "is for on='ray' and 'slurm'"),
        ({"jobs": 0}, "at least 1"),
    ],
)
def test_wrong_workers_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        Workers(**options)


def test_the_commands_refuse_wrong_workers_before_anything_else(tmp_path):
    for name in (["compare"], ["tune", "fedavg"], ["bench", "run", "niid_mnist"], ["reproduce", "lemma1"]):
        assert "needs the address" in refused(*name, "--on", "ray", "--out", str(tmp_path / "out"))
    assert not list(tmp_path.iterdir())


def test_processes_return_results_logs_and_errors_and_a_killed_one_costs_one_try(tmp_path):
    before = dict(os.environ)
    with open_engine(Workers(jobs=2)) as engine:
        check(list(engine.run(errands(tmp_path))), tmp_path)
        (again,) = engine.run([JobCall("one more", pow, {"base": 2, "exp": 3})])
    assert again.result == 8
    assert dict(os.environ) == before


def test_a_job_that_cannot_be_sent_or_read_is_named(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))  # a worker takes over the sender's settings
    with pytest.raises(ValueError, match=r"^mine cannot be sent to another process: TypeError.*generator"):
        pack((i for i in range(3)), "mine")
    reply = serve(sender(1), pack((iter, {}), "broken"), {})
    assert reply.error is not None
    assert "install the same on all machines" in serve(Sender("0", "3", (), {}), b"", {}).error
    os.environ["LOSAC_DATA_DIR"] = "/nowhere/at/all"
    assert "on a disk that all machines share" in serve(sender(1), b"", {}, True).error
    assert serve(sender(1), pack((dict, {}), "nothing to read"), {}).error is None
    assert "2 of 3 jobs failed (a: KeyError: 'x', and 1 more)" in str(
        JobsFailedError({"a": KeyError("x"), "b": KeyError("y")}, 3)
    )


def test_mapped_arrays_travel_as_the_path_of_their_file(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(200_000.0))
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    content = pack({"all": x, "part": x[10:20], "steps": x[::2][:3]}, "data")
    assert len(content) < 5_000
    found = unpack(content)
    assert isinstance(found["all"], np.memmap)
    assert [float(found[name][1]) for name in found] == [1.0, 11.0, 2.0]
    (tmp_path / "x.npy").unlink()
    with pytest.raises(ValueError, match=r"x\.npy is not on this machine.* on a disk that all machines share"):
        unpack(content)


def test_own_code_and_data_travel_to_processes_and_what_has_ended_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "neighbour.py").write_text("WIDTH = 2\n")
    rows = "".join(f"{i % 7},{i % 3},{'ab'[i % 2]}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"u,v,y\n{rows}")
    own = ["--data", "rows.csv", "--partition", "iid", "--model", "mine.py:net", "--jobs", "2", "--out", "out"]
    result = command("compare", "fedavg:step_size=0.01", *SMALL, "--seeds", "0", *own)
    assert result.exit_code == 0, result.output
    assert "1 of 1" in result.stderr
    first = tmp_path / "out" / "runs" / "fedavg-step_size-0.01-seed0" / "history.npz"
    before = first.stat().st_mtime_ns
    more = command("compare", "--out", "out", "--resume", "--seeds", "0,1", "--jobs", "2")
    assert more.exit_code == 0, more.output
    assert more.stderr.count("fedavg(") == 1
    assert "seed 1" in more.stderr
    assert first.stat().st_mtime_ns == before
    del sys.modules["neighbour"]


def test_a_search_in_processes_finds_what_it_finds_here_and_repeats_nothing_that_is_kept(tmp_path, monkeypatch):
    data = losac.data.load("digits", clients=4)
    task = losac.classification(losac.models.softmax_regression(64, 10), data)
    method, space = losac.algorithms.fedavg(step_size=1.0), {"step_size": [1e-4, 1e-3]}
    how = {"rounds": 2, "widen": False, "kept": str(tmp_path / "kept")}
    here = losac.tune(task, method, space, rounds=2, widen=False)
    done = []
    there = losac.tune(task, method, space, on=Workers(jobs=2), progress=lambda *told: done.append(told), **how)
    assert there.best == here.best
    assert np.allclose([t.score for t in there.trials], [t.score for t in here.trials])
    assert sorted(done) == [(1, 2), (2, 2)]
    monkeypatch.setattr(members, "run_members", lambda *_, **__: pytest.fail("a run is repeated"))
    again = losac.tune(task, method, space, **how)
    assert [t.values for t in again.trials] == [t.values for t in there.trials]
    with pytest.raises(pytest.fail.Exception, match="a run is repeated"):
        losac.tune(task, method, space, **how | {"rounds": 3})


def test_a_failure_elsewhere_is_one_line_and_names_the_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("def turns(round_index, rng, history):\n    raise OSError('no turn')\n")
    own = ["--seeds", "0", "--sampling", "broken.py:turns"]
    result = command("compare", "fedavg", *SMALL, *own, "--jobs", "2", "--json")
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.strip().splitlines()
    assert "1 of 1 jobs failed (fedavg(" in line
    assert "no turn" in line
