"""The benchmarks measure the same thing for everybody: their plan is losac's, and their page says what was measured."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

import losac
from paths import ROOT

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def bench(monkeypatch):
    """Import the modules of the benchmarks as their scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "contenders"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def small(bench, **changes):
    """J1 on six clients."""
    return replace(bench("jobs").JOBS["J1"], clients=6, sampled=3, rows=60, check=2, **changes)


def tiny_mnist(clients: int, rows: int) -> losac.FederatedData:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((clients * rows, 784), dtype=np.float32) * 0.1
    return losac.FederatedData(x, rng.integers(10, size=len(x)).astype(np.int32), rows * np.arange(clients + 1))


@pytest.mark.parametrize("changes", [{}, {"batch_size": 12}], ids=["blocks", "shuffled batches"])
def test_a_hand_written_loop_that_follows_the_exported_plan_is_losac(bench, tmp_path, monkeypatch, changes):
    """The clients, blocks and weights in the files are those that the simulator really uses."""
    export, protocol, simulator = bench("export"), bench("protocol"), bench("simulator")
    job = small(bench, model="softmax", **changes)
    monkeypatch.setattr(export, "federated", lambda job: tiny_mnist(job.clients, job.rows))
    given = protocol.Job(str(export.export("small", job, tmp_path)))
    task = simulator.make_task(given, tiny_mnist(job.clients, job.rows), given.weights)
    ours = simulator.Simulator(task, simulator.make_algorithm(given), job.sampled)
    ours.run(job.check)

    model = task.init_params(None)
    gradient = jax.grad(task.loss)
    for r in range(job.check):
        found = []
        for slot in range(job.sampled):
            local = model
            for t in range(job.steps):
                rows = given.rows_of(r, slot, t)
                step = gradient(local, (given.x[rows], given.y[rows]))
                local = jax.tree.map(lambda w, g: w - given.rate * g, local, step)
            found.append(local)
        model = jax.tree.map(lambda *w: sum(w) / len(w), *found)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), ours.params(), model)


def test_the_planned_rows_of_a_client_are_its_own(bench, tmp_path, monkeypatch):
    export, protocol = bench("export"), bench("protocol")
    job = small(bench, model="softmax")
    monkeypatch.setattr(export, "federated", lambda job: tiny_mnist(job.clients, job.rows))
    given = protocol.Job(str(export.export("small", job, tmp_path)))
    for slot, client in enumerate(given.clients_of(0)):
        rows = given.planned_rows(0, slot)
        assert len(rows) == job.steps * job.batch
        assert set(rows // job.rows) == {client}


def test_every_job_names_contenders_that_exist_and_starts_with_losac(bench):
    jobs = bench("jobs")
    for job in jobs.JOBS.values():
        assert job.contenders[0] == "losac"
        assert set(job.contenders) <= set(jobs.CONTENDERS)
    for contender in jobs.CONTENDERS.values():
        assert (BENCHMARKS / "contenders" / contender.script).exists()
        if contender.environment != "losac":
            pins = (BENCHMARKS / "environments" / f"{contender.environment}.txt").read_text().split()
            assert all("==" in pin for pin in pins)


def test_a_contender_that_learns_something_else_is_noticed(bench):
    found = {
        "losac": {"loss": 1.0, "plan": "clients and batches", "other_seeds": [0.9, 1.1]},
        "close": {"loss": 1.0005, "plan": "clients and batches"},
        "off": {"loss": 1.01, "plan": "clients and batches"},
        "own clients": {"loss": 1.25, "plan": "its own"},
        "too far": {"loss": 1.35, "plan": "its own"},
        "broken": {"failed": "no answer"},
    }
    bench("run").judge(found)
    said = {name: one.get("agrees") for name, one in found.items()}
    assert said == {"losac": True, "close": True, "off": False, "own clients": True, "too far": False, "broken": None}


def test_a_missing_environment_is_said_and_not_fatal(bench, tmp_path, monkeypatch):
    run = bench("run")
    monkeypatch.setattr(run, "interpreter", lambda name: None)
    monkeypatch.setattr(run, "WORK", tmp_path)
    monkeypatch.setattr(bench("export"), "export", lambda *given: tmp_path / "job.json")
    result = run.measure("J1", bench("jobs").JOBS["J1"], ["fedjax"], 1, 0.1)
    assert "not built" in result["contenders"]["fedjax"]["failed"]


def test_the_page_has_the_ratio_within_each_repetition_and_the_failures(bench, tmp_path):
    one = {
        "loss": 1.0,
        "plan": "clients and batches",
        "about": "",
        "ready_seconds": 1.0,
        "peak_mb": 100.0,
        "agrees": True,
    }
    contenders = {
        "losac": one | {"seconds_per_round": [0.010, 0.020]},
        "torch_loop": one | {"seconds_per_round": [0.050, 0.060]},
        "fedjax": {"failed": "the environment fedjax is not built"},
    }
    machine = {"processor": "a processor", "cores": 2, "date": "2000-01-01", "load_before": 0.0}
    result = {"job": "J1", "title": "J1", "check": 10, "contenders": contenders, "machine": machine}
    (tmp_path / "J1.json").write_text(json.dumps(result))
    bench("page").write_page(tmp_path, tmp_path)
    page = (tmp_path / "speed.md").read_text()
    assert "4.0 (3.0–5.0)" in page
    assert "did not run: the environment fedjax is not built" in page
    assert (tmp_path / "assets" / "speed.png").stat().st_size > 5_000


@pytest.mark.parametrize(
    ("name", "kind"),
    [("dot.42", "matrix products"), ("while.7", None), ("ThunkExecutor::Execute", None), ("copy.1", "copies")],
)
def test_the_profile_counts_operations_and_not_what_contains_them(bench, name, kind):
    assert bench("profile_round").kind_of(name) == kind


PAGE = """# A page of 7 numbers

Made by `python docs/make_gallery.py`. You need Python 3.11. With T = 5 and S = 10, 30 it ends at 0.25.

| setting | default | what |
|---|---|---|
| `deadline` | 600 | seconds |

| loss | command |
|---|---|
| 0.5 | `losac reproduce fair-iid --seeds
0,1` |
"""


def test_the_blind_check_draws_measurements_and_takes_the_command_of_the_row(bench):
    check = bench("check_numbers")
    assert [PAGE[start:end] for start, end in check.numbers_in(PAGE)] == ["0.25", "0.5"]
    assert check.nearest_command(PAGE, PAGE.index("0.25")) == "python docs/make_gallery.py"
    assert check.commands_in(PAGE)[-1][2] == "losac reproduce fair-iid --seeds 0,1"
    row = "| 17 rounds | `losac reproduce fair-iid --seeds 0,1` | 45 min |"
    assert check.command_of("docs/numbers.md", row, {}) == "losac reproduce fair-iid --seeds 0,1"
    assert (
        check.nearest_command(f"`losac reproduce damped` is another.\n{row}\n", 45)
        == "losac reproduce fair-iid --seeds 0,1"
    )


def test_a_job_that_ran_again_is_compared_number_by_number(bench):
    import pandas as pd

    check = bench("check_numbers")
    metrics, values = ["loss", "best", "loss"], [2.0, "none", 3.0]
    stored = pd.DataFrame({"seed": [0.0, 0.0, 1.0], "metric": metrics, "round": [5, None, 5], "value": values})
    again = pd.DataFrame({"seed": [0, 0], "metric": metrics[:2], "round": [5.0, None], "value": [1.0, "x"]})
    assert check.distance(stored, again) == (0.5, 1)
