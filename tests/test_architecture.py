"""Imports point one way, along the flow of the data, and random streams have names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import losac
import losac_reproduction

pytestmark = pytest.mark.quick
ROOT, STUDIES = Path(losac.__file__).parent, Path(losac_reproduction.__file__).parent
LAYERS = [
    {
        "_checks",
        "_costs",
        "_functions",
        "_options",
        "_own",
        "_seeds",
        "_settings",
        "_compat",
        "_devices",
        "_extras",
        "_claim",
        "_files",
        "_folders",
        "_random",
        "_units",
        "schedules",
        "trees",
    },
    {"data"},
    {"prox", "losses", "models", "metrics", "task"},
    {"algorithms"},
    {"history"},
    {"simulation"},
    {"adapters", "evaluation"},
    {"tracking"},
    {"runs"},
    {"jobs"},
    {"privacy"},
    {"federation"},
    {"torch"},
    {"flower"},
    {"tuning"},
    {"sklearn", "testing"},
    {"report"},
    {"attacks"},
    {"experiment"},
    {"bench"},
    {"board"},
    {"deploy"},
    {"cli", "__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def imported(path: Path) -> set[str]:
    """The parts of losac that a file imports when it is loaded (imports inside functions are not loaded with it)."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "losac":
            parts = node.module.split(".")
            names |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("losac.")}
    return names - {"__version__"}


def test_imports_point_one_way():
    """No file imports what comes after its own folder; folders without a place in the way of the data are named too."""
    parts = {path: path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")}
    files = {path: part for path, part in parts.items() if part != "__init__"}
    assert not set(files.values()) - RANK.keys(), "these have no place in the way of the data"
    against = {
        str(path.relative_to(ROOT)): later
        for path, part in files.items()
        if (later := sorted(name for name in imported(path) if RANK[name] > RANK[part]))
    }
    assert not against, "files that import what comes after them"


STREAMS = {"fold_in", "split", "key", "PRNGKey", "default_rng", "SeedSequence", "RandomState"}


def test_random_streams_are_named_in_one_file():
    """A key derived elsewhere, by a bare number, may be the key of something else too."""
    found = []
    for path in sorted([*ROOT.rglob("*.py"), *STUDIES.rglob("*.py")]):
        if path.name == "_random.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            dotted = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            imports = isinstance(node, ast.ImportFrom) and node.module in ("jax.random", "numpy.random")
            if (dotted.rpartition(".")[0].endswith("random") and dotted.rpartition(".")[2] in STREAMS) or imports:
                found.append(f"{path}:{node.lineno}")
    assert not found, (
        f"{found} derive random keys or seed generators: give the stream a name in the package's _random.py"
    )


def test_importing_losac_loads_nothing_heavy():
    code = "import losac, sys; print([m for m in ('jax', 'pandas', 'matplotlib', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_earlier_names_still_work():
    from losac import history, tracking

    assert (history.simulate, history.sweep, history.Sweep) == (losac.simulate, losac.sweep, losac.Sweep)
    assert tracking.Row is tracking.MetricRow
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        history.simulat  # noqa: B018


def test_the_public_names_are_there():
    for name in losac.__all__:
        assert getattr(losac, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        losac.simulat  # noqa: B018
