"""Runs as folders: what is written, what survives, and that a run goes on as if nothing had happened."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tomllib

import jax
import numpy as np
import pandas as pd
import pytest

import losac
from losac._claim import RUN_FILES
from losac.runs import FolderError, find_runs, open_run, record
from problems import quadratic

A = losac.algorithms
PROBLEM = quadratic(clients=6, samples=8, dim=3)
OPTIONS = {"clients_per_round": 2, "eval_every": 3}


class StopAt(losac.Callback):
    """Ends a run at the first evaluation at or after a round."""

    def __init__(self, last):
        self.last = last

    def on_evaluation(self, moment):
        if moment.round >= self.last:
            moment.stop()


class Fail(losac.Callback):
    """A callback with an error in it."""

    def on_evaluation(self, moment):
        if moment.round >= 6:
            raise RuntimeError("the tracker is gone")


def same(run, whole):
    """All numbers but the times are the same, to the last bit."""
    frames = [history.to_frame().drop(columns="seconds") for history in (run, whole)]
    pd.testing.assert_frame_equal(*frames, check_exact=True)
    for mine, theirs in zip(*(jax.tree.leaves(history.params) for history in (run, whole)), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    return True


def test_a_folder_says_all_of_a_run(tmp_path):
    history = record(PROBLEM.task, A.losac(1e-3, 2, 2), tmp_path / "deep" / "run", rounds=10, **OPTIONS)
    run = open_run(tmp_path / "deep" / "run")
    assert {path.name for path in run.folder.iterdir()} == {*RUN_FILES, "lock"}
    assert (run.status, run.name, run.last) == ("finished", "run", 10)
    assert run.experiment["simulation"] == {"rounds": 10, "seed": 0, **OPTIONS}
    assert run.experiment["algorithm"]["name"] == "losac"
    assert {"jax", "losac", "python"} <= set(run.about["versions"])
    assert run.about["hardware"]["cores"] >= 1
    assert "finished at round 10" in run.log()
    assert run.clients().sizes.tolist() == [8] * 6
    assert run.clients().label_counts is None
    table = pd.read_csv(run.folder / "metrics.csv")
    assert table.columns[0] == "round"
    for frame in (table, pd.read_parquet(run.folder / "metrics.parquet"), run.history().to_frame()):
        pd.testing.assert_frame_equal(frame, history.to_frame(), check_exact=True)
    assert same(losac.History.load(run.folder / "history.npz"), history)


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        (A.losac(1e-3, 2, 2), {}),
        (A.losac(1e-3, 2, 2), {"store": "memory"}),
        (A.scaffold(1e-3, 2, 2), {"dtype": "float64"}),
        (A.fedadam(1e-3, 2, 2), {}),
        (A.tamuna(1e-3), {}),
        (A.local_svrg(1e-3, 2, refresh=0.4), {}),
    ],
    ids=lambda value: value.label if hasattr(value, "label") else "-".join(value.values()) or "float32",
)
def test_a_stopped_run_goes_on_bit_for_bit(algorithm, options, tmp_path):
    options = OPTIONS | options
    whole = losac.simulate(PROBLEM.task, algorithm, rounds=20, seed=4, **options)
    for stop in (0, 7):
        folder = tmp_path / str(stop)
        part = record(PROBLEM.task, algorithm, folder, rounds=20, seed=4, callbacks=[StopAt(stop)], **options)
        assert part.rounds[-1] < 20
        assert open_run(folder).status == "stopped"
        rest = record(PROBLEM.task, algorithm, folder, rounds=20, seed=4, resume=True, **options)
        assert same(rest, whole)
        assert open_run(folder).status == "finished"
        read = open_run(folder).history().to_frame().drop(columns="seconds")
        pd.testing.assert_frame_equal(read, whole.to_frame().drop(columns="seconds"), check_exact=True)


def test_a_table_of_products_goes_on_bit_for_bit(tmp_path):
    """The clients' states are then factors and not gradients."""
    data = losac.data.load("digits", clients=10, partition="sorted")
    task = losac.classification(losac.models.Dense((64, 16, 10)), data)
    options = {"clients_per_round": 3, "eval_every": 2, "gradients": "factored"}
    whole = losac.simulate(task, A.losac(1e-3, 3, 10), rounds=8, **options)
    record(task, A.losac(1e-3, 3, 10), tmp_path, rounds=8, callbacks=[StopAt(4)], **options)
    assert same(record(task, A.losac(1e-3, 3, 10), tmp_path, rounds=8, resume=True, **options), whole)


