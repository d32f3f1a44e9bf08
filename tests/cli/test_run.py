"""``losac init``, ``schema`` and ``run FILE``: an experiment as a file, and a run as a folder, on the command line."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import jsonschema
import pandas as pd
import pytest
from typer.testing import CliRunner

from commands import losac, refused
from losac.algorithms import ALGORITHMS
from losac.cli.group import App
from losac.data import datasets
from losac.experiment.file import parse, sections_of
from losac.experiment.generate import option_rows
from losac.experiment.options import OWN, Experiment, with_options
from losac.experiment.schema import field_names, file_model, file_schema
from losac.experiment.template import experiment_text
from losac.runs import find_runs, open_run
from losac.runs.sections import to_toml
from losac.simulation.options import about

SMALL = """
[problem]
clients = 6

[algorithm]
name = "scaffold"
local_steps = 2
blocks = 2

[simulation]
rounds = 6
clients_per_round = 3
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(SMALL)
    return path


def numbers(folder):
    return pd.read_csv(folder / "metrics.csv").drop(columns="seconds")


def test_the_file_of_init_runs_as_it_is(tmp_path):
    path = tmp_path / "new" / "experiment.toml"
    assert losac("init", str(path)).stdout.strip() == str(path)
    assert "is there already" in refused("init", str(path))
    result = losac("run", str(path), "--rounds", "4", "--out", str(tmp_path / "run"))
    assert result.exit_code == 0, result.output
    run = open_run(tmp_path / "run")
    assert (run.status, run.target, run.last) == ("finished", 0.9, 4)
    assert f"losac report {tmp_path / 'run'}" in result.stderr


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_survives_a_file(algorithm):
    """As ``losac init`` writes it, as a run keeps it, and as it is built from both."""
    (built,) = Experiment().build_algorithms([algorithm])
    for text in (
        experiment_text("experiment.toml", "digits", algorithm),
        to_toml({"algorithm": sections_of(built)}),
    ):
        content = tomllib.loads(text)
        jsonschema.validate(content, file_schema())
        file = parse(content, "experiment.toml")
        assert file.build_algorithm(Experiment()).settings() == built.settings()


WORDS = [
    (name, field.name, word)
    for name, algorithm in ALGORITHMS.items()
    for field in dataclasses.fields(algorithm)
    for word in field.metadata.get("words") or ()
]


@pytest.mark.parametrize(("algorithm", "setting", "word"), WORDS)
def test_a_word_in_the_place_of_a_number_survives_a_file(algorithm, setting, word):
    """``losac tune`` wrote files with it that ``losac run`` refused."""
    (built,) = Experiment(set_=[f"{setting}={word}"]).build_algorithms([algorithm])
    content = tomllib.loads(to_toml({"algorithm": sections_of(built)}))
    jsonschema.validate(content, file_schema())
    file = parse(content, "experiment.toml")
    assert file.build_algorithm(Experiment()).settings() == built.settings()
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"algorithm": {"name": algorithm, setting: word + "s"}}, file_schema())


@pytest.mark.parametrize("data", datasets())
def test_the_file_of_every_data_set_is_valid_and_holds_its_defaults(data):
    content = tomllib.loads(experiment_text("experiment.toml", data, "fedavg"))
    file_model().model_validate(content)
    file = parse(content, "experiment.toml")
    filled = file.fill(Experiment(), set())
    assert all(filled.resolved(name) == Experiment(data=data).resolved(name) for name in ("clients", "rounds"))
    assert file.target == Experiment(data=data).defaults.target


@pytest.mark.quick
def test_every_field_is_an_option():
    from typer.main import get_command

    from losac.cli import app

    known = {option for parameter in get_command(app).commands["run"].params for option in parameter.opts}
    for section in ("problem", "simulation", "algorithm"):
        for name in field_names(section):
            assert "--" + name.rstrip("_").replace("_", "-") in known


@dataclasses.dataclass(frozen=True)
class Library:
    """Options as the library has them."""

    rounds: int = dataclasses.field(default=1, metadata=about("Is there already."))
    often: int | None = dataclasses.field(default=None, metadata=about("A count.", min=1))
    matmul: Literal["fast", "exact"] | None = dataclasses.field(default=None, metadata=about("A choice."))
    store: str | Path = dataclasses.field(default="auto", metadata=about("A word or a folder."))
    sampling: Callable[[], int] | None = dataclasses.field(default=None, metadata=about("Not for text."))


