"""A Flower app to start from: the files of ``templates/``, filled in."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from losac.deploy.commands import toml_value

_MODELS = {
    "softmax": "losac.classification(losac.models.softmax_regression({inputs}, data.num_classes), data)",
    "2nn": "losac.classification(losac.models.two_nn({inputs}, data.num_classes), data)",
    "logistic": "losac.classification(losac.models.logistic_regression({inputs}), data)",
    "linear": "losac.regression(losac.models.Inner(data.x.shape[1:]), data)",
}
_INPUTS = "math.prod(data.x.shape[1:])"
_FILES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "problem.py": "{package}/problem.py",
    "server_app.py": "{package}/server_app.py",
    "client_app.py": "{package}/client_app.py",
}


def write_app(
    folder: Path,
    *,
    algorithm: str,
    settings: Mapping[str, Any],
    data: str,
    model: str,
    partition: str | None,
    clients: int,
    clients_per_round: int,
    rounds: int,
) -> list[Path]:
    """Write an app into a new or empty folder, named after it; return its files.

    ``settings`` are the algorithm's by name; ``partition`` is None for data that is generated client by client.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not an empty folder; give another, nothing is overwritten")
    if model not in _MODELS:
        raise ValueError(f"no app is known for the model {model!r}; choose one of {', '.join(_MODELS)}")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    package = name.replace("-", "_")
    if not package.isidentifier():
        raise ValueError(f"the folder's name {folder.resolve().name!r} names the app; it must begin with a letter")
    if importlib.util.find_spec(package) is not None:
        raise ValueError(f"a Python package {package!r} exists already; give the folder another name")
    task = _MODELS[model].format(inputs=_INPUTS)
    keys = {setting: setting.replace("_", "-") for setting in settings}
    values = {
        "name": name,
        "package": package,
        "algorithm": algorithm,
        "data": data,
        "partition": partition or "",
        "partition_argument": "" if partition is None else ', config["partition"]',
        "clients": clients,
        "clients_per_round": clients_per_round,
        "rounds": rounds,
        "settings": "\n".join(f"{keys[setting]} = {toml_value(value)}" for setting, value in settings.items()),
        "arguments": ", ".join(f'{setting}=config["{key}"]' for setting, key in keys.items()),
        "imports": "import math\n\n" if _INPUTS in task else "",
        "task": task,
    }
    written = []
    for template, pattern in _FILES.items():
        path = folder / pattern.format(package=package)
        text = (resources.files("losac.deploy") / "templates" / f"{template}.txt").read_text(encoding="utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(values), encoding="utf-8")
        written.append(path)
    (folder / package / "__init__.py").write_text(f'"""{algorithm} on {data}."""\n', encoding="utf-8")
    return [*written, folder / package / "__init__.py"]