def test_a_run_is_made_longer_and_never_shorter(tmp_path):
    algorithm = A.losac(1e-3, 2, 2)
    whole = losac.simulate(PROBLEM.task, algorithm, rounds=18, **OPTIONS)
    record(PROBLEM.task, algorithm, tmp_path, rounds=9, **OPTIONS)
    assert same(record(PROBLEM.task, algorithm, tmp_path, rounds=18, resume=True, **OPTIONS), whole)
    again = record(PROBLEM.task, algorithm, tmp_path, rounds=18, resume=True, **OPTIONS)
    assert same(again, whole)
    assert len(open_run(tmp_path).about["resumed"]) == 1
    with pytest.raises(ValueError, match="is at round 18 already"):
        record(PROBLEM.task, algorithm, tmp_path, rounds=12, resume=True, **OPTIONS)


def test_what_was_measured_after_the_last_checkpoint_is_measured_again(tmp_path):
    """A killed run: rows beyond its checkpoint, the last of them cut off, and a status that says that it runs."""
    algorithm = A.losac(1e-3, 2, 2)
    whole = losac.simulate(PROBLEM.task, algorithm, rounds=18, **OPTIONS)
    part = record(PROBLEM.task, algorithm, tmp_path, rounds=18, callbacks=[StopAt(6)], **OPTIONS)
    beyond = part.rounds[-1] + 3
    _, _, rest = (tmp_path / "metrics.csv").read_text().splitlines()[-1].partition(",")
    with open(tmp_path / "metrics.csv", "a") as table:
        table.write(f"{beyond},{rest}\n{beyond + 3},0.")
    about = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(about | {"status": "running"}))
    killed = open_run(tmp_path)
    assert killed.status == "killed"
    assert killed.history().rounds[-1] == beyond
    assert same(record(PROBLEM.task, algorithm, tmp_path, rounds=18, resume=True, **OPTIONS), whole)


def test_a_run_killed_before_anything_begins_anew(tmp_path):
    algorithm = A.losac(1e-3, 2, 2)
    whole = losac.simulate(PROBLEM.task, algorithm, rounds=9, **OPTIONS)
    (tmp_path / "none" / "checkpoints").mkdir(parents=True)
    assert same(record(PROBLEM.task, algorithm, tmp_path / "none", rounds=9, resume=True, **OPTIONS), whole)
    record(PROBLEM.task, algorithm, tmp_path / "early", rounds=9, **OPTIONS)
    for name in ("metrics.csv", "metrics.parquet", "history.npz"):
        (tmp_path / "early" / name).unlink()
    shutil.rmtree(tmp_path / "early" / "checkpoints")
    assert open_run(tmp_path / "early").history() is None
    assert same(record(PROBLEM.task, algorithm, tmp_path / "early", rounds=9, resume=True, **OPTIONS), whole)


