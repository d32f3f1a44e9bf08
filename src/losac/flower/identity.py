"""Who a client is: a name that lives as long as its state does."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def client_name(node_config: Mapping[str, Any], folder: Path) -> str:
    """Return the configured name, or one by the node's place, or one made up once and kept with the state."""
    if "client" in node_config:
        return str(node_config["client"])
    if "partition-id" in node_config:
        return f"client-{node_config['partition-id']}"
    path = folder / "name"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return path.read_text()
    with os.fdopen(handle, "w") as file:
        file.write(uuid.uuid4().hex)
        file.flush()
        os.fsync(file.fileno())
    return path.read_text()