def test_an_option_of_the_library_becomes_one_of_every_command():
    rows = list(option_rows(Library, without=OWN))
    assert [row["name"] for row in rows] == ["often", "matmul", "store"]
    kind = dataclasses.dataclass(frozen=True)(with_options(rows)(type("Simulation", (), {"__annotations__": {}})))
    assert dataclasses.asdict(kind(often=3)) == {"often": 3, "matmul": None, "store": None}
    app = App()

    def command(options) -> None:
        print(dataclasses.asdict(options))

    command.__annotations__ = {"options": kind}
    app.command()(command)
    app.callback()(lambda: None)
    result = CliRunner().invoke(app, ["command", "--often", "2", "--matmul", "fast"])
    assert result.stdout == "{'often': 2, 'matmul': 'fast', 'store': None}\n"
    assert CliRunner().invoke(app, ["command", "--often", "0"]).exit_code == 2


def test_the_library_options_reach_the_program(small, tmp_path):
    """An option of ``losac.simulate`` goes through the command line, the file and a run that goes on."""
    out = tmp_path / "run"
    chosen = {"loss_every": 2, "table_dtype": "bfloat16", "gradients": "formed", "store": "memory"}
    words = [word for name, value in chosen.items() for word in ("--" + name.replace("_", "-"), str(value))]
    assert losac("run", str(small), "--algorithm", "losac", *words, "--out", str(out)).exit_code == 0
    assert chosen.items() <= tomllib.loads((out / "experiment.toml").read_text())["simulation"].items()
    assert losac("run", "--out", str(out), "--resume", "--rounds", "8").exit_code == 0
    conditions = open_run(out).history().conditions
    assert (conditions["table_dtype"], conditions["loss_every"]) == ("bfloat16", 2)
    assert "table_dtype='bfloat15' must be one of" in refused("run", str(small), "--table-dtype", "bfloat15")
    assert "store='memory' is for single runs" in refused("tune", "losac", "--store", "memory")


