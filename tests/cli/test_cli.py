import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import losac, refused
from losac import __version__, runs
from losac.cli.compare import default_entries
from losac.experiment.options import Experiment
from losac.history import History
from losac.runs import find_runs, open_run

SMALL = ["--rounds", "4", "--clients", "6", "--clients-per-round", "3", "--local-steps", "2", "--blocks", "2"]
DIVERGING = ["--rounds", "12", "--step-size", "1e36"]


@pytest.mark.parametrize("command", [[], ["run"], ["attack", "run"]])
def test_help_is_quick(command):
    """That no command's help imports anything heavy is tested by test_look."""
    began = time.perf_counter()
    code = f"""
from losac.cli import app
app([*{command}, "--help"], standalone_mode=False)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert time.perf_counter() - began < 1.5
    assert "Usage" in done.stdout


@pytest.mark.quick
def test_version():
    assert losac("version").stdout.strip() == losac("--version").stdout.strip() == __version__


@pytest.mark.quick
def test_run_saves_what_it_says(tmp_path):
    result = losac("run", *SMALL, "--out", str(tmp_path / "new"))
    assert result.exit_code == 0, result.output
    for name in ("history.npz", "metrics.csv", "metrics.parquet", "experiment.toml", "run.json", "log.txt"):
        assert (tmp_path / "new" / name).stat().st_size > 0
        assert str(tmp_path / "new" / name) in result.stdout
    history = History.load(tmp_path / "new" / "history.npz")
    assert (history.algorithm, history.rounds[-1], history.settings["blocks"]) == ("losac", 4, 2)
    assert open_run(tmp_path / "new").experiment["problem"]["clients"] == 6
    assert "round 4 of 4" in result.stderr


def test_json_is_all_that_is_printed(tmp_path):
    result = losac("run", *SMALL, "--algorithm", "scaffold", "--set", "server_step=2", "--json", "--out", str(tmp_path))
    answer = json.loads(result.stdout)
    assert answer["result"]["settings"]["server_step"] == 2
    assert answer["result"]["final"]["accuracy"] == pytest.approx(
        History.load(tmp_path / "history.npz").final("accuracy")
    )
    assert result.stderr == ""


def test_divergence_exits_3_and_keeps_what_was_measured(tmp_path):
    result = losac("run", *SMALL, *DIVERGING, "--json", "--out", str(tmp_path))
    assert result.exit_code == 3, result.output
    assert "diverged at round" in result.stderr
    assert open_run(tmp_path).history().diverged is not None
    answer = json.loads(result.stdout)["result"]
    assert answer["diverged"] is not None
    assert set(answer["final"].values()) == {None}


def test_compare_exits_3_where_all_diverged():
    result = losac("compare", "losac", *SMALL, *DIVERGING, "--seeds", "0,1")
    assert result.exit_code == 3, result.output
    assert "2 of 2 runs diverged" in result.stderr


def test_a_local_optimiser_is_named():
    options = ("--algorithm", "fedavg", "--set", "local_optimizer=adam", "--json")
    result = losac("run", *SMALL, *options)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["result"]["settings"]["local_optimizer"] == "adam"


@pytest.mark.parametrize("command", ["run", "compare"])
def test_without_out_nothing_is_saved_and_how_is_said(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entries = ["losac", "--seeds", "0"] if command == "compare" else []
    result = losac(command, *entries, *SMALL)
    assert result.exit_code == 0, result.output
    assert "accuracy" in result.stdout
    assert "--out DIR" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["run", "compare"])
def test_an_error_leaves_no_folder(command, tmp_path):
    refused(command, *SMALL, "--quiet", "--clients-per-round", "7", "--out", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_results_are_replaced_only_where_that_is_asked_for(tmp_path):
    stale = tmp_path / "runs" / "losac-seed9" / "run.json"
    stale.parent.mkdir(parents=True)
    kept = tmp_path / "mine.txt"
    kept.touch()
    stale.touch()
    assert "--overwrite" in refused("run", *SMALL, "--out", str(tmp_path))
    result = losac("run", *SMALL, "--overwrite", "--quiet", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert (kept.exists(), stale.exists()) == (True, False)
    written = {Path(line).name for line in result.stdout.splitlines()}
    assert written == {path.name for path in tmp_path.iterdir()} - {"mine.txt", "runs", "lock", "clients.json"}


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    entries = ("losac", "scaffold", "scaffold:server_step=2", "fedavg:step_size=1e36,local_steps=9")
    return losac("compare", *entries, *SMALL, "--rounds", "12", "--seeds", "0,1", "--out", str(folder)), folder


def test_compare_saves_everything(compared):
    result, folder = compared
    assert result.exit_code == 0, result.output
    for name in ("comparison.csv", "comparison.png", "report.html", "partition.png", "runs"):
        assert (folder / name).exists()
        assert str(folder / name) in result.stdout
    assert len(find_runs(folder)) == 8


def test_compare_marks_the_diverged_and_goes_on(compared):
    result, folder = compared
    assert "diverged at round" in result.stdout
    assert "2 of 8 runs diverged" in result.stderr
    assert "scaffold, server_step=2" in result.stdout
    assert "diverged at round" in (folder / "report.html").read_text(encoding="utf-8")


def test_compare_defaults_hold_scaffold_with_losacs_length_of_step():
    experiment = Experiment(blocks=3)
    methods = experiment.build_algorithms(default_entries(experiment))
    assert [method.label for method in methods] == ["losac", "scaffold", "scaffold", "fedavg", "fedsaga"]
    assert methods[2].server_step == 3
    assert len({method.step_size for method in methods}) == 1


def test_compare_as_json(tmp_path):
    result = losac("compare", "losac", *SMALL, "--seeds", "0,5", "--json", "--out", str(tmp_path))
    assert [run["seed"] for run in json.loads(result.stdout)["results"]] == [0, 5]
    assert result.stderr == ""


@pytest.mark.parametrize("command", ["run", "compare"])
def test_interrupt_exits_130(command, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("losac.runs.record", interrupt)
    result = losac(command, *SMALL, "--out", str(tmp_path))
    assert result.exit_code == 130
    assert "interrupted; " in result.stderr
    assert "--out DIR" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_an_interrupted_compare_saves_the_finished_runs(tmp_path, monkeypatch):
    simulate, calls = runs.record, []

    def interrupted_later(*arguments, **options):
        calls.append(options["seed"])
        if len(calls) > 2:
            raise KeyboardInterrupt
        return simulate(*arguments, **options)

    monkeypatch.setattr("losac.runs.record", interrupted_later)
    result = losac("compare", "losac", *SMALL, "--out", str(tmp_path))
    assert result.exit_code == 130, result.output
    assert f"interrupted; the 2 finished runs are in {tmp_path}, continue with --resume" in result.stderr
    assert [run.name for run in find_runs(tmp_path)] == ["losac-seed0", "losac-seed1"]
    assert (tmp_path / "report.html").exists()


def test_an_interrupted_compare_names_the_run_that_goes_on(tmp_path, monkeypatch):
    """It said that nothing was saved, while the first run lay there to be resumed."""
    simulate = runs.record

    def interrupted_midway(*arguments, **options):
        simulate(*arguments, **options | {"rounds": 1})
        raise KeyboardInterrupt

    monkeypatch.setattr("losac.runs.record", interrupted_midway)
    result = losac("compare", "losac", *SMALL, "--out", str(tmp_path))
    assert f"interrupted; what has begun is in {tmp_path}, continue with --resume" in result.stderr
    monkeypatch.undo()
    assert losac("compare", "--out", str(tmp_path), "--resume").exit_code == 0


@pytest.mark.quick
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--data", "digit"], "digits"),
        (["run", "--algorithm", "scafold"], "did you mean 'scaffold'"),
        (["run", "--set", "server_stp=3"], "did you mean 'server_step'"),
        (["run", "--set", "server_step"], "NAME=VALUE"),
        (["run", "--algorithm", "fedavg", "--set", "local_optimizer=adm"], "did you mean 'adam'"),
        (["run", "--algorithm", "fedavg", "--set", "uploads=qsgd"], "cannot set uploads"),
        (["run", "--model", "2n"], "did you mean '2nn'"),
        (["run", "--model", "logistic"], "use softmax"),
        (["run", "--model", "linear"], "instead of linear"),
        (["run", "--step-size", "-1"], "step_size=-1.0 must be a positive number"),
        (["run", "--partition", "sort"], "sorted"),
        (["run", "--reduction", "max"], "'sum' (the paper) or 'mean'"),
        (["run", "--batch-size", "8"], "blocks=M"),
        (["compare", "--seeds", "a"], "separated by commas"),
        (["compare", "--seeds", "1,1"], "twice"),
        (["compare", "fedavg:scaling=exact"], "fedavg has no setting 'scaling'"),
        (["data", "show", "digist"], "digits"),
        (["data", "download", "digist"], "known are"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in refused(*arguments)


def test_out_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    assert "give a folder" in refused("run", *SMALL, "--out", str(tmp_path / "file"))


def test_a_method_with_one_step_needs_no_option(tmp_path):
    assert Experiment().build_algorithms(["dsgd"])[0].draw.steps == 1


def test_own_blocks_put_aside_mini_batches():
    losac_, fedavg = Experiment(batch_size=8).build_algorithms(["losac:blocks=3", "fedavg"])
    assert (losac_.blocks, losac_.batch_size) == (3, None)
    assert (fedavg.blocks, fedavg.batch_size, fedavg.local_steps) == (None, 8, None)


def test_the_papers_settings_are_the_defaults_of_its_data():
    mnist = Experiment(data="mnist")
    names = ("clients", "clients_per_round", "local_steps", "blocks", "step_size", "rounds", "partition")
    assert [mnist.resolved(name) for name in names] == [100, 10, 2, 5, 1e-4, 500, "sorted"]


@pytest.mark.parametrize("data", ["quadratic", "logistic"])
def test_made_data_runs_with_its_defaults(data, tmp_path):
    result = losac("run", "--data", data, "--rounds", "3", "--quiet", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output


def test_data_list_and_show(tmp_path):
    assert "comes with scikit-learn" in losac("data", "list").stdout
    assert "needs no download" in losac("data", "download", "digits").output
    picture = tmp_path / "picture.png"
    assert "at 20 clients" in losac("data", "show", "digits", "--out", str(picture)).stdout
    result = losac("data", "show", "digits", "--clients", "4", "--out", str(picture))
    assert "1,438 rows" in result.stdout
    assert "labels per client: 3 to 4" in result.stdout
    assert picture.stat().st_size > 0
