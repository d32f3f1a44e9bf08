"""Every example of the gallery runs, shows what it says and draws its picture; on real data where it is there."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import losac
from paths import ROOT

GALLERY = ROOT / "examples" / "gallery"
EXAMPLES = sorted(path.stem for path in GALLERY.glob("[0-9]*.py"))


@pytest.fixture
def example(monkeypatch):
    """Load a script as Python runs it: with its own folder on the path."""
    monkeypatch.syspath_prepend(str(GALLERY))

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"gallery_{name}", GALLERY / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in ("federations", "table_page"):
        sys.modules.pop(name, None)


def test_the_page_shows_every_example():
    page = (ROOT / "docs" / "gallery.md").read_text()
    for name in EXAMPLES:
        assert f"examples/gallery/{name}.py" in page
        assert f"assets/gallery/{name}.png" in page
        assert 2_000 < (ROOT / "docs" / "assets" / "gallery" / f"{name}.png").stat().st_size < 60_000


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_say_what_they_show_and_how_they_are_run(name):
    text = (GALLERY / f"{name}.py").read_text()
    assert re.match(r'"""[^\n]+\.\n', text)
    assert f"python examples/gallery/{name}.py [picture.png]" in text


def drawn(path: Path) -> bool:
    return path.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.real_data
def test_people(example, real_data, tmp_path, capsys):
    judged = example("01_har").main(str(tmp_path / "har.png"), rounds=20)
    assert drawn(tmp_path / "har.png")
    assert capsys.readouterr().out.count("unseen people") == 3
    assert all(found.mean("accuracy") > 0.5 >= found.std("accuracy") for found in judged.values())


@pytest.mark.real_data
def test_recordings(example, real_data, tmp_path):
    module = example("02_esr")
    parts = module.esr(multiclass=True)
    seen = [set(part.groups.tolist()) for part in parts]
    assert len(set.union(*seen)) == sum(map(len, seen))
    judged = module.main(str(tmp_path / "esr.png"), rounds=20)
    assert drawn(tmp_path / "esr.png")
    assert judged["new recordings"].mean("accuracy") > 0.3


@pytest.mark.real_data
def test_sparse_support(example, real_data, tmp_path):
    kept = example("03_a9a_l1").main(str(tmp_path / "a9a.png"))
    assert drawn(tmp_path / "a9a.png")
    assert kept["LoSAC-Prox"] == kept["pooled"]
    assert 3 < len(kept["pooled"]) < 60


def test_low_rank(example, tmp_path):
    singular = example("04_low_rank").main(str(tmp_path / "rank.png"))
    assert drawn(tmp_path / "rank.png")
    assert (singular["nuclear norm"] > 1e-2).sum() == 3 < (singular["least squares"] > 1e-2).sum()


def test_torch(example, tmp_path):
    pytest.importorskip("torch")
    if not hasattr(losac, "torch"):
        pytest.skip("this version has no losac.torch")
    run = example("05_torch_cnn").main(str(tmp_path / "torch.png"), rounds=4)
    assert drawn(tmp_path / "torch.png")
    assert run.final("loss") < run.metrics["loss"][0]


def test_transformer(example, tmp_path):
    run = example("06_flax_transformer").main(str(tmp_path / "text.png"), rounds=12, clients=6, lines=20)
    assert drawn(tmp_path / "text.png")
    assert run.final("accuracy") > 0.6


def test_hugging_face(example, tmp_path):
    pytest.importorskip("datasets")
    if not hasattr(losac.data, "read"):
        pytest.skip("this version has no losac.data.read")
    found = example("07_hugging_face").main(str(tmp_path / "shops.png"))
    assert drawn(tmp_path / "shops.png")
    assert found.after.mean("accuracy") > found.before.mean("accuracy")


def test_own_algorithm(example, tmp_path):
    module = example("08_own_algorithm")
    sweep = module.main(str(tmp_path / "own.png"))
    assert drawn(tmp_path / "own.png")
    losses = [run.final("loss") for run in sweep.members]
    assert losses == sorted(losses, reverse=True)


def test_without_memory_the_own_algorithm_is_fedavg(example):
    module = example("08_own_algorithm")
    data = losac.data.load("logistic", clients=4, samples=12, dim=3)
    task = losac.classification(losac.models.softmax_regression(3, 2), data)
    run = {"rounds": 5, "clients_per_round": 2, "eval_every": 5, "dtype": "float64"}
    own = losac.simulate(task, module.Heavyball(0.01, 2, 2, memory=0.0), **run)
    ours = losac.simulate(task, losac.algorithms.fedavg(0.01, 2, 2), **run)
    assert own.final("loss") == pytest.approx(ours.final("loss"), rel=1e-12)


@pytest.mark.real_data
def test_the_table_of_all_algorithms_goes_on_where_it_stopped(example, real_data, tmp_path, monkeypatch):
    table = example("table")
    monkeypatch.setattr(table, "SEEDS", (0, 1))
    options = {"algorithms": ("dsgd",), "rounds": 3}
    page = table.main(tmp_path, out=tmp_path / "table.md", **options)
    assert (tmp_path / "table.md").read_text() == page
    assert page.count("| `dsgd` |") == 2
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 1 + 4
    monkeypatch.setattr(table, "job", None)
    assert table.main(tmp_path, **options) == page
    with pytest.raises(ValueError, match="rounds=3, not 4; give another --jobs"):
        table.main(tmp_path, algorithms=("dsgd",), rounds=4)


