"""A lock that ends with the process which holds it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from losac.deploy.errors import DeployError
from losac.federation import durable


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; refuse where another process holds it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(durable.locked(folder))
        except BlockingIOError:
            raise DeployError(
                f"another command starts the federation in {folder} at this moment; wait for it"
            ) from None
        yield
