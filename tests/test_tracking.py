"""What trackers log is the history: every evaluation once, at its round, also over a crash."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings

import numpy as np
import optax
import pytest

import losac
from losac.history import Callback
from losac.tracking import TRACKERS, MetricRow, Tracker, make_tracker
from paths import TESTS
from problems import quadratic
from readers import tensorboard_events, wandb_items, wandb_records
from test_docs import blocks

PROBLEM = quadratic(clients=4, samples=6, dim=3)
ALGORITHM = losac.algorithms.losac(1e-3, local_steps=2, blocks=2)
PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}


def simulate(rounds=6, callbacks=(), algorithm=ALGORITHM, **options):
    options = {"eval_every": 2, "loss_every": 4, "seed": 3, "keep_state": True} | options
    return losac.simulate(PROBLEM.task, algorithm, rounds=rounds, callbacks=callbacks, **options)


def logged(history):
    """What must have been logged: rounds and values by metric, without NaN."""
    frame = history.to_frame().set_index("round")
    return {name: {int(r): v for r, v in frame[name].items() if not np.isnan(v)} for name in frame}


class Written(Tracker):
    """A tool that is a list."""

    def __init__(self, memory=None):
        super().__init__(memory)
        self.said = []

    def open(self, facts, run_id):
        self.said.append(("open", facts["algorithm"], run_id))
        return run_id or f"run {len(self.said)}"

    def log(self, rows):
        self.said += rows

    def close(self, end):
        self.said.append(("close", end))

    @property
    def rows(self):
        return [one for one in self.said if isinstance(one, MetricRow)]


class Breaks(Callback):
    def on_evaluation(self, moment):
        raise OSError("no space left")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A home of its own: nothing is written or sent elsewhere."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home" / "wandb"))
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    (tmp_path / "home" / "wandb").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    yield tmp_path
    assert not list((tmp_path / "work").iterdir())


def tracker(name, folder):
    pytest.importorskip(PACKAGES[name], reason=f"{name} is not here: pip install 'losac[tracking]'")
    return make_tracker(name, folder)


def read(name, made, folder):
    """What a tool kept of a run: its settings, its values by metric and round, and how it says the run ended."""
    return {"tensorboard": read_tensorboard, "mlflow": read_mlflow, "wandb": read_wandb}[name](made, folder)


def read_tensorboard(made, folder):
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    facts, values, status = {}, {}, None
    for event in tensorboard_events(folder / "tensorboard"):
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "hparams":
                data = HParamsPluginData.FromString(value.metadata.plugin_data.content)
                facts |= {k: getattr(v, v.WhichOneof("kind")) for k, v in data.session_start_info.hparams.items()}
                status = data.session_end_info.status or status
            elif value.HasField("simple_value"):
                assert event.step not in values.setdefault(value.tag, {}), "logged twice"
                values[value.tag][event.step] = value.simple_value
    return facts, values, {1: "good", 2: "bad", None: None}[status]


def read_mlflow(made, folder, experiment="losac"):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=made.uri)
    run = client.get_run(made.run_id)
    values = {}
    for name in run.data.metrics:
        kept = client.get_metric_history(made.run_id, name)
        values[name] = {metric.step: metric.value for metric in kept}
        assert len(values[name]) == len(kept), "logged twice"
    found = client.get_experiment_by_name(experiment)
    assert len(client.search_runs([found.experiment_id])) == 1
    return run.data.params, values, {"FINISHED": "good", "FAILED": "bad"}[run.info.status]


def read_wandb(made, folder):
    import wandb

    wandb.teardown()  # its service writes the last block when it ends
    facts, values, code = {}, {}, None
    paths = sorted((folder / "wandb").glob(f"offline-run-*-{made.run_id}*/*.wandb"), key=lambda p: p.stat().st_mtime_ns)
    for record in (record for path in paths for record in wandb_records(path)):
        if record.HasField("run"):
            facts |= wandb_items(record.run.config.update)
        if record.HasField("exit"):
            code = record.exit.exit_code
        if record.HasField("history"):
            row = wandb_items(record.history.item)
            step = row["_step"]
            for name, value in row.items():
                if not name.startswith("_"):
                    assert step not in values.setdefault(name, {}), "logged twice"
                    values[name][step] = value
    return facts, values, {0: "good", 1: "bad", None: None}[code]


def check_values(name, values, history):
    expected = logged(history)
    assert len(expected["loss"]) < len(expected["seconds"]), "the loss is not measured at every evaluation"
    assert set(values) == set(expected)
    for metric, series in expected.items():
        assert list(values[metric]) == list(series)
        kept = np.float32 if name == "tensorboard" else np.float64
        assert list(values[metric].values()) == [kept(v) for v in series.values()]


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tool_holds_the_settings_every_evaluation_once_and_the_end(name, place):
    made = tracker(name, place / "run")
    history = run_quietly(callbacks=[made])
    facts, values, end = read(name, made, place / "run")
    check_values(name, values, history)
    assert end == "good"
    assert {k: str(facts[k]).removesuffix(".0") for k in ("algorithm", "seed", "task", "rounds", "blocks")} == {
        "algorithm": "losac", "seed": "3", "task": PROBLEM.task.name, "rounds": "6", "blocks": "2",
    }  # fmt: skip
    assert float(facts["step_size"]) == 1e-3
    assert set(history.settings) <= set(facts)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_continued_run_goes_on_in_the_tools_run_and_no_round_is_there_twice(name, place):
    """The first part breaks after its evaluations were logged; the second repeats one and goes on from the file."""
    first = tracker(name, place / "run")
    part = run_quietly(rounds=2)
    with pytest.raises(OSError, match="no space left"):
        run_quietly(rounds=4, callbacks=[first, Breaks()])
    assert read(name, first, place / "run")[2] == "bad"
    second = tracker(name, place / "run")
    whole = run_quietly(rounds=6, state=part, callbacks=[second])
    assert second.run_id == first.run_id
    _, values, end = read(name, second, place / "run")
    assert end == "good"
    expected = logged(whole)
    assert {m: list(series) for m, series in values.items()} == {m: list(series) for m, series in expected.items()}
    assert values["loss"] == pytest.approx(expected["loss"])


def run_quietly(**options):
    """Run, with MLflow's use of what SQLAlchemy will remove allowed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*``noload`` loader strategy", category=DeprecationWarning)
        return simulate(**options)


