"""What a study leaves behind in its folder: what was measured as a tidy frame, and how it was made.

``results.csv.gz`` is the frame (:mod:`losac_reproduction.frame`), which ``pandas.read_csv`` reads; ``results.json``
has the command, the date, the versions, the summary and the verdicts.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from losac._files import write_whole
from losac_reproduction import pages
from losac_reproduction.frame import read_frame, write_frame
from losac_reproduction.study import Findings, JobResult, Options, Study

if TYPE_CHECKING:
    import pandas as pd

FORMAT, OLD_FORMAT = "losac results 2", "losac results 1"
"""The second has its own frame; the first had the jobs' results in ``results.json``, and is still read."""


class Stored(NamedTuple):
    """What was measured, with which options, in how many jobs and seconds, on what, when and by which commit.

    A ``note`` says where these runs differ from what the study would run today.
    """

    frame: pd.DataFrame
    options: Options
    jobs: int
    seconds: float
    devices: tuple[str, ...]
    date: str = ""
    commit: str = ""
    note: str = ""


class Part(NamedTuple):
    """A study with what was stored of it, and what follows from that."""

    study: Study
    findings: Findings
    stored: Stored


def gather(study: Study, measured: Sequence[JobResult], options: Options) -> Stored:
    """Return the results of jobs as they are stored."""
    devices = tuple(sorted({one.device for one in measured if one.device}))
    return Stored(study.frame(measured), options, len(measured), sum(one.seconds for one in measured), devices)


def write_results(study: Study, measured: Iterable[JobResult], options: Options, folder: Path) -> tuple[Findings, Path]:
    """Write everything that a study found; return the findings and the path of its page."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = gather(study, list(measured), options)
    findings = study.conclude(stored.frame, options)
    write_frame(stored.frame, folder / "results.csv.gz")
    content = {
        "format": FORMAT,
        "study": study.name,
        "title": study.title,
        "command": pages.command(study.name, options),
        "quick": options.quick,
        "seeds": list(options.seeds),
        "jobs": stored.jobs,
        "seconds": stored.seconds,
        "devices": list(stored.devices),
        **_provenance(stored, folder / "results.json"),
        "versions": {"losac": version("losac"), "jax": version("jax"), "python": platform.python_version()},
        "summary": findings.summary,
        "claims": [claim.written() for claim in findings.claims],
    }
    _write(content, folder / "results.json")
    pages.write_tables(findings, folder)
    pages.write_figures(findings, folder)
    page = folder / "report.html"
    write_whole(page, pages.study_page(study, findings, options, folder))
    return findings, page


def read_results(study: Study, folder: Path) -> Stored:
    """Read back what was measured, to conclude from it again; also what losac wrote before it kept frames."""
    path = folder / "results.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("format") not in (FORMAT, OLD_FORMAT):
        raise ValueError(f"{path} does not hold results of this version ({FORMAT!r})")
    options = Options(tuple(content["seeds"]), content["quick"])
    if content["format"] == OLD_FORMAT:
        return gather(study, [JobResult(**one) for one in content["measured"]], options)
    frame = read_frame(folder / "results.csv.gz")
    return Stored(
        frame, options, content["jobs"], content["seconds"], tuple(content["devices"]), content.get("date", ""),
        content.get("commit", ""), content.get("note", ""),
    )  # fmt: skip


def read_parts(folder: Path, studies: Mapping[str, Study], unreadable: dict[str, str] | None = None) -> dict[str, Part]:
    """Return every study that has results in a folder, with what follows from them now.

    Results from which the study cannot conclude any more are an error, or go with the reason into ``unreadable``.
    """
    parts = {}
    for name, study in studies.items():
        path = folder / name / "results.json"
        if not path.is_file():
            continue
        try:
            stored = read_results(study, folder / name)
            parts[name] = Part(study, study.conclude(stored.frame, stored.options), stored)
        except (OSError, EOFError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            if unreadable is not None:
                unreadable[name] = reason
                continue
            way_out = f"remove it, or run losac reproduce {name} --out {folder}"
            raise ValueError(f"{folder / name} cannot be read ({reason}); {way_out}") from error
    return parts


def update_results(part: Part, folder: Path) -> None:
    """Write what follows from a study's results now into their ``results.json``."""
    path = folder / "results.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    claims = [claim.written() for claim in part.findings.claims]
    _write(content | {"summary": part.findings.summary, "claims": claims}, path)


def _write(content: Mapping[str, Any], path: Path) -> None:
    write_whole(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _provenance(stored: Stored, path: Path) -> dict[str, str]:
    """Return the day, the commit and the note: those of before where nothing was measured since, else of now."""
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    if "date" in before and (before.get("seconds"), before.get("jobs")) == (stored.seconds, stored.jobs):
        return {name: before[name] for name in ("date", "commit", "note") if name in before}
    return {"date": date.today().isoformat(), "commit": _commit()}


@lru_cache(maxsize=1)
def _commit() -> str:
    """Return the commit of this checkout; empty outside one, and where files were changed: it would not be what ran."""
    here = Path(__file__)
    own, state = ["ls-files", "--error-unmatch", here.name], ["describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        said = [
            subprocess.run(["git", *each], cwd=here.parent, capture_output=True, text=True, check=True).stdout
            for each in (own, state)
        ]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return "" if said[-1].strip().endswith("+") else said[-1].strip()
