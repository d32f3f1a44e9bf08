"""What was submitted to a federation: the app and the settings of each run, to find its results and to resume it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from losac._files import make_folder, write_whole


class Submission(NamedTuple):
    """An app's folder, and the settings that a run of it was given."""

    app: Path
    settings: Mapping[str, Any]

    @property
    def out(self) -> Path | None:
        """The folder of the run's results, if it has one."""
        return Path(str(self.settings["out"])) if self.settings.get("out") else None


def submissions(path: Path) -> dict[str, Submission]:
    """Return what was submitted, by the id of the run; nothing where the file is missing."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {run: Submission(Path(each["app"]), dict(each["settings"])) for run, each in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is damaged; remove it: runs go on, but none can be resumed by its id") from None


def remember(path: Path, run: str, submission: Submission) -> None:
    """Keep what was submitted."""
    known = submissions(path) | {run: submission}
    content = {run: {"app": str(each.app), "settings": dict(each.settings)} for run, each in known.items()}
    make_folder(path.parent, private=True)
    write_whole(path, json.dumps(content, indent=2) + "\n", private=True)
