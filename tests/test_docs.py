"""The code in the docs runs, and the commands in them exist."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import click
import numpy as np
import pytest
import typer

import losac
from losac.cli.app import app
from paths import ROOT
from problems import quadratic

PAGES = [*sorted(path for path in ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
GUIDES = (
    "index",
    "concepts",
    "own_data",
    "own_model",
    "metrics",
    "schedules",
    "sampling",
    "faq",
    "coming_from/flower",
    "coming_from/fedjax",
    "coming_from/pfllib",
    "coming_from/pfl",
    "lora",
    "sklearn",
    "gallery",
    "runs",
    "simulator",
    "gpu",
    "cluster",
    "clients",
    "robust",
    "architecture",
)


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)


def test_the_algorithm_of_the_page_on_writing_one_is_fedavg(monkeypatch):
    code = blocks("docs/algorithm.md")
    page = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", page)
    exec("\n".join(code), vars(page))
    assert page.report.passed
    problem = quadratic(clients=5, samples=8, dim=3)
    run = {"rounds": 4, "clients_per_round": 2, "dtype": "float64"}
    own = losac.simulate(problem.task, page.Localgd(1e-3, 3, 2, server_step=1.5), **run)
    ours = losac.simulate(problem.task, losac.algorithms.fedavg(1e-3, 3, 2, server_step=1.5), **run)
    np.testing.assert_allclose(own.params, ours.params, rtol=1e-13)


def test_the_readme_runs(tmp_path, monkeypatch):
    """As it is, with fewer rounds."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(blocks("README.md"))
    assert "rounds=100" in code
    exec(code.replace("rounds=100", "rounds=4"), {})
    assert (tmp_path / "digits.png").stat().st_size > 10_000


@pytest.mark.parametrize("page", GUIDES)
def test_the_guides_run(page, tmp_path, monkeypatch):
    """As they are: their blocks, one after the other, are one program on the embedded data."""
    monkeypatch.chdir(tmp_path)
    code = blocks(f"docs/{page}.md")
    assert code
    missing = [package for package in ("torch", "equinox") if find_spec(package) is None]
    names = [re.compile(rf"\b(import {package}|{package}\.simulate)\b") for package in missing]
    shown = [block for block in code if not any(name.search(block) for name in names)]
    exec("\n".join(shown), {"__name__": page})
    if len(shown) < len(code):
        pytest.skip(f"{' and '.join(missing)} not installed: the blocks of docs/{page}.md that need it were left out")


def commands(page: Path) -> list[list[str]]:
    """The losac commands of a page's console blocks, in words."""
    shell = "\n".join(re.findall(r"```(?:console|sh)\n(.*?)```", page.read_text(), flags=re.DOTALL))
    words = [shlex.split(line, comments=True) for line in shell.replace("\\\n", " ").splitlines()]
    found: list[list[str]] = []
    for line in words:
        parts = " ".join(shlex.quote(word) if word not in ("&&", "|", ";") else "\0" for word in line).split("\0")
        found += [shlex.split(part) for part in parts]
    return [line[1:] for line in found if line[:1] == ["losac"]]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_every_command_of_the_docs_exists(page):
    """Its name and the names of its options; nothing is run."""
    for words in commands(page):
        command, name, rest = typer.main.get_command(app), "losac", list(words)
        while isinstance(command, click.Group):
            name = rest.pop(0)
            assert name in command.commands, f"{page.name}: there is no command losac {' '.join(words)}"
            command = command.commands[name]
        command.make_parser(click.Context(command, info_name=name)).parse_args(rest)


def test_every_link_of_the_docs_leads_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_page_on_tuning_runs():
    """With fewer rounds and trials."""
    (code,) = blocks("docs/tuning.md")
    for old, new in (("trials=16", "trials=2"), ("rounds=50", "rounds=4")):
        assert old in code
        code = code.replace(old, new)
    names = {}
    exec(code, names)
    assert names["history"].settings["step_size"] == names["tuning"].best["step_size"]


def test_the_page_on_privacy_runs():
    pytest.importorskip("dp_accounting")
    pytest.importorskip("flwr")
    names = {}
    exec("\n".join(blocks("docs/privacy.md")), names)
    assert np.isfinite(names["history"].final("loss"))
    assert 4 < names["server"] < 16
    assert 0.5 < names["z"] < 4
    assert names["app"] is not None


def test_the_page_on_leakage_runs():
    (code,) = blocks("docs/leakage.md")
    names = {}
    exec(code, names)
    assert len(names["estimates"]) == 6


def test_the_page_of_algorithms_can_be_written(monkeypatch):
    """All but its measurements, which take minutes."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    written = importlib.import_module("generate_algorithms")
    assert written.page({}).startswith("# The algorithms")
    for name in losac.algorithms.names():
        assert f"### {name}\n" in written.section(name, written.Study(None, [], ""))
