"""The folder of a command's results: who holds it is not disturbed, what lies in it is not lost, what began goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tomllib

import pandas as pd
import pytest

from commands import losac, refused
from losac._claim import FolderError, claimed
from losac._files import is_locked, locked, write_whole
from losac.experiment.file import parse, run_request
from losac.experiment.options import Experiment
from losac.runs import open_run

SMALL = ["--rounds", "2", "--clients", "4", "--clients-per-round", "2", "--local-steps", "2", "--blocks", "2"]
ATTACK = ["--rounds", "1", "--clients", "2", "--samples", "2", "--victims", "1", "--attacks", "rowspace"]
COMMANDS = {
    "run": ["run", *SMALL],
    "compare": ["compare", "losac", *SMALL, "--seeds", "0"],
    "tune": ["tune", "losac", *SMALL, "--space", "step_size=1e-4", "--no-widen"],
    "attack": ["attack", "run", *ATTACK, "--printed", "rowspace", "--steps", "1"],
    "reproduce": ["reproduce", "fair", "--quick"],
    "attack report": ["attack", "report", "--quick"],
}


def contents(folder):
    """Every file below a folder, with what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert losac("run", *SMALL, "--out", str(folder)).exit_code == 0
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_folder_that_a_process_holds_is_left_as_it_is(name, finished):
    before = contents(finished)
    options = [[]] if name in ("reproduce", "attack report") else [[], ["--overwrite"]]
    options += [["--resume"]] if name in ("run", "compare") else []
    with locked(finished):
        for more in options:
            said = refused(*COMMANDS[name], *more, "--out", str(finished))
            assert "another run writes into" in said or "nothing to resume" in said or "single run" in said
    assert contents(finished) == before


def test_init_leaves_the_experiments_of_runs_alone(finished, tmp_path):
    """Of a finished run, and of one that is about to begin in a locked folder: neither could be resumed."""
    before = contents(finished)
    assert "belongs to the run" in refused("init", str(finished / "experiment.toml"), "--overwrite")
    assert contents(finished) == before
    path = tmp_path / "experiment.toml"
    assert losac("init", str(path)).exit_code == 0
    assert losac("init", str(path), "--overwrite").exit_code == 0
    text = path.read_text()
    with locked(tmp_path):
        assert "belongs to the run" in refused("init", str(path), "--overwrite", "--data", "mnist")
    assert path.read_text() == text


@pytest.mark.parametrize("name", ["compare", "run"])
def test_runs_of_a_comparison_are_left_to_whoever_holds_them(name, tmp_path):
    """A comparison over a live run in its folder, and a run in the folder of a live comparison."""
    out = tmp_path / "compared"
    assert losac(*COMMANDS["compare"], "--out", str(out)).exit_code == 0
    before, inside = contents(out), out / "runs" / "losac-seed0"
    with locked(inside if name == "compare" else out):
        said = refused(*COMMANDS[name], "--overwrite", "--out", str(out if name == "compare" else inside))
    assert "writes into" in said
    assert contents(out) == before


@pytest.mark.parametrize("name", ["run", "compare", "tune", "attack", "reproduce"])
def test_nothing_is_put_among_the_runs_of_a_live_comparison(name, tmp_path):
    """Its page would show them as its own."""
    (tmp_path / "runs").mkdir()
    with locked(tmp_path):
        assert "another command writes into" in refused(*COMMANDS[name], "--out", str(tmp_path / "runs"))
    assert [path.name for path in tmp_path.rglob("*")] in (["runs", "lock"], ["lock", "runs"])