def test_killed_between_the_last_checkpoint_and_the_model(tmp_path):
    whole = record(PROBLEM.task, A.losac(1e-3, 2, 2), tmp_path, rounds=9, **OPTIONS)
    (tmp_path / "history.npz").unlink()
    assert same(record(PROBLEM.task, A.losac(1e-3, 2, 2), tmp_path, rounds=9, resume=True, **OPTIONS), whole)
    assert (tmp_path / "history.npz").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_damaged_checkpoint_leaves_the_one_before(tmp_path):
    algorithm = A.losac(1e-3, 2, 2)
    whole = losac.simulate(PROBLEM.task, algorithm, rounds=30, **OPTIONS)
    for more in ({"callbacks": [StopAt(3)]}, {"callbacks": [StopAt(9)], "resume": True}):
        record(PROBLEM.task, algorithm, tmp_path, rounds=30, **more, **OPTIONS)
    kept = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir() if path.name.isdigit())
    assert len(kept) == 2
    for file in (tmp_path / "checkpoints" / str(kept[-1])).rglob("*"):
        if file.is_file() and file.parent.name == "d":
            file.write_bytes(file.read_bytes()[:10])
    assert same(record(PROBLEM.task, algorithm, tmp_path, rounds=30, resume=True, **OPTIONS), whole)
    assert f"the checkpoint of round {kept[-1]} is damaged" in open_run(tmp_path).log()


def test_two_runs_never_write_into_one_folder(tmp_path):
    inner = []

    class Second(losac.Callback):
        def on_evaluation(self, moment):
            for more in ({}, {"resume": True}, {"overwrite": True}):
                with pytest.raises(FolderError, match="another run writes into"):
                    record(PROBLEM.task, A.fedavg(1e-3), tmp_path, rounds=3, **more)
            inner.append(open_run(tmp_path).status)

    record(PROBLEM.task, A.losac(1e-3, 2, 2), tmp_path, rounds=6, callbacks=[Second()], **OPTIONS)
    assert set(inner) == {"running"}
    with pytest.raises(FolderError, match="holds a run already"):
        record(PROBLEM.task, A.fedavg(1e-3), tmp_path, rounds=3)
    record(PROBLEM.task, A.fedavg(1e-3), tmp_path, rounds=3, overwrite=True)
    assert open_run(tmp_path).history().algorithm == "fedavg"


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["history.npz", "metrics.csv", "experiment.toml", "log.txt"])
def test_files_that_are_of_no_run_are_not_replaced_without_a_word(tmp_path, name, resume):
    """A history that was saved by hand, or a table of one's own, was gone after a run in its folder."""
    (tmp_path / name).write_text("mine")
    if resume and name in ("experiment.toml", "log.txt"):
        return  # what a run leaves that was killed while it began
    with pytest.raises(FolderError, match=f"holds {name} but no run"):
        record(PROBLEM.task, A.losac(1e-3, 2, 2), tmp_path, rounds=2, resume=resume, **OPTIONS)
    assert (tmp_path / name).read_text() == "mine"
    record(PROBLEM.task, A.losac(1e-3, 2, 2), tmp_path, rounds=2, overwrite=True, **OPTIONS)
    assert open_run(tmp_path).status == "finished"


@pytest.mark.parametrize(
    ("algorithm", "options", "said"),
    [
        (A.losac(2e-3, 2, 2), {}, r"algorithm.step_size = 0.001, and now it is 0.002"),
        (A.fedavg(1e-3), {}, r"algorithm.name = 'losac'"),
        (A.losac(1e-3, 2, 2), {"seed": 1}, r"simulation.seed = 0, and now it is 1"),
        (A.losac(1e-3, 2, 2), {"eval_every": 2}, r"simulation.eval_every = 3"),
    ],
    ids=["step", "algorithm", "seed", "evaluations"],
)
def test_a_run_goes_on_only_as_it_was(algorithm, options, said, tmp_path):
    record(PROBLEM.task, A.losac(1e-3, 2, 2), tmp_path, rounds=6, **OPTIONS)
    before = (tmp_path / "metrics.csv").read_bytes()
    with pytest.raises(ValueError, match=said):
        record(PROBLEM.task, algorithm, tmp_path, rounds=9, resume=True, **(OPTIONS | options))
    assert (tmp_path / "metrics.csv").read_bytes() == before


def half(params, batch):
    """Another loss."""
    x, y = batch
    return 0.5 * ((x @ params - y) ** 2).mean()


def mean(params, batch):
    """A metric."""
    return batch[0].mean() + 0 * params.sum()


