"""Values that no command may take: each is refused in one line, before anything is computed."""

from __future__ import annotations

import os
from functools import cache

import pytest

from commands import losac, refused
from losac.cli import app

SMALL = ["--rounds", "2", "--clients", "4", "--clients-per-round", "2"]


@cache
def commands():
    from typer.main import get_command

    return get_command(app)


def numeric_options():
    """Every option of every command that takes numbers: the words of the command, and the option."""

    def walk(command, words):
        for name, each in getattr(command, "commands", {}).items():
            yield from walk(each, [*words, name])
        for parameter in command.params if words and not hasattr(command, "commands") else []:
            if parameter.type.name in ("float", "float range", "integer", "integer range"):
                yield words, parameter

    return list(walk(commands(), []))


def called(words, parameter, value):
    """Return the command line with one value, and something for the arguments that the command needs."""
    command = commands()
    for word in words:
        command = command.commands[word]
    needed = ["x" for each in command.params if each.required and each.param_type_name == "argument"]
    return [*words, *needed, f"{parameter.opts[0]}={value}"]


@pytest.mark.parametrize("value", ["nan", "-inf", "9223372036854775808"])
def test_every_number_of_every_command_has_a_size(value):
    for words, parameter in numeric_options():
        whole = parameter.type.name.startswith("integer")
        if whole != value.isdigit():
            continue
        result = losac(*called(words, parameter, value))
        assert result.exit_code == 2, (words, parameter.opts, result.output)
        assert result.stdout == ""
        assert parameter.opts[0] in result.stderr
        assert "should not happen" not in result.stderr


def test_no_whole_number_of_a_command_may_be_below_what_its_help_says():
    """Zero clients, rounds or restarts are no way to ask for the default."""
    for words, parameter in numeric_options():
        if parameter.type.name.startswith("integer"):
            assert parameter.type.min is not None, (words, parameter.opts)
            result = losac(*called(words, parameter, parameter.type.min - 1))
            assert result.exit_code == 2, (words, parameter.opts, result.output)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--checkpoint-seconds", "nan"], "--checkpoint-seconds nan must be a finite number"),
        (["run", "--target", "nan"], "--target nan must be a finite number"),
        (["compare", "--seeds", "0,4294967296"], "--seeds=4294967296 must be a whole number from 0 to 4294967295"),
        (["compare", "t4:FedNova"], "there is no module 't4', which 't4:FedNova' asks for"),
        (["compare", "scaffold:"], "NAME=VALUE"),
        (["compare", "scaffold:server_step=3,,option=1"], "NAME=VALUE"),
        (["compare", "scaffold:server_step=3,server_step=5"], "sets server_step twice"),
        (["run", "--set", "server_step=3", "--set", "server-step=5"], "sets server_step twice"),
        (["run", "--set", "step_size=cosine"], "must be a number, or a schedule such as cosine:0.1:500"),
        (["run", "--algorithm", "fedavg", "--set", "local_optimizer=3"], "unknown local_optimizer '3'"),
        (["run", "--data", "folder/own.npz"], "folder/own.npz does not exist; check the path"),
        (["tune", "losac", "--space", "step_size=1e-5:1e-2:1000000000"], "at most 1,000"),
        (["attack", "run", "--clip", "nan", "--noise", "1"], "--clip nan must be a finite number"),
        (["attack", "algebra", "losac", "--blocks", "0"], "from 1 on"),
    ],
)
def test_a_value_that_will_not_do_is_refused_in_one_line(arguments, said):
    assert said in refused(*arguments)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[simulation]\ntarget = nan", "simulation.target = nan must be a finite number"),
        ("[simulation]\ntarget = inf", "must be a finite number"),
        ("[simulation]\nseed = 4294967296", "simulation.seed = 4294967296 must be at most 4294967295"),
        ("[simulation]\nrounds = 9223372036854775808", "simulation.rounds = 9223372036854775808 must be at most"),
        ("[simulation]\nseed = -1", "simulation.seed = -1 must be at least 0"),
        ("[simulation]\nclients_per_round = 0", "simulation.clients_per_round = 0 must be at least 1"),
        ("[simulation]\nclients_per_round = true", "must be a whole number"),
        ("[simulation]\neval_every = 0", "must be at least 1"),
        ("[problem]\nclients = 0", "must be at least 1"),
        ("[algorithm]\nstep_size = 'cosine'", "must be a number, or a schedule such as cosine:0.1:500"),
        ("[algorithm]\nstep_size = nan", "must be a positive number"),
        ("[algorithm]\nstep_size = [1, 2]", "must be a positive number"),
        ("[algorithm]\nstep_size = 1979-05-27", "must be a positive number"),
        ("[algorithm]\nblocks = 0", "must be a whole number of at least 1"),
        ("[algorithm]\nblocks = {}", "must be a whole number of at least 1"),
        ("[algorithm]\nscaling = ['exact']", "must be one of"),
        ("[algorithm]\nname = 'fedavg'\nlocal_optimizer = 3", "unknown local_optimizer '3'"),
        ("[algorithm]\nname = 3", "algorithm.name = 3 must be one of"),
    ],
)
def test_a_value_of_a_file_that_will_not_do_is_refused_in_one_line(content, said, tmp_path):
    (tmp_path / "experiment.toml").write_text(content)
    assert said in refused("run", str(tmp_path / "experiment.toml"))


def test_paths_that_are_no_files_are_refused_and_never_waited_for(tmp_path):
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for arguments in (
        ["run", str(pipe)],
        ["run", "--out", str(pipe)],
        ["compare", "--config", str(pipe)],
        ["init", str(pipe), "--overwrite"],
        ["report", str(pipe)],
        ["report", str(folder), "--out", str(pipe)],
        ["data", "inspect", str(pipe)],
        ["data", "show", "digits", "--out", str(pipe)],
        ["attack", "algebra", "losac", "--markdown", str(pipe)],
        ["board", str(pipe), "--no-open"],
    ):
        assert "is neither a file nor a folder" in refused(*arguments), arguments
    assert "is a folder; give a file" in refused("run", str(folder))
    assert "is a folder; give a file" in refused("compare", "--config", str(folder))
    assert "give a file" in refused("init", str(folder), "--overwrite")
    assert "give a file" in refused("attack", "algebra", "losac", "--markdown", str(folder))
    assert "must be a file" in refused("data", "show", "digits", "--out", str(folder))