def test_several_new_evaluations_in_one_call_are_all_logged_and_none_twice():
    tool = Written()
    history = simulate(callbacks=[tool], rounds=8)
    assert [row.round for row in tool.rows] == history.rounds.tolist() == [0, 2, 4, 6, 8]
    assert tool.rows[1].values.keys() == tool.rows[0].values.keys() - {"loss"}
    assert tool.said[0] == ("open", "losac", None)
    assert tool.said[-1] == ("close", "finished")


def test_the_end_is_told_as_it_was(tmp_path):
    class Stops(Callback):
        def on_evaluation(self, moment):
            moment.stop()

    tool = Written()
    simulate(callbacks=[tool, Stops()], sampling=lambda *_: [0, 1], clients_per_round=2)
    with pytest.raises(losac.DivergedError):
        simulate(callbacks=[tool], algorithm=ALGORITHM.replace(step_size=1e30), rounds=12)
    with pytest.raises(OSError, match="no space"):
        simulate(callbacks=[tool, Breaks()])
    assert [said[1] for said in tool.said if said[0] == "close"] == ["stopped", "diverged", "failed"]


def test_the_time_that_a_tool_takes_to_begin_is_not_the_runs():
    class Slow(Written):
        def open(self, facts, run_id):
            time.sleep(1)
            return "run"

    began = time.perf_counter()
    first = simulate(callbacks=[Slow()])
    assert first.seconds[-1] < time.perf_counter() - began - 1


def test_one_tracker_serves_runs_one_after_another():
    tool = Written()
    first = simulate(callbacks=[tool])
    simulate(callbacks=[tool], state=first, rounds=2)
    other = simulate(seed=4)
    simulate(callbacks=[tool], state=other, rounds=2, seed=4)
    opened = [said for said in tool.said if said[0] == "open"]
    assert [run_id for *_, run_id in opened] == [None, "run 1", None], "another seed is another run"
    assert [row.round for row in tool.rows] == [0, 2, 4, 6, 8, *other.rounds, 8]


def test_where_objects_lie_in_memory_does_not_make_another_run(tmp_path):
    class Optimizer:
        def __call__(self, step_size):
            return optax.sgd(step_size)

    memory = tmp_path / "losac.json"
    made = [losac.algorithms.fedavg(1e-3, local_optimizer=Optimizer()) for _ in range(2)]
    part = simulate(algorithm=made[0], callbacks=[Written(memory)])
    again = Written(memory)
    simulate(algorithm=made[1], callbacks=[again], state=part, rounds=2)
    assert again.said[0] == ("open", "fedavg", "run 1")
    assert [row.round for row in again.rows] == [8]


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(ValueError, match=r"no tracker 'tensorbord' \(did you mean 'tensorboard'\?\); there are tensor"):
        make_tracker("tensorbord", None)


@pytest.mark.parametrize("name", TRACKERS)
def test_without_a_folder_the_way_out_is_named(name, place):
    with pytest.raises(ValueError, match=f"{name} needs a folder to write to: give --out DIR"):
        make_tracker(name, None)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_says_what_to_install(name, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for module in [m for m in sys.modules if m.split(".")[0] == PACKAGES[name]]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    with pytest.raises(ImportError, match=r"pip install 'losac\[tracking\]'"):
        make_tracker(name, tmp_path)


def test_trackers_load_no_tool_before_one_is_made():
    code = f"import losac.tracking, sys; print([m for m in {list(PACKAGES.values())} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_services_of_weights_and_biases_end_with_the_process(place):
    pytest.importorskip("wandb", reason="wandb is not here: pip install 'losac[tracking]'")
    psutil = pytest.importorskip("psutil")
    code = """
import losac, psutil, sys
from losac.tracking import make_tracker
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from problems import quadratic
task = quadratic(clients=4, samples=6, dim=3).task
losac.simulate(task, losac.algorithms.fedavg(1e-3), rounds=2, callbacks=[make_tracker("wandb", Path(sys.argv[1]))])
print(*(child.pid for child in psutil.Process().children(recursive=True)))
"""
    command = [sys.executable, "-c", code, str(place / "run"), str(TESTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    started = [int(pid) for pid in done.stdout.split()]
    assert started
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in started if psutil.pid_exists(pid)], timeout=10)
    assert not alive


def test_the_page_on_tracking_runs(place, monkeypatch):
    for name in PACKAGES.values():
        pytest.importorskip(name, reason=f"{name} is not here: pip install 'losac[tracking]'")
    (place / "page").mkdir()
    monkeypatch.chdir(place / "page")
    names = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*``noload`` loader strategy", category=DeprecationWarning)
        exec("\n".join(blocks("docs/tracking.md")), names)
    sys.modules["wandb"].teardown()
    told = read_mlflow(names["callbacks"][1], None, "digits")[1]
    assert list(told["accuracy"]) == names["longer"].rounds.tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert names["stopped"].rounds[-1] < 1000
    assert {path.name for path in (place / "page").iterdir()} == {"runs", "runs.db"}
