"""The number of rows of each client, kept with a run so its plot needs no data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from losac._files import write_whole
from losac.data import FederatedData
from losac.runs.layout import CLIENTS

MOST = 2**20
"""The most counts kept; larger federations keep none."""


class Clients(NamedTuple):
    """The clients' numbers of rows [N], and of rows of each label [N, C] if there are labels."""

    name: str
    sizes: np.ndarray
    label_counts: np.ndarray | None
    label_names: tuple[str, ...] | None


def write_clients(folder: Path, data: FederatedData) -> None:
    """Keep the counts, unless there are too many."""
    if data.num_clients * (data.num_classes or 1) > MOST:
        return
    counts = None if data.num_classes is None else data.label_counts().tolist()
    content = {"name": data.name, "sizes": data.sizes.tolist(), "label_counts": counts}
    write_whole(folder / CLIENTS, json.dumps({**content, "label_names": data.label_names}))


def read_clients(folder: Path) -> Clients | None:
    """Return the counts, None if there are none."""
    try:
        content = json.loads((folder / CLIENTS).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    counts, names = content["label_counts"], content["label_names"]
    return Clients(
        content["name"],
        np.array(content["sizes"], int),
        None if counts is None else np.array(counts, int),
        None if names is None else tuple(names),
    )