def largest(params, batch):
    """Another metric."""
    return batch[0].sum(-1).mean() + 0 * params.sum()


X = np.ones((4, 3))
MEASURED = dataclasses.replace(PROBLEM.task, metrics={"m": mean}, test=(X, X[:, 0]))
OTHER = {
    "loss": ({"loss": half}, {}, {}, "another loss"),
    "test rows": ({"test": (2 * X, X[:, 0])}, {}, {}, "other test rows"),
    "no test rows": ({"test": None}, {}, {}, "other test rows"),
    "metric": ({"metrics": {"m": largest}}, {}, {}, "other metrics"),
    "one metric more": ({"metrics": {"m": mean, "n": mean}}, {}, {}, "other metrics"),
    "no metrics": ({"metrics": {}}, {}, {}, "other metrics"),
    "initial parameters": ({"params": np.full(3, 7.0)}, {}, {}, "other initial parameters"),
    "coupled": ({"coupled": True}, {}, {}, "coupled"),
    "sampling": ({}, {}, {"sampling": lambda r, rng, history: [1, 2]}, "sampling"),
    "turns": ({}, {}, {"sampling": [[0, 1], [2, 3]]}, "sampling"),
    "local steps": ({}, {}, {"local_steps": [1, 2, 3, 1, 2, 3]}, "local_steps"),
    "schedule": ({}, {"step_size": lambda r: 2e-3 / (1 + r)}, {}, "step_size at rounds"),
}


@pytest.mark.parametrize("name", OTHER)
def test_a_run_is_resumed_only_with_the_same_problem(name, tmp_path):
    """The words of experiment.toml do not show these."""
    changes, settings, options, said = OTHER[name]
    algorithm = A.fedavg(lambda r: 1e-3 / (1 + r))
    given = {**OPTIONS, "sampling": lambda r, rng, history: [0, 1]}
    record(MEASURED, algorithm, tmp_path, rounds=6, **given)
    before = contents(tmp_path)
    task, other = dataclasses.replace(MEASURED, **changes), algorithm.replace(**settings)
    with pytest.raises(ValueError, match=f"the run in .* was made with .*{said}"):
        record(task, other, tmp_path, rounds=9, resume=True, **(given | options))
    assert contents(tmp_path) == before
    assert record(MEASURED, algorithm, tmp_path, rounds=9, resume=True, **given).rounds[-1] == 9


def test_another_python_compiles_functions_otherwise(tmp_path):
    record(MEASURED, A.fedavg(1e-3), tmp_path, rounds=3, **OPTIONS)
    about = json.loads((tmp_path / "run.json").read_text())
    about["versions"]["python"] = "3.2.1"
    (tmp_path / "run.json").write_text(json.dumps(about))
    with pytest.raises(ValueError, match="other test rows"):
        record(dataclasses.replace(MEASURED, test=None), A.fedavg(1e-3), tmp_path, rounds=6, resume=True, **OPTIONS)
    other = dataclasses.replace(MEASURED, metrics={"m": largest})
    assert record(other, A.fedavg(1e-3), tmp_path, rounds=6, resume=True, **OPTIONS).rounds[-1] == 6


@pytest.mark.parametrize(
    "changes", [{"test": None}, {"metrics": {}}, {"metrics": {"m": mean, "n": mean}}], ids=["test", "fewer", "more"]
)
def test_a_record_goes_on_only_with_the_same_series(changes):
    """They were of unequal length: rounds_to gave a wrong round, and to_frame raised."""
    first = losac.simulate(MEASURED, A.fedavg(1e-3), rounds=3, keep_state=True, **OPTIONS)
    other = dataclasses.replace(MEASURED, **changes)
    with pytest.raises(ValueError, match="the given history is of a run that measured"):
        losac.simulate(other, A.fedavg(1e-3), rounds=3, state=first, **OPTIONS)
    assert losac.simulate(other, A.fedavg(1e-3), rounds=3, state=first.state, **OPTIONS).rounds[-1] == 6


