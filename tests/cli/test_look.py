"""All commands have one look: help, options, exit codes, errors, completion, progress."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from rich.console import Console
from rich.table import Table

from commands import losac
from losac.cli import app, completion, output, progress
from losac.cli.errors import EXIT_CODES
from losac.cli.live import live
from losac.history.live import Pace

HEAVY = ("jax", "numpy", "pandas", "matplotlib", "plotly", "pydantic", "orbax", "sklearn")
NO_RESULTS = {
    "version": "prints one word",
    "init": "prints the path of its file",
    "schema": "prints JSON",
    "board": "serves pages",
}
"""Commands that need no --json, and why."""
SEVERAL_SEEDS = ("attack report", "compare", "reproduce", "tune")


def walk(command, path=()):
    """Yield every command of a tree with its path."""
    if hasattr(command, "commands"):
        for name in command.commands:
            yield from walk(command.get_command(None, name), (*path, name))
    else:
        yield " ".join(path), command


COMMANDS = dict(walk(typer.main.get_command(app)))
every_command = pytest.mark.parametrize("path", COMMANDS)


def options(path):
    return {name for parameter in COMMANDS[path].params for name in parameter.opts if name.startswith("-")}


def examples(path):
    return re.findall(r"losac [^&>\n]*", COMMANDS[path].epilog or "")


@every_command
@pytest.mark.quick
def test_help_says_what_a_command_does_and_how_it_is_called(path):
    purpose = COMMANDS[path].help.split("\n\n")[0]
    assert purpose[0].isupper()
    assert purpose.endswith(".")
    if path != "version":
        assert any(line.startswith(f"losac {path}") for line in examples(path))


@every_command
@pytest.mark.quick
def test_every_option_is_explained(path):
    shown = re.sub(r"[│\s]+", " ", losac(*path.split(), "--help").stdout)
    for parameter in COMMANDS[path].params:
        words = parameter.help or ""
        if "--help" in parameter.opts:
            continue
        assert words, f"{parameter.name} has no help"
        assert re.sub(r"\[/?bold\]", "", words).split()[0] in shown, f"the help of {parameter.name} is not shown"


@every_command
def test_results_come_as_json_and_quietly(path):
    if path not in NO_RESULTS:
        assert options(path) >= {"--json", "--quiet", "-q"}


@every_command
@pytest.mark.quick
def test_the_examples_of_the_help_are_understood(path):
    for example in examples(path):
        words = shlex.split(example)[1:]
        called = next(known for known in COMMANDS if known.split() == words[: len(known.split())])
        COMMANDS[called].make_context(called, words[len(called.split()) :])


@pytest.mark.parametrize("path", SEVERAL_SEEDS)
def test_one_seed_is_a_list_of_one(path):
    parameter = next(each for each in COMMANDS[path].params if each.name == "seeds")
    assert {"--seeds", "--seed"} <= set(parameter.opts)


@pytest.mark.quick
def test_help_of_all_commands_imports_nothing_heavy():
    code = f"""
import contextlib, io, sys
from losac.cli import app
for path in {[path.split() for path in COMMANDS]!r}:
    with contextlib.redirect_stdout(io.StringIO()):
        app([*path, "--help"], standalone_mode=False)
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_exit_codes_are_in_the_help():
    shown = losac("--help").stdout
    for code, meaning in EXIT_CODES.items():
        assert f"{code}: {meaning}" in shown


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["comapre"], "Did you mean 'compare'?"),
        (["data", "lst"], "Did you mean 'list'?"),
        (["xyz"], "There are"),
        (["run", "--rouns", "3"], "'--rounds'"),
        (["attack", "run", "--sede", "3"], "'--seed'"),
    ],
)
def test_a_typo_is_answered_with_what_was_meant(arguments, meant):
    result = losac(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count(meant) == 1


def failing(monkeypatch, error):
    def fail():
        raise error

    monkeypatch.setattr("losac.data.datasets", fail)
    return losac("data", "list")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "losac: interrupted\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
        (ValueError("a value\nis wrong"), 2, "losac: a value is wrong\n"),
        (ImportError("needs x; pip install 'losac[x]'"), 2, "losac: needs x; pip install 'losac[x]'\n"),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            2,
            "losac: no space left on device; free some space, or choose a folder on another disk\n",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/a/b"),
            2,
            "losac: /a/b: permission denied; choose a file or folder that you may use\n",
        ),
        (FileNotFoundError(errno.ENOENT, "No such file", "c"), 2, "losac: c: no such file; check the path\n"),
        (
            MemoryError(),
            1,
            "losac: out of memory; try fewer clients per round, smaller batches or a smaller model\n",
        ),
    ],
)
def test_every_error_is_one_line_and_a_code(monkeypatch, error, code, said):
    result = failing(monkeypatch, error)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", said)


