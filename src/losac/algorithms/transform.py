"""What an upload passes through before it leaves a client: quantisation, sparsification, clipping, noise."""

from __future__ import annotations

from typing import Any

from losac._settings import Settings
from losac.trees import Tree


class Transform(Settings):
    """An encoder and its decoder, with a state that the client keeps (such as an error to feed back).

    Bytes are counted on the payload, and the client's state records what was decoded: what was *sent*.
    """

    @property
    def feeds_back(self) -> bool:
        """Whether what was left out of one upload is added to a later one."""
        return False

    def init(self, upload: Tree) -> Tree:
        """Return the client's state for uploads of this structure."""
        return ()

    def encode(self, key: Any, state: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Return the payload that travels and the next state."""
        raise NotImplementedError

    def decode(self, payload: Tree) -> Tree:
        """Return the upload as the server understands it."""
        return payload
