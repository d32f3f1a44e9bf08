"""What is built, declared and installed: the package as others get it."""

from __future__ import annotations

import ast
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from email.parser import Parser
from importlib.metadata import packages_distributions
from importlib.util import find_spec

import pytest

import losac
from paths import ROOT
from test_docs import blocks

SOURCE = ROOT / "src" / "losac"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of an sdist, and of the wheel that is built from it."""
    if find_spec("hatchling") is None or find_spec("build") is None:
        pytest.skip("hatchling and build are not here: pip install -c constraints.txt -e '.[dev]'")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as opened:
        yield opened


def sources():
    """All files of the package, by their path in a wheel."""
    files = (path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(SOURCE.parent).as_posix() for path in files}


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == sources()
    assert {"losac/py.typed", "losac/report/page.html", "losac/deploy/templates/problem.py.txt"} <= names


def test_the_sdist_holds_what_builds_and_tests_it(built):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"src/" + name for name in sources()} <= names
    assert {"pyproject.toml", "constraints.txt", "Makefile", "README.md", "LICENSE"} <= names
    for folder in ("tests", "docs", "examples", "benchmarks"):
        held = {p.relative_to(ROOT).as_posix() for p in (ROOT / folder).glob("*.py")}
        assert held <= names


def test_the_metadata_is_complete(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    told = Parser().parsestr(wheel.read(name).decode())
    assert told["Version"] == PROJECT["version"] == losac.__version__
    assert told["License-Expression"] == "MIT"
    assert told["Description-Content-Type"] == "text/markdown"
    assert set(told.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert "Typing :: Typed" in told.get_all("Classifier")
    (entry,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "losac = losac.__main__:main" in wheel.read(entry).decode()
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_every_package_that_is_imported_is_declared():
    """Also those that come along with others today."""
    declared = [*PROJECT["dependencies"], *(d for extra in PROJECT["optional-dependencies"].values() for d in extra)]
    known = {_name(requirement) for requirement in declared}
    distributions = packages_distributions()
    imported = set().union(*map(_imported, SOURCE.rglob("*.py"))) - set(sys.stdlib_module_names) - {"losac"}
    assert {"jax", "flwr"} <= imported
    names = {module: {_name(name) for name in distributions.get(module, [module])} for module in imported}
    assert not [module for module in imported if not names[module] & known], "pyproject.toml does not name these"


def _name(requirement):
    for end in "[<>=!~; ":
        requirement = requirement.partition(end)[0]
    return requirement.lower().replace("_", "-").replace(".", "-")


def _imported(path):
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_import_is_quick():
    """The promise is 1.5 s; a bare interpreter's start is counted in."""
    took = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import losac"], check=True)
        took.append(time.perf_counter() - began)
    assert min(took) < 1.5


def test_a_users_type_checker_accepts_the_readme_and_refuses_a_wrong_call(tmp_path):
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text("\n".join(blocks("README.md")), encoding="utf-8")
    wrong.write_text(
        "import losac\n"
        'task = losac.classification(losac.models.softmax_regression(64, 10), losac.data.load("digits", clients=9))\n'
        'losac.simulate(task, losac.algorithms.fedavg(1e-3), rounds="ten")\n'
    )
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(right), str(wrong)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    assert len(told) == 2, told
    assert 'wrong.py:3: error: Argument "rounds" to "simulate" has incompatible type "str"; expected "int"' in told[0]


MISSING = {
    "flwr": ("import losac.flower", "flower"),
    "psutil": ("import losac.deploy", "flower"),
    "cryptography": ("from losac.deploy.certificates import node_key", "flower"),
    "Crypto": ("import losac.federation.secure.primitives", "flower"),
    "optuna": ("losac.tune(TASK, fedavg(1e-3), {'step_size': [1e-3]}, search='optuna', trials=1, rounds=1)", "tune"),
    "dp_accounting": ("losac.privacy.epsilon(NOISED, rounds=5, clients=10)", "privacy"),
    "torch": ("from losac.federation.torch import start_params; start_params(None)", "torch"),
    "tensorboardX": ("losac.tracking.TensorBoard('runs')", "tracking"),
    "mlflow": ("losac.tracking.MLflow()", "tracking"),
    "wandb": ("losac.tracking.WandB()", "tracking"),
    "ray": ("losac.jobs.open_engine(losac.jobs.Workers(on='ray', address='auto'))", "ray"),
    "submitit": ("losac.jobs.open_engine(losac.jobs.Workers(on='slurm'))", "slurm"),
}
BLOCK = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""
SETUP = """
import losac
from losac.algorithms import fedavg, gaussian
TASK = losac.classification(losac.models.softmax_regression(64, 10), losac.data.load("digits", clients=3))
NOISED = fedavg(1e-3, uploads=(gaussian(1.0, 1.0),))
"""


def test_a_missing_extra_is_an_error_that_says_what_to_install(tmp_path):
    """All are missing at once, so that one process tells of all of them."""
    tries = "".join(
        f"try:\n    {code}\nexcept ImportError as error:\n    print({name!r}, isinstance(error, ValueError), error)\n"
        for name, (code, _) in MISSING.items()
    )
    code = BLOCK.format(names=list(MISSING)) + SETUP + tries
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert set(told) == set(MISSING)
    for name, (_, extra) in MISSING.items():
        assert f"{name} True" in told[name]
        assert f"pip install 'losac[{extra}]'" in told[name]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command",
    [["tune", "fedavg", "--search", "optuna", "--rounds", "1"], ["deploy", "keys", "k", "--host", "h"]],
)
def test_on_the_command_line_a_missing_extra_is_one_line(command, tmp_path):
    code = BLOCK.format(names=["optuna", "psutil"]) + f"from losac.cli import app\napp({command})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert "pip install 'losac[" in line