@pytest.mark.parametrize("name", ["run", "compare", "tune", "attack"])
def test_an_error_leaves_what_was_there_and_nothing_new(name, finished, tmp_path):
    before = contents(finished)
    bad = {"attack": ["--victims", "9"], "tune": ["--search", "gird"]}.get(name, ["--clients-per-round", "9"])
    refused(*COMMANDS[name], *bad, "--overwrite", "--out", str(finished))
    assert contents(finished) == before
    refused(*COMMANDS[name], *bad, "--out", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    refused(*COMMANDS[name], "--out", str(finished))
    assert contents(finished) == before


@pytest.mark.parametrize("name", ["tune", "attack"])
def test_results_are_replaced_whole_or_not_at_all(name, finished, tmp_path, monkeypatch):
    """A full disk while the results are written: the old ones stay; the new ones replace all of them at once."""
    import shutil

    folder = tmp_path / "results"
    shutil.copytree(finished, folder)
    before = contents(folder)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(f"losac.cli.{name}.save_config", full)
        assert "no space left on device" in refused(*COMMANDS[name], "--quiet", "--overwrite", "--out", str(folder))
    assert contents(folder) == before
    assert losac(*COMMANDS[name], "--quiet", "--overwrite", "--out", str(folder)).exit_code == 0
    expected = {
        "tune": {"trials.csv", "tuning.png", "tuning.svg", "best.toml", "config.json"},
        "attack": {"audit.json", "config.json", "pictures.png"},
    }
    assert set(contents(folder)) == {*expected[name], "lock"}


def test_files_that_a_killed_process_was_moving_are_moved_by_the_next(tmp_path):
    with claimed(tmp_path) as claim, claim.staged() as new:
        (new / "a.txt").write_text("new")
        (new / "b.txt").write_text("new")
    assert contents(tmp_path) == {"a.txt": b"new", "b.txt": b"new", "lock": b""}
    ready = tmp_path / ".ready"
    ready.mkdir()
    (ready / "b.txt").write_text("newer")
    (tmp_path / ".new").mkdir()
    (tmp_path / ".new" / "b.txt").write_text("cut o")
    with claimed(tmp_path) as claim:
        assert not claim.empty
    assert contents(tmp_path) == {"a.txt": b"new", "b.txt": b"newer", "lock": b""}


@pytest.mark.parametrize("command", ["run", "compare"])
def test_where_nothing_is_there_is_nothing_to_resume(command, tmp_path):
    """Without a word it trained the default algorithm for 200 rounds."""
    for folder in (tmp_path / "nowhere", tmp_path / "empty", tmp_path / "locked", tmp_path / "other"):
        if folder.name != "nowhere":
            folder.mkdir()
    (tmp_path / "locked" / "lock").touch()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    for folder in ("nowhere", "empty", "locked", "other"):
        said = refused(command, "--out", str(tmp_path / folder), "--resume")
        assert f"there is nothing to resume in {tmp_path / folder}" in said
        refused(command, *COMMANDS[command][1:], "--out", str(tmp_path / folder), "--resume")
    assert contents(tmp_path) == before
    assert not (tmp_path / "nowhere").exists()


def test_runs_and_comparisons_are_not_taken_for_each_other(finished, tmp_path):
    assert "losac run --out" in refused("compare", "--out", str(finished), "--resume")
    out = tmp_path / "compared"
    assert losac(*COMMANDS["compare"], "--out", str(out)).exit_code == 0
    assert "is of a comparison" in refused("run", "--out", str(out), "--resume")
    assert "is of a comparison" in refused("run", str(out / "experiment.toml"))


AT_THE_FIRST_HEAVY_IMPORT = """
import builtins, os, signal, sys
real = builtins.__import__
def imported(name, *rest, **more):
    if name.split(".")[0] in ("jax", "numpy", "pydantic", "matplotlib"):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(name, *rest, **more)
builtins.__import__ = imported
from losac.cli import main
main()
"""


def killed_at_start(*arguments):
    done = subprocess.run([sys.executable, "-c", AT_THE_FIRST_HEAVY_IMPORT, *arguments], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def numbers(folder):
    return pd.read_csv(folder / "metrics.csv").drop(columns="seconds")


def test_a_run_that_is_killed_before_anything_is_imported_goes_on(tmp_path):
    """By ``losac run --out DIR --resume`` alone, and as what it was."""
    asked = ["run", *SMALL, "--algorithm", "scaffold:server_step=3", "--seed", "4", "--target", "0.5"]
    killed_at_start(*asked, "--out", str(tmp_path / "run"))
    assert not is_locked(tmp_path / "run")
    assert losac("run", "--out", str(tmp_path / "run"), "--resume").exit_code == 0
    assert losac(*asked, "--out", str(tmp_path / "whole")).exit_code == 0
    assert numbers(tmp_path / "run").equals(numbers(tmp_path / "whole"))
    assert open_run(tmp_path / "run").experiment == open_run(tmp_path / "whole").experiment


def test_a_comparison_that_is_killed_before_anything_is_imported_goes_on(tmp_path):
    asked = ["compare", "scaffold:server_step=3", "losac", *SMALL, "--set", "server_step=2", "--seeds", "4,7"]
    killed_at_start(*asked, "--target", "0.5", "--out", str(tmp_path / "part"))
    continued = losac("compare", "--out", str(tmp_path / "part"), "--resume")
    assert continued.exit_code == 0, continued.stderr
    assert losac(*asked, "--target", "0.5", "--out", str(tmp_path / "whole")).exit_code == 0
    names = sorted(path.name for path in (tmp_path / "whole" / "runs").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "part" / "runs").iterdir())
    for name in names:
        part, whole = (open_run(tmp_path / each / "runs" / name) for each in ("part", "whole"))
        assert numbers(part.folder).equals(numbers(whole.folder))
        assert part.experiment == whole.experiment


@pytest.mark.parametrize(
    ("content", "options", "algorithm"),
    [
        ("", {}, "losac"),
        ("", {"step_size": 1e-5, "set_": ["correction=0.5"], "scaling": "exact"}, "losac"),
        ("", {"batch_size": 8, "epochs": 2}, "fedavg"),
        ("", {"batch_size": 8}, "fedavg:blocks=3,server_step=2"),
        ("", {"set_": ["local_optimizer=adam", "clip_norm=none"]}, "fedavg"),
        ("", {"data": "har", "clients": 7, "rounds": 3, "dtype": "float64", "reduction": "mean"}, "dsgd"),
        ("[algorithm]\nname = 'fedavg'\nbatch_size = 8\nepochs = 2", {"blocks": 3}, None),
        (
            "[algorithm]\nname = 'scaffold'\nblocks = 3\n[simulation]\nrounds = 7",
            {"step_size": 1e-5, "rounds": 9},
            None,
        ),
        ("[algorithm]\nname = 'scaffold'\nblocks = 3", {"set_": ["server_step=2"]}, "fedavg"),
        ("[problem]\ndata = 'mnist'\n[algorithm]\nblocks = 3", {"local_steps": 7}, None),
        ("[tuned]\nscore = 0.5", {}, None),
    ],
)
def test_what_was_asked_for_reads_back_as_it_was_meant(content, options, algorithm):
    """The file that is written before any check stands for the command line and its file."""
    content = tomllib.loads(content)
    given = {*options, *(["algorithm"] if algorithm else [])}
    experiment = Experiment(**options)
    said = parse(content, "experiment.toml")
    filled = said.fill(experiment, given)
    if algorithm or said.algorithm is None:
        (meant,) = filled.build_algorithms([algorithm or "losac"])
    else:
        meant = said.build_algorithm(filled)
    asked = parse(tomllib.loads(run_request(experiment, content, given, algorithm or "losac")), "asked")
    read = asked.fill(Experiment(), set())
    assert asked.build_algorithm(read).settings() == meant.settings()
    names = ("data", "model", "clients", "partition", "reduction", "rounds", "eval_every", "dtype", "clients_per_round")
    assert [getattr(read, name) for name in names] == [getattr(filled, name) for name in names]


def test_a_run_takes_all_options_of_a_simulation(monkeypatch):
    """An option that is added to experiments reaches ``losac run`` as it reaches ``losac compare``."""
    heard = {}

    def simulate(task, method, *, progress, seed, **options):
        heard.update(options)
        raise KeyboardInterrupt

    usual = Experiment.simulation
    monkeypatch.setattr(Experiment, "simulation", lambda self, data: usual(self, data) | {"sampling": "by turns"})
    monkeypatch.setattr("losac.simulate", simulate)
    assert losac("run", *SMALL).exit_code == 130
    assert heard["sampling"] == "by turns"


def test_entries_whose_runs_would_share_a_folder_are_refused(tmp_path):
    entries = ["losac:scaling=exact,correction=1e+3", "losac:scaling=exact,correction=1e-3"]
    assert "would share the folder" in refused("compare", *entries, *SMALL, "--out", str(tmp_path / "new"))


def test_two_processes_that_write_the_same_file_leave_one_of_both_whole(tmp_path):
    """No lock guards the page of ``losac report``."""
    code = (
        "import sys; from pathlib import Path; from losac._files import write_whole\n"
        "for _ in range(200): write_whole(Path(sys.argv[1]), sys.argv[2] * 50_000)"
    )
    page = tmp_path / "page.html"
    writers = [subprocess.Popen([sys.executable, "-c", code, str(page), letter]) for letter in "abc"]
    while any(writer.poll() is None for writer in writers):
        if page.exists():
            text = page.read_text()
            assert len(text) == 50_000
            assert len(set(text)) == 1
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_a_page_that_cannot_be_written_leaves_the_one_before(finished, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    page.write_text('<meta name="generator" content="losac">the page before')
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert "no space left" in refused("report", str(finished), "--out", str(page))
    assert contents(tmp_path) == {"page.html": b'<meta name="generator" content="losac">the page before'}
    assert losac("report", str(finished), "--out", str(page)).exit_code == 0


def test_who_looks_at_a_folder_does_not_keep_a_run_from_it(tmp_path):
    """To see whether a folder is locked takes its lock for a moment."""
    import fcntl
    import threading

    (tmp_path / "lock").touch()
    with open(tmp_path / "lock") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.1, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        with claimed(tmp_path):
            pass
    with locked(tmp_path), pytest.raises(FolderError, match="another run writes into"), claimed(tmp_path):
        pass


def test_a_link_to_a_page_stays_a_link(tmp_path):
    (tmp_path / "there.html").write_text("old")
    os.symlink(tmp_path / "there.html", tmp_path / "link.html")
    write_whole(tmp_path / "link.html", "new")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "there.html").read_text() == "new"


LATE = {
    "too many blocks": ["--blocks", "9999"],
    "one client of TAMUNA": ["--algorithm", "tamuna", "--clients-per-round", "1"],
    "more steps than a number holds": ["--set", "local_steps=99999999999"],
}


@pytest.mark.parametrize("name", LATE)
def test_a_run_that_is_refused_late_replaces_nothing(name, finished):
    """Only the program's shape shows these: by then the results were gone."""
    before = contents(finished)
    refused("run", *SMALL[:6], *LATE[name], "--overwrite", "--out", str(finished))
    assert contents(finished) == before


@pytest.mark.parametrize("purpose", ["--overwrite", "--resume"])
def test_a_comparison_that_is_refused_late_replaces_nothing(purpose, tmp_path):
    """A refused --resume wrote its own experiment, so that a plain --resume was refused too."""
    out = str(tmp_path / "compared")
    assert losac(*COMMANDS["compare"], "--out", out).exit_code == 0
    before = contents(tmp_path)
    for late in (["fedavg", "losac", "--blocks", "9999"], ["tamuna", "--clients-per-round", "1"]):
        refused("compare", *late, *SMALL[:4], purpose, "--out", out)
        assert contents(tmp_path) == before
    if purpose == "--resume":
        for changed in (["--step-size", "0.7"], ["--local-steps", "3"], ["--rounds", "1"]):
            refused("compare", *changed, purpose, "--out", out)
            assert contents(tmp_path) == before
        assert losac("compare", purpose, "--out", out).exit_code == 0


def test_old_results_stay_until_the_new_run_gets_going(tmp_path):
    """Set aside, they come back after an error, and after a kill while they were moved, either way."""
    results = ("experiment.toml", "a.txt", "runs/*-seed*")
    (tmp_path / "runs" / "x-seed0").mkdir(parents=True)
    (tmp_path / "runs" / "mine").mkdir()
    for name in ("experiment.toml", "a.txt", "runs/x-seed0/b.txt", "runs/mine/c.txt", "notes.txt"):
        (tmp_path / name).write_text(f"old {name}")
    before = contents(tmp_path)

    def start(claim):
        claim.begin("new")
        (tmp_path / "runs" / "y-seed1").mkdir()
        (tmp_path / "a.txt").write_text("new")
        assert not (tmp_path / "runs" / "x-seed0").exists()

    with contextlib.suppress(RuntimeError), claimed(tmp_path, results) as claim:
        start(claim)
        raise RuntimeError
    assert contents(tmp_path) == before
    with claimed(tmp_path, results) as claim:
        start(claim)
        killed = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert contents(tmp_path) == before
    for path, content in killed.items():  # killed after the new run began: that is the one to resume
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    for name in ("a.txt", "runs/x-seed0/b.txt"):
        moved = tmp_path / name
        moved.rename(tmp_path / ".old" / name) if "x-seed0" in name else None
    with claimed(tmp_path, results) as claim:
        assert (tmp_path / "experiment.toml").read_text() == "new"
        assert (tmp_path / ".old" / "a.txt").read_text() == "old a.txt"
        claim.begin("newer")
        claim.settle()
    assert (tmp_path / "experiment.toml").read_text() == "newer"
    assert set(contents(tmp_path)) == {"experiment.toml", "runs/mine/c.txt", "notes.txt", "lock"}


def test_results_that_were_being_put_back_are_put_back_by_the_next(tmp_path):
    old = tmp_path / ".old"
    old.mkdir()
    (old / "experiment.toml").write_text("old")
    (old / "log.txt").write_text("old")
    (tmp_path / "run.json").write_text("new")
    with claimed(tmp_path):
        pass
    assert contents(tmp_path) == {"experiment.toml": b"old", "log.txt": b"old"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("local_steps = 2", "local_steps = 3", "local_steps = 2"),
        ("seed = 0", "seed = 3", "seed = 0"),
        ("clients = 4", "clients = 5", "clients = 4"),
        ("clients_per_round = 2", "clients_per_round = 3", "clients_per_round = 2"),
    ],
    ids=["local steps", "seed", "clients", "clients per round"],
)
def test_an_experiment_changed_by_hand_does_not_go_on_as_another(old, new, said, finished, tmp_path):
    import shutil

    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "experiment.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    before = contents(tmp_path)
    assert f"was made with {said}" in refused("run", "--out", str(tmp_path / "run"), "--resume", "--rounds", "4")
    assert contents(tmp_path) == before
    path.write_text(text.replace("rounds = 2\n", "rounds = 4\n"))
    assert losac("run", "--out", str(tmp_path / "run"), "--resume").exit_code == 0
    assert open_run(tmp_path / "run").history().rounds[-1] == 4


@pytest.mark.parametrize("name", ["page.html", "picture.png", "picture.svg", "picture.pdf", "page.md"])
def test_a_file_that_was_not_made_by_losac_is_not_replaced(name, finished, tmp_path):
    path = tmp_path / name
    command = {
        ".html": ["report", str(finished), "--out"],
        ".md": ["attack", "algebra", "losac", "--rounds", "1", "--markdown"],
    }.get(path.suffix, ["data", "show", "digits", "--clients", "4", "--out"])
    path.write_text("mine")
    assert "was not made by losac" in refused(*command, str(path))
    assert path.read_text() == "mine"
    assert losac(*command, str(path), "--overwrite").exit_code == 0
    assert losac(*command, str(path)).exit_code == 0
