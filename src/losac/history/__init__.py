"""The records of runs, and the callbacks that receive them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from losac.history.callbacks import Callback, Moment, Start
from losac.history.history import DivergedError, History
from losac.history.live import Live

__all__ = ["Callback", "DivergedError", "History", "Live", "Moment", "Start"]

_MOVED = {"simulate": "losac.simulation", "sweep": "losac.simulation", "Sweep": "losac.simulation"}
"""Names that were here before, and where they are now."""


def __getattr__(name: str) -> Any:
    """Return what has moved, from where it is now."""
    if name in _MOVED:
        return getattr(import_module(_MOVED[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
