"""Transforms of an upload before it leaves a client: quantisation, sparsification, clipping, noise."""

from __future__ import annotations

from typing import ClassVar

from losac._settings import Settings
from losac.trees import Array, Tree


class Transform(Settings):
    """An encoder and its decoder, with a state that the client keeps (such as an error to feed back).

    Bytes are counted on the payload, and the client's state records what was decoded: what was *sent*.
    """

    private: ClassVar[bool] = False
    """Whether it protects a client: it then acts in every phase, and in a federation its random numbers come
    from the client's own secret instead of the seed, which the server knows."""

    @property
    def feeds_back(self) -> bool:
        """Whether what was left out of one upload is added to a later one."""
        return False

    @property
    def on_the_sum(self) -> bool:
        """Whether the server changes the sum of the uploads too, relying on each as this transform left it."""
        return False

    @property
    def common(self) -> bool:
        """Whether all clients of a round draw the same random numbers."""
        return False

    def elsewhere(self) -> Transform | None:
        """Return the transform for uploads of phases other than the algorithm's own, without a state; None: nothing."""
        return None

    def init(self, upload: Tree) -> Tree:
        """Return the client's state for uploads of this structure."""
        return ()

    def encode(self, key: Array, state: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Return the payload to send and the next state."""
        raise NotImplementedError

    def decode(self, payload: Tree) -> Tree:
        """Return the upload as the server understands it."""
        return payload

    def summed(self, key: Array, total: Tree) -> Tree:
        """Return the sum of the uploads as the server uses it."""
        return total
