"""``losac bench``: settings that are complete, and a run of one beside the published numbers."""

from __future__ import annotations

import json

import pytest

import losac.bench.setting
from commands import losac as command
from commands import refused
from losac.bench import names, read_setting
from losac.experiment.options import Experiment
from losac.experiment.schema import field_names

SMALL = """
[bench]
version = 3
title = "small"
paper = "none"
differences = "none"
metric = "accuracy"
target = 0.2
measure = "rounds"
[problem]
data = "digits"
clients = 5
[simulation]
rounds = 6
clients_per_round = 5
until = "accuracy=0.2"
[[rows]]
name = "reached, IID"
published = 2
algorithm = "fedavg:step_size=1e-3,local_steps=2,blocks=2"
problem = { partition = "iid" }
[[rows]]
name = "never"
algorithm = "fedavg:step_size=1e-9,local_steps=1,blocks=1"
problem = { model = "2nn" }
simulation = { rounds = 1 }
"""


@pytest.mark.quick
def test_every_setting_can_be_built():
    assert {"fedavg_mnist_2nn", "niid_mnist", "scaffold_emnist", "fedprox_synthetic"} <= set(names())
    for name in names():
        setting = read_setting(name)
        assert setting.version >= 1
        assert len({row.name for row in setting.rows}) == len(setting.rows)
        assert (setting.target is None) == (setting.measure != "rounds")
        for row in setting.rows:
            assert set(row.problem) <= set(field_names("problem"))
            assert set(row.simulation) <= set(field_names("simulation"))
            (built,) = Experiment(**row.problem, **row.simulation).build_algorithms([row.algorithm])
            assert built.label in ("fedavg", "fedprox", "scaffold")


def test_a_benchmark_runs_continues_and_says_how_far_it_is(tmp_path, monkeypatch):
    (tmp_path / "small.toml").write_text(SMALL)
    monkeypatch.setattr(losac.bench.setting, "FOLDER", tmp_path)
    out = str(tmp_path / "out")
    result = command("bench", "run", "small", "--out", out, "--json")
    assert result.exit_code == 0, result.output
    first, never = json.loads(result.stdout)["rows"]
    assert first["ours"] >= 1
    assert first["distance"] == first["ours"] - 2
    assert (never["ours"], never["values"]) == (None, [None])
    before = {path: path.stat().st_mtime for path in (tmp_path / "out" / "runs").glob("*/history.npz")}
    assert len(before) == 2
    again = command("bench", "run", "small", "--out", out, "--resume", "--rows", "IID")
    assert again.exit_code == 0, again.output
    assert "small, version 3" in again.stdout
    assert {path: path.stat().st_mtime for path in before} == before
    assert "is not empty" in refused("bench", "run", "small", "--out", out)
    assert "no row of small" in refused("bench", "run", "small", "--rows", "CNN")
    assert "unknown benchmark 'smal' (did you mean 'small'?)" in refused("bench", "run", "smal")
