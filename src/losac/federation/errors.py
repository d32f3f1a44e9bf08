"""What is refused, on either side of a federation."""

from __future__ import annotations


class RefusedError(ValueError):
    """A client, a server, or what either sent, is not accepted; nothing has changed."""