def test_options_win_over_the_file(small, tmp_path):
    result = losac("run", str(small), "--rounds", "3", "--algorithm", "fedavg", "--seed", "5", "--json")
    config = json.loads(result.stdout)["config"]
    assert config["problem"]["clients"] == 6
    assert config["algorithm"]["name"] == "fedavg"
    assert (config["simulation"]["rounds"], config["simulation"]["seed"]) == (3, 5)
    step = json.loads(losac("run", str(small), "--step-size", "1e-5", "--json").stdout)["config"]["algorithm"]
    assert (step["name"], step["step_size"], step["blocks"]) == ("scaffold", 1e-5, 2)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "losac init"),
        ("rounds =", "is not TOML"),
        ("[simulation]\nround = 3", "[simulation] has no field 'round' (did you mean 'rounds'?); it has"),
        ("[simulation]\nrounds = 'many'", "simulation.rounds = 'many' must be a whole number"),
        ("[simulation]\nrounds = 1.5", "simulation.rounds = 1.5 must be a whole number"),
        ("[simulation]\nrounds = 0", "simulation.rounds = 0 must be at least 1"),
        ("[simulation]\nclients = 5", "'clients'; it belongs in [problem]"),
        ("[problem]\nstep_size = 5", "'step_size'; it belongs in [algorithm]"),
        ("[simulations]\nrounds = 5", "no section [simulations] (did you mean 'simulation'?)"),
        ("rounds = 5", "'rounds' is outside the sections; it belongs in [simulation]"),
        ("problem = 5", "problem = 5 must be a section"),
        ("[problem]\ndata = 'digit'", "must be one of 'digits'"),
        ("[problem]\nreduction = 'max'", "problem.reduction = 'max' must be one of 'sum', 'mean'"),
        ("[problem]\nmodel = '2n'", "(did you mean '2nn'?)"),
        ("[problem]\npartition = 'sort'", "sorted"),
        ("[algorithm]\nname = 'scafold'", "(did you mean 'scaffold'?)"),
        ("[algorithm]\nname = 'scaffold'\nserver_stepp = 1", "(did you mean 'server_step'?)"),
        ("[algorithm]\nname = 'scaffold'\nstep_size = -1", "must be a positive number"),
        ("[algorithm]\nname = 'fedavg'\nlocal_optimizer = 'adamm'", "(did you mean 'adam'?)"),
        ("[algorithm]\nname = 'fedavg'\nuploads = ['top_k']", "cannot set uploads"),
        ("[simulation]\nround = 3\nseeed = 4", "(and 1 more)"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(content, said, tmp_path):
    path = tmp_path / "experiment.toml"
    if content is not None:
        path.write_text(content)
    assert said in refused("run", str(path))


def test_the_schema_is_one_and_knows_the_settings_of_every_algorithm():
    schema = json.loads(losac("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$defs"]["Simulation"]["properties"]["rounds"]["description"]
    for bad in (
        {"simulation": {"round": 3}},
        {"algorithm": {"name": "scaffold", "scaling": "exact"}},
        {"algorithm": {"name": "losac", "scaling": "papr"}},
        {"problem": {"reduction": "max"}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, schema)


def test_a_run_goes_on_without_its_file(small, tmp_path):
    out = tmp_path / "run"
    assert losac("run", str(small), "--out", str(out)).exit_code == 0
    small.unlink()
    longer = losac("run", "--out", str(out), "--resume", "--rounds", "9")
    assert longer.exit_code == 0, longer.output
    assert open_run(out).last == 9
    small.write_text(SMALL)
    assert losac("run", str(small), "--rounds", "9", "--out", str(tmp_path / "whole")).exit_code == 0
    assert numbers(out).query("round != 6").equals(numbers(tmp_path / "whole").query("round != 6"))
    refusal = refused("run", "--out", str(out), "--resume", "--seed", "3")
    assert "simulation.seed = 0, and now it is 3" in refusal


def test_what_resume_needs_is_said(tmp_path):
    assert "--out DIR" in refused("run", "--resume")
    assert "--out DIR" in refused("compare", "--resume")
    assert "only one of them" in refused("run", "--resume", "--overwrite", "--out", str(tmp_path))


def test_an_error_with_overwrite_loses_nothing(small, tmp_path):
    out = tmp_path / "run"
    assert losac("run", str(small), "--out", str(out)).exit_code == 0
    before = numbers(out)
    refused("run", str(small), "--clients-per-round", "7", "--overwrite", "--out", str(out))
    assert numbers(out).equals(before)


def test_a_comparison_goes_on_with_the_runs_that_have_not_ended(small, tmp_path):
    out = tmp_path / "compared"
    command = ["compare", "losac", "fedavg:step_size=1e36", "--config", str(small), "--seeds", "0,1", "--out", str(out)]
    assert losac(*command).exit_code == 0
    assert [run.name for run in find_runs(out)] == [
        "fedavg-step_size-1e36-seed0", "fedavg-step_size-1e36-seed1", "losac-seed0", "losac-seed1",
    ]  # fmt: skip
    assert {run.status for run in find_runs(out)} == {"finished", "diverged"}
    before = numbers(out / "runs" / "losac-seed1")
    shutil.rmtree(out / "runs" / "losac-seed1")
    again = losac(*command, "--resume", "--json")
    assert again.exit_code == 0, again.output
    assert numbers(out / "runs" / "losac-seed1").equals(before)
    answer = json.loads(again.stdout)
    assert [(run["algorithm"], run["diverged"] is None) for run in answer["results"]] == [
        ("losac", True), ("losac", True), ("fedavg", False), ("fedavg", False),
    ]  # fmt: skip
    assert answer["config"]["clients"] == 6


LONG = ["--rounds", "3000", "--eval-every", "10", "--checkpoint-seconds", "0.2"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The numbers of a long run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "experiment.toml").write_text(SMALL)
    assert losac("run", str(folder / "experiment.toml"), "--out", str(folder / "run"), *LONG).exit_code == 0
    return numbers(folder / "run")


def started(small, out, *more):
    """Start a long run as a process of its own, and wait until its first checkpoint is there."""
    command = [sys.executable, "-m", "losac", "run", str(small), "--out", str(out), *LONG, *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if any(path.name.isdigit() for path in (out / "checkpoints").glob("*")):
            return process
        time.sleep(0.02)
    raise AssertionError(process.communicate())


def test_an_interrupted_and_a_killed_run_end_as_if_nothing_had_happened(small, whole, tmp_path):
    """Ctrl-C saves and says how to go on; kill -9 loses the rounds since the last checkpoint."""
    out = tmp_path / "run"
    process = started(small, out)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"continue with: losac run --out {out} --resume" in said
    assert "Traceback" not in said
    assert open_run(out).status == "stopped"
    before = open_run(out).history().rounds[-1]
    killed = started(small, out, "--resume")
    while killed.poll() is None and open_run(out).history().rounds[-1] <= before:
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    assert open_run(out).status == "killed"
    assert losac("run", str(small), "--out", str(out), *LONG, "--resume").exit_code == 0
    assert numbers(out).equals(whole)
    assert open_run(out).status == "finished"


def test_a_disk_that_is_full_stops_a_run_that_then_goes_on(small, whole, tmp_path):
    """No file may grow beyond a few kilobytes, so that a write fails in the middle."""
    out = tmp_path / "run"
    code = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000));"
        "from losac.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "run", str(small), "--out", str(out), *LONG]
    environment = os.environ | {"LOSAC_PROGRAMS": "off"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 2, done.stderr
    assert "the run is kept up to round" in done.stderr
    assert "Traceback" not in done.stderr
    assert open_run(out).history() is not None
    assert losac("run", str(small), "--out", str(out), *LONG, "--resume").exit_code == 0
    assert numbers(out).equals(whole)
