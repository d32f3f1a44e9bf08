"""``losac tune`` and ``losac run FILE``: what is printed, saved, refused, and runs again."""

from __future__ import annotations

import dataclasses
import json
import tomllib

import pytest
from typer.main import get_command

from commands import losac, refused
from losac.cli import app
from losac.cli.tune import _default_space
from losac.experiment.file import File
from losac.experiment.options import Experiment
from losac.experiment.space import parse_space
from losac.tuning import Range
from losac.tuning.options import SearchOptions

SMALL = ["--rounds", "12", "--clients", "6", "--clients-per-round", "3", "--local-steps", "2", "--blocks", "2"]
SPACE = ["--space", "step_size=1e-4:1e-3:2log", "--no-widen"]
TUNE = ["tune", "scaffold:server_step=2", *SMALL, *SPACE]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned") / "new"
    return losac(*TUNE, "--out", str(folder)), folder


def test_tune_prints_a_table_and_saves_what_it_says(tuned):
    result, folder = tuned
    assert result.exit_code == 0, result.output
    for name in ("trials.csv", "tuning.png", "tuning.svg", "best.toml", "config.json"):
        assert (folder / name).stat().st_size > 0
        assert str(folder / name) in result.stdout
    assert "validation accuracy" in result.stdout
    assert "best: scaffold(step_size=0.001, local_steps=2, blocks=2, server_step=2)" in result.stdout
    assert "0.001, is the largest that was tried" in result.stdout
    assert "2 of 2 runs" in result.stderr
    assert json.loads((folder / "config.json").read_text())["space"] == {"step_size": [1e-4, 1e-3]}


def test_the_best_configuration_runs_and_repeats(tuned, tmp_path):
    _, folder = tuned
    first = losac("run", str(folder / "best.toml"), "--seed", "3", "--json", "--out", str(tmp_path))
    assert first.exit_code == 0, first.output
    answer = json.loads(first.stdout)
    assert answer["config"]["algorithm"]["name"] == "scaffold"
    assert answer["config"]["problem"]["clients"] == 6
    assert answer["result"]["rounds"] == 12
    assert answer["result"]["settings"] == {
        "step_size": 1e-3, "local_steps": 2, "blocks": 2, "server_step": 2, "option": 2,
    }  # fmt: skip
    again = losac("run", str(tmp_path / "experiment.toml"), "--json")
    assert json.loads(again.stdout)["config"] == answer["config"]
    assert json.loads(again.stdout)["result"]["final"] == answer["result"]["final"]


def test_every_option_of_a_search_is_on_the_command_line():
    known = {option for parameter in get_command(app).commands["tune"].params for option in parameter.opts}
    for field in dataclasses.fields(SearchOptions):
        assert "--" + field.name.replace("_", "-") in known


def test_tune_as_json(tuned):
    _, folder = tuned
    result = losac(*TUNE, "--json")
    answer = json.loads(result.stdout)
    assert result.stderr == ""
    written = tomllib.loads((folder / "best.toml").read_text())
    assert written["problem"]["data"] == "digits"
    assert written["algorithm"] == {k: v for k, v in answer["best"]["algorithm"].items() if v is not None}
    assert written["tuned"]["score"] == answer["best"]["tuned"]["score"]
    assert [trial["step_size"] for trial in answer["trials"]] == [1e-3, 1e-4]
    assert [trial["diverged"] for trial in answer["trials"]] == [None, None]
    assert len(answer["notes"]) == 1


def test_tune_exits_3_where_all_diverge(tmp_path):
    result = losac(*TUNE[:-3], "--space", "step_size=1e36,1e37", "--out", str(tmp_path / "new"), "--quiet")
    assert result.exit_code == 3, result.output
    assert "all 2 trials diverged" in result.stderr
    assert not (tmp_path / "new").exists()


def test_an_interrupt_exits_130(monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("losac.tuning.tune", interrupt)
    assert losac(*TUNE).exit_code == 130


def test_options_win_over_the_file():
    file = File(
        {"data": "digits", "rounds": 7, "clients": 6}, "scaffold", {"step_size": 1e-3, "blocks": 2, "server_step": 2.0}
    )
    typed = Experiment(rounds=3, batch_size=8, set_=["server_step=5"])
    filled = file.fill(typed, {"rounds", "batch_size", "set_"})
    assert (filled.rounds, filled.clients) == (3, 6)
    algorithm = file.build_algorithm(filled)
    assert (algorithm.step_size, algorithm.server_step) == (1e-3, 5)
    assert (algorithm.blocks, algorithm.batch_size) == (None, 8)


def test_what_a_file_leaves_out_is_the_data_sets_default():
    algorithm = File({}, "losac", {"step_size": 1e-5}).build_algorithm(Experiment())
    assert (algorithm.step_size, algorithm.local_steps, algorithm.blocks) == (1e-5, 10, 5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--space", "step_size"], "NAME=VALUES"),
        (["--space", "step_size=1:2:3:4"], "is not understood"),
        (["--space", "step_size=a:b:3"], "is not understood"),
        (["--space", "step_size=1,,2"], "empty value"),
        (["--space", "step_size=1:2:1log"], "at least 2"),
        (["--space", "step_size=0:2:3log"], "positive numbers"),
        (["--space", "step_size=1:2:log"], "a grid needs values"),
        (["--space", "step_size=1", "--space", "step_size=2"], "twice"),
        (["--space", "gamma=1"], "has no setting 'gamma'"),
        (["--search", "gird"], "did you mean 'grid'"),
        (["--seeds", "a"], "--seeds"),
    ],
)
def test_a_bad_space_is_refused_in_one_line(arguments, said):
    assert said in refused("tune", "scaffold", *SMALL, *arguments)


def test_spaces_are_lists_grids_and_ranges():
    space = parse_space(["step-size=1e-5:1e-2:4log", "option=1,2", "server_step=0.5:1.5"])
    assert space == {"step_size": [1e-5, 1e-4, 1e-3, 1e-2], "option": [1, 2], "server_step": Range(0.5, 1.5, log=False)}


def test_the_default_space_leaves_out_what_the_user_fixed():
    experiment = Experiment(step_size=0.1)
    (method,) = experiment.build_algorithms(["scaffold"])
    space = _default_space(experiment, "scaffold", method, "grid")
    assert set(space) == {"step_size", "server_step"}
    assert 0.1 in space["step_size"]
    assert set(_default_space(experiment, "scaffold:server_step=5", method, "grid")) == {"step_size"}
    assert _default_space(experiment, "scaffold", method, "random")["server_step"] == Range(0.3, 10.0, log=True)
