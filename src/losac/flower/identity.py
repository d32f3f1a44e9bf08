"""A client's identity: a name that lives as long as its state."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from losac._files import make_folder


def client_name(node_config: Mapping[str, Any], folder: Path) -> str:
    """Return the configured name, else one from the node's place, else one made up once and kept with the state."""
    if "client" in node_config:
        return str(node_config["client"])
    if "partition-id" in node_config:
        return f"client-{node_config['partition-id']}"
    path = folder / "name"
    make_folder(folder, private=True)
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return path.read_text()
    with os.fdopen(handle, "w") as file:
        file.write(uuid.uuid4().hex)
        file.flush()
        os.fsync(file.fileno())
    return path.read_text()