def test_a_diverged_run_and_a_broken_callback_leave_folders_that_open(tmp_path):
    with pytest.raises(losac.DivergedError):
        record(PROBLEM.task, A.fedavg(1e30), tmp_path / "far", rounds=30, **OPTIONS)
    far = open_run(tmp_path / "far")
    assert far.status == "diverged"
    assert far.about["diverged"] == far.history().diverged
    with pytest.raises(RuntimeError, match="the tracker is gone"):
        record(PROBLEM.task, A.fedavg(1e-3), tmp_path / "fail", rounds=30, callbacks=[Fail()], **OPTIONS)
    assert open_run(tmp_path / "fail").status == "failed"
    assert "RuntimeError: the tracker is gone" in open_run(tmp_path / "fail").log()
    assert 0 <= open_run(tmp_path / "fail").history().rounds[-1] < 30
    assert [run.name for run in find_runs(tmp_path)] == ["fail", "far"]


def test_a_write_that_fails_says_what_is_kept(tmp_path, monkeypatch):
    """A full disk, as an error of the very call that writes."""
    algorithm = A.losac(1e-3, 2, 2)
    whole = losac.simulate(PROBLEM.task, algorithm, rounds=18, **OPTIONS)
    from losac.runs import table

    add, calls = table.MetricsTable.add, []

    def full(self, history):
        calls.append(history)
        if len(calls) == 3:
            with open(self.folder / "metrics.csv", "a") as file:
                file.write("12,0.3")
            raise OSError(28, "No space left on device")
        add(self, history)

    monkeypatch.setattr(table.MetricsTable, "add", full)
    with pytest.raises(FolderError, match=r"No space left on device.*kept up to round \d+.*--resume"):
        record(PROBLEM.task, algorithm, tmp_path, rounds=18, checkpoint_seconds=0, **OPTIONS)
    assert open_run(tmp_path).status == "failed"
    monkeypatch.setattr(table.MetricsTable, "add", add)
    assert same(record(PROBLEM.task, algorithm, tmp_path, rounds=18, resume=True, **OPTIONS), whole)


def test_what_is_no_run_is_named(tmp_path):
    with pytest.raises(ValueError, match="is not a folder"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"has no run\.json"):
        open_run(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        open_run(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="not of a run of this version"):
        open_run(tmp_path)
    assert find_runs(tmp_path) == []
    (tmp_path / "odd" / "checkpoints" / "7").mkdir(parents=True)
    with pytest.raises(FolderError, match="has checkpoints but no"):
        record(PROBLEM.task, A.fedavg(1e-3), tmp_path / "odd", rounds=1, resume=True)
    assert (tmp_path / "odd" / "checkpoints" / "7").exists()
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match="is a file"):
        record(PROBLEM.task, A.fedavg(1e-3), tmp_path / "file", rounds=1)


