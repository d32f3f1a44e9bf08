"""What users wrote, on the command line and in files: algorithms, data, models, metrics and samplers by name."""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from commands import losac, refused
from losac._functions import digest
from losac._own import load_own
from losac.runs import open_run

MINE = '''
import numpy as np
import losac
from losac.algorithms import LocalMethod
from losac.trees import axpy, sub


class Mine(LocalMethod):
    """Local gradient descent."""

    pull: float = 1.0

    def step(self, here, x, client, w, grad):
        return axpy(-self.step_size, grad(w), w)

    def end(self, here, x, client, w):
        return sub(w, x), client

    def update(self, here, x, received):
        return axpy(1.0 / received.count, received.total, x)


def rows(clients=4, seed=0):
    rng = np.random.default_rng(seed)
    parts = [(rng.normal(size=(8, 3)).astype("float32"), rng.integers(0, 2, 8)) for _ in range(clients)]
    return losac.FederatedData.from_clients(parts, num_classes=2)


def net(inputs, classes):
    return losac.models.Dense((inputs, 2, classes))


def ones(params, batch):
    return batch[1].mean() * 1.0


def pairs(round_index, rng, history):
    return [round_index % 4, (round_index + 1) % 4]


class Turns:
    def __init__(self, clients):
        self.clients = clients

    def __call__(self, round_index, rng, history):
        return [round_index % self.clients]


broken = 1 / 1
'''
USED = (
    "--data", "mine.py:rows", "--model", "mine.py:net", "--algorithm", "mine.py:Mine", "--metrics", "mine.py:ones",
    "--metrics", "macro_f1", "--sampling", "mine.py:pairs", "--clients-per-round", "2", "--blocks", "2",
)  # fmt: skip


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


@contextmanager
def syspath(folder):
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def forget():
    """As a new process would, read files again."""
    import losac._own

    losac._own._run.cache_clear()


def test_a_run_of_ones_own_continues_and_is_refused_when_the_code_changes(mine):
    result = losac("run", *USED, "--rounds", "2", "--step-size", "cosine:0.1:10", "--out", "run")
    assert result.exit_code == 0, result.output
    said = tomllib.loads((mine.parent / "run" / "experiment.toml").read_text())
    assert said["problem"] | {"reduction": ""} == {
        "data": "mine.py:rows", "model": "mine.py:net", "metrics": ["mine.py:ones", "macro_f1"], "reduction": "",
    }  # fmt: skip
    assert (said["algorithm"]["name"], said["algorithm"]["step_size"]) == ("mine.py:Mine", "cosine:0.1:10")
    assert said["simulation"]["sampling"] == "mine.py:pairs"
    assert losac("run", "--out", "run", "--resume", "--rounds", "3").exit_code == 0
    assert open_run("run").last == 3
    for before, after, words in (
        ("-self.step_size", "-2 * self.step_size", "other code of the algorithm"),
        ("+ 1) % 4", "+ 2) % 4", "another sampling"),
        ("batch[1].mean()", "batch[1].max()", "other metrics"),
        ("(inputs, 2,", "(inputs, 3,", "parameters = 14, and now it is 20"),
        ("normal(size", "uniform(size", "other data"),
    ):
        mine.write_text(MINE.replace(before, after))
        forget()
        assert words in refused("run", "--out", "run", "--resume", "--rounds", "4"), words
    mine.write_text(f"# the same, one line further down\n{MINE}")
    forget()
    assert losac("run", "--out", "run", "--resume", "--rounds", "4").exit_code == 0


def test_compare_and_tune_take_them_too(mine):
    shared = ["--data", "mine.py:rows", "--clients", "3", "--blocks", "2", "--rounds", "1"]
    entries = ["mine.py:Mine", "mine.py:Mine:local_steps=1"]
    result = losac("compare", *entries, *shared, "--sampling", "mine.py:Turns", "--seeds", "0", "--out", "both")
    assert result.exit_code == 0, result.output
    runs = sorted(path.name for path in (mine.parent / "both" / "runs").iterdir())
    assert runs == ["mine.py-Mine-local_steps-1-seed0", "mine.py-Mine-seed0"]
    space = ["--space", "step_size=0.01,0.1", "--no-widen", "--metric", "mine.py:ones"]
    result = losac("tune", "mine.py:Mine", *shared, *space, "--out", "tuned")
    assert result.exit_code == 0, result.output
    best = tomllib.loads((mine.parent / "tuned" / "best.toml").read_text())
    assert (best["algorithm"]["name"], best["tuned"]["metric"]) == ("mine.py:Mine", "validation ones")
    assert best["problem"]["metrics"] == ["mine.py:ones"]


