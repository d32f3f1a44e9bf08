"""Every example of the gallery runs, shows what it says and draws its picture; on real data where it is there."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import losac

ROOT = Path(__file__).parent.parent
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
    sys.modules.pop("federations", None)


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
def test_the_table_of_all_algorithms(example, real_data, tmp_path):
    """With one algorithm and few rounds; the budget is ten trials whichever it is."""
    table = example("table")
    page = table.main(("fedavg",), rounds=3, out=tmp_path / "table.md")
    assert (tmp_path / "table.md").read_text() == page
    assert page.count("| `fedavg` |") == 2
    data = losac.data.load("logistic", clients=4)
    for name in losac.algorithms.ALGORITHMS:
        points = 1
        for values in table.grid(name, data).values():
            points *= len(values)
        assert points == 10
        assert table.start(name).label == name