def test_every_algorithm_has_a_start_and_the_same_budget(example):
    table = example("table")
    for name in losac.algorithms.ALGORITHMS:
        points = 1
        for values in losac.tuning.default_space(name, 1.0).values():
            points *= len(values)
        assert points == 32
        assert table.start(name).label == name


def jobs(found, data="har"):
    """Jobs of two judged clients for each seed."""
    return [
        {
            "data": data, "algorithm": name, "seed": seed, "rounds": 40, "settings": {"step_size": 0.1}, "edge": [],
            "trials": 32, "validation": 0.5, "diverged": 7 if value is None else None, "accuracy": [value or 0.0] * 2,
        }
        for name, values in found.items()
        for seed, value in enumerate(values)
    ]  # fmt: skip


def test_ties_are_decided_seed_by_seed_and_for_all_comparisons_at_once(example):
    compared = example("table_page").compared
    seeds = np.array([0.5, 0.6, 0.7, 0.8, 0.9])
    rng = np.random.default_rng(0)
    found = {
        "slower": (seeds - 0.2 + 0.001 * rng.normal(size=5)).tolist(),
        "best": seeds.tolist(),
        "same": seeds.tolist(),
        "noisy": (seeds + np.array([0.05, -0.3, 0.05, 0.05, 0.05])).tolist(),
        "lost": [0.9, 0.9, 0.9, 0.9, None],
    }
    lines = {line.name: line for line in compared(jobs(found))}
    assert list(lines) == ["best", "noisy", "same", "lost", "slower"]
    assert [line.tied for line in lines.values()] == [True, True, True, False, False]
    assert lines["best"].accuracy.mean == pytest.approx(0.7)
    assert lines["slower"].behind.half < lines["slower"].accuracy.half
    assert lines["lost"].accuracy is None
    differences = np.array(found["best"]) - found["noisy"]
    quantile = 4.3147  # of Student's t, 4 degrees of freedom, two-sided at 5 % over the 4 comparisons
    assert lines["noisy"].behind.half == pytest.approx(quantile * differences.std(ddof=1) / 5**0.5, rel=1e-3)


def test_methods_that_coincide_are_compared_once(example):
    found = jobs({name: [0.5] * 5 for name in ("fedavg", "feddualavg", "fedmid", "fedavg_momentum", "fedsaga")})
    page = example("table_page").page(found, {"har": "caption"}, {"har": "HAR"})
    assert "Tied with the best: 3 of 3" in page  # FedAvg-M stays: nothing here is FedCM
    assert "Because 2 methods are compared with the best at once" in page
    assert "| `fedsaga` (1/S) |" in page


def test_the_page_of_the_table_says_its_rule_before_the_numbers_and_ranks_nobody(example):
    module = example("table_page")
    found = jobs({"b": [0.5] * 5, "a": [0.5] * 5, "c": [0.5, 0.5, 0.5, 0.5, None]})
    page = module.page(found, {"har": "caption"}, {"har": "HAR"})
    assert page.index("## The rules") < page.index("## HAR") < page.index("| `a` |") < page.index("| `b` |")
    assert "Tied with the best: 2 of 3" in page
    assert "Behind the best or diverged: 1 of 3" in page
    assert "1 of 5 diverged" in page


def test_the_published_table_is_what_its_jobs_say(example):
    """Its algorithms, five seeds each, and the groups that the rule on the page makes of the numbers in the file."""
    import pandas as pd

    module, docs = example("table_page"), ROOT / "docs"
    rows = pd.read_csv(docs / "gallery_table.csv")
    page = (docs / "gallery_table.md").read_text()
    assert set(rows["algorithm"]) <= set(losac.algorithms.names())
    assert len(rows) == 2 * 5 * rows["algorithm"].nunique()
    for data, title in (("har", "## HAR"), ("esr", "## ESR")):
        mine = rows[rows["data"] == data]
        values = mine.pivot(index="algorithm", columns="seed", values="test_accuracy")
        values = values.where(mine.pivot(index="algorithm", columns="seed", values="diverged").isna(), np.nan)
        found = {name: [None if np.isnan(v) else v for v in row] for name, row in values.iterrows()}
        lines = module.compared(jobs(found, data))
        section = page[page.index(title) :].split("\n## ")[0]
        assert re.findall(r"^\| `(\w+)`(?: \(1/S\))? \|", section, flags=re.MULTILINE) == [line.name for line in lines]
        assert f"Tied with the best: {sum(line.tied for line in lines)} of {len(lines)}" in section


def test_adapters(example, tmp_path, capsys):
    module = example("09_lora")
    small = {"rounds": 1, "epochs": 1, "clients": 2, "rows": 10, "steps": (0.3,), "letters": 3_000}
    results = module.main(str(tmp_path / "lora.png"), compared=(), rules=("fedsa",), **small)
    assert drawn(tmp_path / "lora.png")
    assert list(results) == ["pretrained", "FedSA-LoRA"]
    assert results["FedSA-LoRA"].up == 6 * 4 * 48 * 4 / 1e6  # one client's A of six matrices
    assert "2304 parameters on 67104 frozen ones" in capsys.readouterr().out