def test_an_interrupt_waits_until_an_import_has_ended(tmp_path):
    (tmp_path / "slow.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ndone = True\n")
    code = """
import signal, time
from losac.__main__ import interrupt
signal.signal(signal.SIGINT, interrupt)
try:
    import slow
    for _ in range(400):
        time.sleep(0.05)
except KeyboardInterrupt:
    print(slow.done)
"""
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_mistake_in_the_program_is_one_line_and_its_traceback_a_file(monkeypatch):
    result = failing(monkeypatch, RuntimeError("boom\nin detail"))
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    (path,) = re.findall(r"its traceback is in (\S+)", result.stderr)
    written = Path(path).read_text()
    Path(path).unlink()
    assert "RuntimeError: boom" in result.stderr
    assert "Traceback" in written
    assert "in detail" in written


@pytest.mark.parametrize("error", [RuntimeError("boom"), ValueError("boom")])
def test_the_traceback_is_shown_where_that_is_asked_for(monkeypatch, error):
    monkeypatch.setenv("LOSAC_DEBUG", "1")
    result = failing(monkeypatch, error)
    assert "Traceback" in result.stderr
    assert "losac: " in result.stderr.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["data", "list"], ["data", "list", "--quiet"], ["data", "list", "--json"]])
def test_a_closed_pipe_is_no_error(arguments):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "losac", *arguments], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_colours_are_for_terminals_and_can_be_switched_off():
    plain = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")}
    for more, coloured in (({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)):
        done = subprocess.run(
            [sys.executable, "-m", "losac", "data", "list", "--wrong"],
            env=plain | more | {"TERM": "xterm-256color"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert bool(re.search(r"\x1b\[(\d+;)*3\dm", done.stderr)) is coloured


def test_data_as_json_and_quietly(tmp_path):
    rows = json.loads(losac("data", "list", "--json").stdout)
    assert losac("data", "list", "--quiet").stdout.split() == [row["name"] for row in rows]
    assert {"name": "digits", "where": "comes with scikit-learn"}.items() <= rows[0].items()
    picture = tmp_path / "new" / "picture.png"
    shown = json.loads(losac("data", "show", "digits", "--clients", "3", "--json", "--out", str(picture)).stdout)
    assert (shown["rows"], sum(shown["rows_per_client"]), len(shown["label_counts"])) == (1438, 1438, 3)
    assert shown["files"] == [str(picture)]
    assert losac("data", "show", "digits", "--quiet", "--out", str(picture)).stdout == f"{picture}\n"
    assert json.loads(losac("data", "download", "digits", "--json").stdout)["path"] is None
    assert "needs no download" in losac("data", "download", "digits").stderr


def test_parts_as_json_and_quietly():
    listed = json.loads(losac("reproduce", "--list", "--json").stdout)
    assert losac("reproduce", "--list", "--quiet").stdout.split() == [each["name"] for each in listed]
    assert "Name the parts to run" in losac("reproduce").stderr


def names(words):
    return [word for word, _ in words]


def test_what_is_completed_is_what_there_is():
    from losac.algorithms import ALGORITHMS
    from losac.attacks import ATTACKS
    from losac.data import datasets
    from losac.data.partition import _FORMS
    from losac.data.sets import SETS
    from losac.data.sources import SOURCES
    from losac.experiment.generate import current_words
    from losac.experiment.options import MODELS
    from losac.experiment.settings import OBJECTS
    from losac.experiment.words import FILE, words
    from losac_reproduction import STUDIES, command
    from losac_reproduction.command import study_names

    for file, current in ((FILE, current_words()), (command.COMPLETIONS, command.current_words())):
        assert words(file) == current, f"{file} is out of date: see losac.experiment.generate"
    assert dict(completion.data_names("")) == datasets()
    assert set(names(completion.download_names(""))) == {*SOURCES, *SETS}
    assert names(completion.algorithm_names("")) == names(completion.bare_algorithm_names("")) == list(ALGORITHMS)
    assert all(about for _, about in completion.algorithm_names(""))
    assert set(names(study_names(""))) == {*STUDIES, "all", "report"}
    assert names(completion.model_names("")) == list(MODELS)
    assert [name.removesuffix(":") for name in names(completion.partition_names(""))] == list(_FORMS)
    assert names(completion.attack_names("")) == list(ATTACKS)
    assert names(completion.attack_names("dlg,row")) == ["dlg,rowspace"]
    for name, kind in ALGORITHMS.items():
        known = {field.name for field in dataclasses.fields(kind) if field.init} - set(OBJECTS)
        assert set(names(completion.algorithm_names(f"{name}:"))) == {f"{name}:{field}=" for field in known}
    assert names(completion.algorithm_names("losac:scaling=exact,sc")) == []
    assert names(completion.algorithm_names("losac:blocks=3,sc")) == ["losac:blocks=3,scaling="]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["losac", "data", "show", "mn"], ["mnist"]),
        (["losac", "attack", "run", "--algorithm", "scaff"], ["scaffold", "scaffnew", "scaffold_momentum"]),
        (["losac", "attack", "run", "--algorithm", "scaffold", ":", "ser"], ["server_step="]),
        (["losac", "attack", "run", "--algorithm", "=", "losac", ":", "blocks", "=", "3,sc"], ["3,scaling="]),
        (["losac", "data", "show", "digits", "--partition", "dir"], ["dirichlet:"]),
        (["losac", "reproduce", "table"], ["table1", "table2"]),
    ],
)
def test_bash_completes_values_without_heavy_imports(words, offered):
    code = f"""
import atexit, sys
atexit.register(lambda: print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr))
from losac.cli import main
main()
"""
    asked = {"_LOSAC_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert time.perf_counter() - began < 1.5
    assert done.stdout.split() == offered
    assert done.stderr == "[]\n"


def table_of(rows):
    table = Table("name", "a long head", "another head")
    for row in rows:
        table.add_row(*row)
    return table


@pytest.mark.parametrize(
    ("width", "lines"),
    [(80, ["name a long head another head", "one 2 3"]), (24, ["name one", "a long head 2", "another head 3"])],
)
def test_a_table_is_turned_where_the_terminal_is_narrow(monkeypatch, width, lines):
    console = Console(file=io.StringIO(), width=width)
    monkeypatch.setattr(output, "wide_console", lambda: console)
    output.print_table(table_of([("one", "2", "3")]))
    shown = [" ".join(re.findall(r"[\w]+", line)) for line in console.file.getvalue().splitlines()]
    assert [line for line in shown if line] == lines


def test_a_table_that_cannot_be_turned_leaves_out_what_it_may(monkeypatch, capsys):
    console = Console(file=io.StringIO(), width=30)
    monkeypatch.setattr(output, "wide_console", lambda: console)
    output.print_table(table_of([(f"row number {n}", "2", "3") for n in range(4)]), ["another head"])
    assert "row number 3" in console.file.getvalue()
    assert "another" not in console.file.getvalue()
    assert "another head; --json prints everything" in capsys.readouterr().err


def history(done, **metrics):
    measured = metrics or {"loss": 0.25, "accuracy": 0.5}
    return SimpleNamespace(
        rounds=[0, done],
        planned=300,
        metrics=measured,
        final=measured.get,
        bytes_up=[0, 1_500_000 * done],
        bytes_down=[0, 64 * done],
    )


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def test_a_pace_counts_the_rounds_of_this_process_only(clock):
    pace = Pace()
    clock[0] = 10.0
    assert pace.rate(110) is None
    clock[0] = 12.0
    assert pace.rate(130) == 10.0


def test_lines_say_what_was_reached_and_sent_and_how_long_it_takes(clock, capsys):
    with progress.progress(1, 300, shown=True) as begin:
        report = begin("losac", start=100)
        for clock[0], done in ((1.0, 101), (2.0, 111), (8.0, 121), (20.0, 300)):
            report(history(done))
    first, last = capsys.readouterr().err.splitlines()
    assert first == (
        "losac: round 121 of 300, loss 0.25, accuracy 0.5, 2.86 rounds/s, 182 MB up, 7.74 KB down, 1 min 3 s left"
    )
    assert last.startswith("losac: round 300 of 300")
    assert "left" not in last


def test_the_view_shows_the_run_and_all_runs(clock):
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with live(console, runs=2, rounds=100) as begin:
        begin("first")(history(100))
        report = begin("second", start=50)
        for clock[0], done in ((1.0, 60), (3.0, 70)):
            report(history(done))
        time.sleep(0.3)
    text = console.file.getvalue()
    for words in ("second", "70/100", "170/200", "6 s left", "loss 0.25, accuracy 0.5, 5 rounds/s, 105 MB up"):
        assert words in text
    assert max(len(line) for line in re.sub(r"\x1b\[[\d;?]*\w", "", text).replace("\r", "\n").splitlines()) <= 80
