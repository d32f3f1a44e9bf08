"""Names of the library that are needed before the library can be imported: by the Tab key, and by the list of options.

They are kept in ``words.json``, which ``python -m losac.experiment.generate`` writes; a test fails if it is out of
date.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("words.json")


@cache
def words(file: Path = FILE) -> dict[str, Any]:
    """Return the words in a file, by kind."""
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return kept
