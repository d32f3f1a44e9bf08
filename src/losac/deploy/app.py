"""A Flower app to start from: the files of ``templates/``, filled in."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template
from types import MappingProxyType
from typing import Any

from losac.deploy.commands import toml_value
from losac.deploy.own_code import OwnCode, own_code

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
    calls: Mapping[str, str] = MappingProxyType({}),
) -> list[Path]:
    """Write an app into a new or empty folder, named after it; return its files.

    ``settings`` are the algorithm's by name; ``partition`` is None for data that is generated client by client. Where
    algorithm, data, model or partition are users' own (``mine.py:Net``), ``calls`` says how to call the data and the
    model (:func:`losac.deploy.own_code.model_call`).
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} is not an empty folder; give another, nothing is overwritten")
    if model not in (*_MODELS, *calls):
        raise ValueError(
            f"no app is known for the model {model!r}; choose one of {', '.join(_MODELS)}, or your own as FILE.py:NAME"
        )
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    package = name.replace("-", "_")
    if not package.isidentifier():
        raise ValueError(f"the folder's name {folder.resolve().name!r} names the app; it must begin with a letter")
    if importlib.util.find_spec(package) is not None:
        raise ValueError(f"a Python package {package!r} exists already; give the folder another name")
    own = own_code([algorithm, data, model, partition or ""], package)
    task = calls[model].format(own.written[model]) if model in own.written else _MODELS[model].format(inputs=_INPUTS)
    load = f'losac.data.load(config["data"], config["clients"]{_partition_argument(partition, own)})'
    keys = {setting: setting.replace("_", "-") for setting in settings}
    values = {
        "name": name,
        "package": package,
        "algorithm": algorithm,
        "make": own.written.get(algorithm, f"losac.algorithms.{algorithm}"),
        "data": data,
        "load": calls[data].format(own.written[data]) if data in own.written else load,
        "partition": "" if partition in own.written else partition or "",
        "clients": clients,
        "clients_per_round": clients_per_round,
        "rounds": rounds,
        "settings": "\n".join(f"{keys[setting]} = {toml_value(value)}" for setting, value in settings.items()),
        "arguments": ", ".join(f'{setting}=config["{key}"]' for setting, key in keys.items()),
        "imports": _imports(own, math=_INPUTS in task),
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
    return [*written, folder / package / "__init__.py", *own.copy(folder / package)]


def _partition_argument(partition: str | None, own: OwnCode) -> str:
    if partition is None:
        return ""
    return f", {own.written[partition]}" if partition in own.written else ', config["partition"]'


def _imports(own: OwnCode, *, math: bool) -> str:
    """Return the imports of an app's problem: standard library, packages, its own modules."""
    apart = {kind: [line for line in own.imports if line.startswith(kind)] for kind in ("import", "from")}
    blocks = [["import math"] if math else [], ["import losac", *apart["import"]], apart["from"]]
    return "\n\n".join("\n".join(sorted(block)) for block in blocks if block)
