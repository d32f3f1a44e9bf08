"""How each kind of hostile input is given, and what its answer is."""

from __future__ import annotations

import ast
import os
import re
import shlex
from pathlib import Path
from typing import Any

from hostile.answers import Answer, answer, limited
from hostile.names import Late, names
from run_folders import write_run

HERE = Path(__file__).parent
GOOD = '[problem]\ndata = "digits"\n[algorithm]\nname = "fedavg"\nstep_size = 0.001\n[simulation]\nrounds = 1\n'

Row = tuple[str, str]
"""An input, and words of its answer."""


def table(name: str) -> dict[str, list[Row]]:
    """Read a table: under each heading its inputs, each followed by a line of words of its answer."""
    found: dict[str, list[Row]] = {}
    topic, given = name, ""
    for line in (HERE / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            topic = f"{name}: {line[2:]}"
        elif line.startswith("    "):
            found.setdefault(topic, []).append((given, line.strip()))
        elif line:
            given = line
    return found


def answer_of_python(given: str, known: Late) -> Answer:
    """Evaluate a line of Python with the names of names.py, which are made before its time begins."""
    code = compile(given, "<hostile>", "eval")
    known.prepare(code.co_names)
    return answer(lambda: eval(code, known))


def known_names(folder: Path) -> Late:
    """Return the names that inputs in Python use."""
    return Late(names(folder))


def answer_of_command(given: str, folder: Path) -> Answer:
    """Run a command in a folder by the command line's own route; see :func:`refusal`."""
    (folder / "full").mkdir()
    (folder / "full" / "file.txt").write_text("mine")
    (folder / "note").write_text("a note")
    (folder / "broken.toml").write_text("[problem\n")
    (folder / "good.toml").write_text(GOOD)
    return refusal(shlex.split(given), folder)


def answer_of_file(given: str, folder: Path) -> Answer:
    """Write a file, in the place of one of a finished run or by itself, and run the command that meets it."""
    written, _, command = given.partition("  $ ")
    name, _, literal = written.partition(" = ")
    content = ast.literal_eval(literal)
    path = folder / name
    if name.startswith("run/"):
        experiment = write_run(folder / "run") / "experiment.toml"
        experiment.write_text(experiment.read_text().replace("toy", "digits"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return refusal(shlex.split(command), folder)


def refusal(arguments: list[str], folder: Path) -> Answer:
    """Run a command that must be refused: exit code 2, a line on stderr, nothing on stdout, nothing in the folder."""
    from typer.testing import CliRunner

    from losac.cli import app

    before, home = _content(folder), Path.cwd()
    os.chdir(folder)
    try:
        with limited():
            result = CliRunner().invoke(app, arguments, prog_name="losac")
    finally:
        os.chdir(home)
    said = re.sub(r"[│╭╮╰╯─]+", " ", result.stderr)
    usage, _, _ = said.partition("Usage:")
    text = " ".join(said.split())
    lines = result.stderr.strip().splitlines()
    ours = (
        result.exit_code == 2
        and not result.stdout
        and "Traceback" not in result.stderr
        and (not usage.strip() if "Usage:" in said else len(lines) == 1 and lines[0].startswith("losac: "))
    )
    changed = sorted(set(_content(folder)) ^ set(before))
    if changed:
        return Answer(False, f"it wrote {', '.join(map(str, changed))}: {text}")
    return Answer(ours, text if ours else f"exit code {result.exit_code}: {result.stdout[:200]} {text}")


def _content(folder: Path) -> list[Any]:
    return [(str(path.relative_to(folder)), path.stat().st_size) for path in sorted(folder.rglob("*"))]