def test_every_other_command_takes_them_or_says_why_not(mine):
    """But for running an app between processes, which tests/deploy does with others'."""
    told = losac("algorithms", "mine.py:Mine", "--model", "mine.py:net", "--json")
    (row,) = json.loads(told.stdout)
    assert (row["name"], row["parameters"], row["up"]) == ("mine.py:Mine", 784 * 2 + 2 + 2 * 10 + 10, 1.0)
    count = losac("attack", "algebra", "mine.py:Mine", "--rounds", "2", "--blocks", "1", "--local-steps", "1", "--json")
    assert [(row["algorithm"], row["exact"]) for row in json.loads(count.stdout)] == [("mine.py:Mine", 2)]
    assert losac("init", "own.toml", "--data", "mine.py:rows", "--algorithm", "mine.py:Mine").exit_code == 0
    own = tomllib.loads((mine.parent / "own.toml").read_text())
    assert (own["problem"]["data"], own["algorithm"]["name"]) == ("mine.py:rows", "mine.py:Mine")
    assert "clients_per_round" not in own["simulation"], "as many as there are, up to ten"
    assert "losac data show mine.py:rows" in refused("data", "inspect", "mine.py:rows")


def test_an_app_takes_users_code_along(mine):
    made = losac(
        "deploy", "init", "our-app", "--algorithm", "mine.py:Mine:pull=0.5", "--data", "mine.py:rows", "--model",
        "mine.py:net", "--clients", "3",
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    config = tomllib.loads(Path("our-app/pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert (Path("our-app/our_app/mine.py").read_text(), config["clients"], config["pull"]) == (MINE, 3, 0.5)
    with syspath("our-app"):
        problem = importlib.import_module("our_app.problem")
    assert problem.algorithm(config).pull == 0.5
    task = problem.problem({"partition-id": 2}, config)
    assert (task.data.num_clients, task.data.num_classes) == (1, 2)
    assert "an app holds no data" in refused("deploy", "init", "b", "--data", "rows.csv")
    assert "give FILE.py:NAME" in refused("deploy", "init", "b", "--algorithm", "mine:Mine")
    (mine.parent / "task.py").write_text(MINE)
    assert "cannot have a module 'task'" in refused("deploy", "init", "b", "--algorithm", "task.py:Mine")


def test_errors_name_the_line(mine):
    mine.write_text(MINE.replace("1 / 1", "1 / 0"))
    forget()
    number = len(MINE.splitlines())
    wanted = f"mine.py raised ZeroDivisionError in line {number} of mine.py: division by zero"
    assert wanted in refused("run", "--data", "mine.py:rows")
    mine.write_text(MINE)
    forget()
    assert "mine.py has no 'rwos' (did you mean 'rows'?)" in refused("run", "--data", "mine.py:rwos")
    assert "'partition'; leave it out" in refused("run", "--data", "mine.py:rows", "--partition", "iid")
    mine.write_text(
        MINE.replace("return axpy(-self", "return axyp(-self").replace(
            "= 1.0", "= losac._settings.number(kw_only=True)"
        )
    )
    forget()
    wanted = "your code raised NameError in line 14 of mine.py: name 'axyp' is not defined"
    assert wanted in refused("run", "--algorithm", "mine.py:Mine:pull=1", "--rounds", "1")
    assert "mine needs the setting pull" in refused("run", "--algorithm", "mine.py:Mine", "--rounds", "1")
    assert "no example for its setting pull" in refused("algorithms", "mine.py:Mine")
    assert "sampling must be a function (round, rng, history)" in refused("run", "--sampling", "mine.py:ones")
    mine.write_text(MINE)
    forget()
    assert "must be a losac.FederatedData" in refused("run", "--data", "mine.py:Turns", "--clients", "3")


def test_the_digest_of_a_users_class_does_not_depend_on_where_it_is(mine, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "other.py").write_text(MINE)
    kinds = [load_own(f"{path}:Mine") for path in ("mine.py", "there/other.py")]
    assert kinds[0] is not kinds[1]
    assert digest(kinds[0]) == digest(kinds[1])


def test_a_file_of_ones_own_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{b:.3f},{'yes' if a > b else 'no'},{i % 3}" for i, (a, b) in enumerate(rng.normal(size=(30, 2)))]
    (tmp_path / "visits.csv").write_text("\n".join(["a,b,sick,site", *lines]))
    said = ["--data", "visits.csv", "--label", "sick", "--client", "site", "--test", "0.2"]
    result = losac("run", *said, "--rounds", "2", "--blocks", "2", "--out", "run")
    assert result.exit_code == 0, result.output
    assert losac("run", "--out", "run", "--resume", "--rounds", "3").exit_code == 0
    assert "name the owners of the rows" in refused("run", "--data", "visits.csv", "--label", "sick")
    shown = losac("data", "show", "visits.csv", "--label", "sick", "--client", "site", "--out", "p.png")
    assert "3 clients" in shown.stdout
    (tmp_path / "visits.csv").write_text("\n".join(["a,b,sick,site", *lines[::-1]]))
    assert "other data" in refused("run", "--out", "run", "--resume", "--rounds", "4")
