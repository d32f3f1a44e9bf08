"""The error of a federation with processes that do not do what they were asked."""

from __future__ import annotations


class DeployError(OSError):
    """A process could not be started, did not answer in time, or refused a request; the text says where to look."""
