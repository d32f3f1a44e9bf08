"""The way of the data is the way of the imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import losac

ROOT = Path(losac.__file__).parent
LAYERS = [
    {"_settings", "_compat", "_devices", "_extras", "_files", "_folders", "trees"},
    {"data"},
    {"prox", "losses", "models", "task"},
    {"algorithms"},
    {"simulation"},
    {"history"},
    {"evaluation"},
    {"tracking"},
    {"runs"},
    {"privacy"},
    {"federation"},
    {"torch"},
    {"flower"},
    {"tuning"},
    {"sklearn", "testing"},
    {"report"},
    {"attacks"},
    {"board"},
    {"reproduce"},
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


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    part = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    assert part in RANK, f"{part} has no place in the way of the data"
    against = {name for name in imported(path) if RANK[name] > RANK[part]}
    assert not against, f"{part} imports {against}, which come after it"


def test_importing_losac_loads_nothing_heavy():
    code = "import losac, sys; print([m for m in ('jax', 'pandas', 'matplotlib', 'sklearn') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_public_names_are_there():
    for name in losac.__all__:
        assert getattr(losac, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        losac.simulat  # noqa: B018