def contents(folder):
    """Every file below a folder, with what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def spread(params, batch):
    """A metric that is not a mean over rows."""
    return batch[0].std() + 0 * params.sum()


def undefined(params, batch):
    """A metric that is NaN at every row."""
    return params.sum() * float("nan")


LATE = {
    "table": (None, A.losac(1e-3, 2, 2, uploads=(A.qsgd(4),)), {"table_dtype": "bfloat16"}, "table_dtype"),
    "layout": (None, A.fedavg(1e-3), {"layout": losac.simulation.Layout(1, 99)}, "devices"),
    "unequal steps": (None, A.vrl_sgd(1e-3), {"local_steps": [1, 2, 3, 4, 5, 6]}, "equally many local steps"),
    "loss": ({"loss": spread}, A.fedavg(1e-3), {}, "mean"),
    "metric": ({"metrics": {"spread": spread}}, A.fedavg(1e-3), {}, "mean"),
    "undefined": ({"metrics": {"undefined": undefined}}, A.fedavg(1e-3), {}, "at the start"),
    "sampler": (None, A.fedavg(1e-3), {"sampling": lambda r, rng, history: [9]}, "a client outside"),
}


@pytest.mark.parametrize("name", LATE)
def test_a_run_that_is_refused_late_replaces_nothing(name, tmp_path):
    """Such errors appear when the program is built, at the first evaluation, or in the first round."""
    changes, algorithm, options, said = LATE[name]
    record(PROBLEM.task, A.losac(1e-3, 2, 2), tmp_path, rounds=6, **OPTIONS)
    before = contents(tmp_path)
    task = dataclasses.replace(PROBLEM.task, **(changes or {}))
    with pytest.raises((ValueError, TypeError), match=said):
        record(task, algorithm, tmp_path, rounds=6, overwrite=True, **options)
    assert contents(tmp_path) == before
    record(PROBLEM.task, A.fedavg(1e-3), tmp_path, rounds=3, overwrite=True)
    assert set(contents(tmp_path)) >= {"run.json", "history.npz", "lock"}
    assert not [path for path in contents(tmp_path) if path.startswith(".")]
    assert open_run(tmp_path).history().algorithm == "fedavg"


def test_a_run_that_diverges_at_once_replaces_the_one_before(tmp_path):
    record(PROBLEM.task, A.losac(1e-3, 2, 2), tmp_path, rounds=6, **OPTIONS)
    with pytest.raises(losac.DivergedError):
        record(PROBLEM.task, A.fedavg(1e37), tmp_path, rounds=6, overwrite=True, **OPTIONS)
    assert open_run(tmp_path).status == "diverged"
    assert not (tmp_path / ".old").exists()


def test_the_configuration_as_run_is_toml(tmp_path):
    record(PROBLEM.task, A.fedavg(1e-3, local_optimizer=__import__("optax").adam), tmp_path, rounds=1)
    written = tomllib.loads((tmp_path / "experiment.toml").read_text())
    assert written["algorithm"]["local_optimizer"] == "adam"
    assert "clip_norm" not in written["algorithm"]


def test_callbacks_hear_of_every_end():
    ends = []

    class Ends(losac.Callback):
        def on_start(self, start):
            ends.append((start.first, start.last))

        def on_end(self, history, end):
            ends.append((end, None if history is None else history.params is not None))

    heard = {"callbacks": [Ends()], **OPTIONS}
    losac.simulate(PROBLEM.task, A.fedavg(1e-3), rounds=6, **heard)
    losac.simulate(PROBLEM.task, A.fedavg(1e-3), rounds=60, **(heard | {"callbacks": [Ends(), StopAt(3)]}))
    with pytest.raises(losac.DivergedError):
        losac.simulate(PROBLEM.task, A.fedavg(1e30), rounds=6, **heard)
    told = [end for end in ends if isinstance(end[0], str)]
    assert told == [("finished", True), ("stopped", True), ("diverged", False)]


def test_a_history_with_its_state_continues_its_record():
    algorithm = A.losac(1e-3, 2, 2)
    whole = losac.simulate(PROBLEM.task, algorithm, rounds=12, **OPTIONS)
    first = losac.simulate(PROBLEM.task, algorithm, rounds=6, keep_state=True, **OPTIONS)
    assert same(losac.simulate(PROBLEM.task, algorithm, rounds=6, state=first, **OPTIONS), whole)
    with pytest.raises(ValueError, match="its seed is 0, here it is 5"):
        losac.simulate(PROBLEM.task, algorithm, rounds=6, state=first, seed=5, **OPTIONS)
    with pytest.raises(ValueError, match="keep_state=True"):
        losac.simulate(PROBLEM.task, algorithm, rounds=6, state=whole, **OPTIONS)
    with pytest.raises(ValueError, match="another algorithm, losac, than this run, fedavg"):
        losac.simulate(PROBLEM.task, A.fedavg(1e-3), rounds=6, state=first, **OPTIONS)
    with pytest.raises(ValueError, match="another loss"):
        losac.simulate(dataclasses.replace(PROBLEM.task, loss=half), algorithm, rounds=6, state=first.state, **OPTIONS)
