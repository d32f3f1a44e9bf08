"""Users' code in an app: a file is copied into the app's package; a module must be installed wherever the app runs."""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from losac._own import is_own, load_own, taken

if TYPE_CHECKING:
    from losac.data import FederatedData

_TAKEN = ("algorithm", "central", "client_app", "load", "losac", "math", "problem", "server_app", "task", "__init__")
"""Names that the files of an app use themselves."""
_OFFERED = {
    "inputs": "math.prod(data.x.shape[1:])", "shape": "data.x.shape[1:]", "classes": "data.num_classes", "data": "data",
}  # fmt: skip


class OwnCode(NamedTuple):
    """How an app imports users' code, what it writes for each name, and the files that it takes along."""

    imports: tuple[str, ...]
    written: dict[str, str]
    files: tuple[Path, ...]

    def copy(self, folder: Path) -> list[Path]:
        """Copy the files into the folder of the package; return the copies."""
        return [Path(shutil.copyfile(path, folder / path.name)) for path in self.files]


def own_code(names: Collection[str], package: str) -> OwnCode:
    """Return how an app of this package uses the names that are users' own, such as ``mine.py:Net``.

    >>> own_code(["scaffold", "fractions:Fraction"], "myapp")
    OwnCode(imports=('import fractions',), written={'fractions:Fraction': 'fractions.Fraction'}, files=())
    """
    imports, written, files = [], {}, []
    for text in filter(is_own, names):
        place, _, name = text.rpartition(":")
        if place.endswith(".py"):
            path = Path(place).expanduser().resolve()
            _check_name(text, path.stem)
            imports.append(f"from {package} import {path.stem}")
            files.append(path)
            written[text] = f"{path.stem}.{name}"
        else:
            _check_installed(text, place)
            imports.append(f"import {place}")
            written[text] = f"{place}.{name}"
    stems = {path.stem: path for path in files}
    for path in files:
        if stems[path.stem] != path:
            raise ValueError(f"{path} and {stems[path.stem]} cannot both be in one app; rename one of them")
    return OwnCode(tuple(dict.fromkeys(imports)), written, tuple(dict.fromkeys(files)))


def data_call(text: str, clients: int | None) -> str:
    """Return how an app calls users' data, with ``{}`` for their name."""
    found = load_own(text)
    if not callable(found):
        return "{}"
    offered = {} if clients is None else {"clients": clients}
    return "{}(" + ", ".join(f'{name}=config["{name}"]' for name in taken(text, found, offered)) + ")"


def model_call(text: str, data: FederatedData) -> str:
    """Return how an app makes the task of users' model, with ``{}`` for its name."""
    from losac.experiment.models import adapter_of, made_of

    found, arguments = made_of(text, data)
    given = "" if arguments is None else f"({', '.join(f'{name}={_OFFERED[name]}' for name in arguments)})"
    adapter = adapter_of(found)
    more = ", data.x[:1]" if adapter == "from_flax" else ""
    model = f"{{}}{given}" if adapter is None else f"losac.models.{adapter}({{}}{given}{more})"
    return f"losac.{'classification' if data.num_classes else 'regression'}({model}, data)"


def _check_name(text: str, stem: str) -> None:
    if not stem.isidentifier() or stem in _TAKEN:
        raise ValueError(f"{text}: an app cannot have a module {stem!r}; give the file another name")


def _check_installed(text: str, place: str) -> None:
    package = place.partition(".")[0]
    if package not in {*sys.stdlib_module_names, *importlib.metadata.packages_distributions()}:
        raise ValueError(
            f"{text}: a module must be installed wherever the app runs, and {package} is not; give FILE.py:NAME, and "
            "the file becomes a part of the app"
        )
