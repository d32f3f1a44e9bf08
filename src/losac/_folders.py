"""Where the library caches downloaded data and compiled programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_dir() -> Path:
    """Return the folder of downloaded data and compiled programs: `LOSAC_CACHE`, or the platform's user cache."""
    if chosen := os.environ.get("LOSAC_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "losac"
