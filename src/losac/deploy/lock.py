"""A lock that ends with the process that holds it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from losac._files import make_folder
from losac.deploy.errors import DeployError
from losac.federation import durable


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder's lock; refuse where another process holds it."""
    make_folder(folder, private=True)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(durable.locked(folder, private=True))
        except BlockingIOError:
            raise DeployError(
                f"another command starts the federation in {folder} at this moment; wait for it"
            ) from None
        yield
