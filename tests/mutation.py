"""Mutation check of the algorithm files: flip one operator at a time and see whether a test fails.

    python tests/mutation.py [NAME …] [--jobs 2] [--most 4] [--kept mutants.jsonl] [--out docs/mutants.md]
    python tests/mutation.py --quick [NAME …]

For every algorithm file, each ``+ − * /`` and each unary minus in a function that computes (not in the checks of
settings and starts) is flipped once in a copy of the package. The frozen trajectories are walked with the copy, and
where they notice nothing, the tests that name the file's algorithms are run, and the laws. A mutant that no test
notices is listed as surviving. With ``--quick`` only signs are flipped (where a file has any), and only what ``make
quick`` runs of the algorithms may notice. With ``--kept`` every result is stored as soon as it is there, and the same
command continues where it stopped, as long as the file of the mutant is unchanged.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from losac._settings import snake_case
from paths import ROOT, file_of

FOLDER = ROOT / "src" / "losac" / "algorithms"
TESTS = (*sorted(path.stem for path in (ROOT / "tests" / "algorithms").glob("test_*.py")), "test_simulation")
ALSO = {"curvature": "steering", "descent": "clipping", "full_gradient": "mime", "packing": "compression"}
NOT_EQUATIONS = ("validate", "check_state", "require_mean")
NOT_ALGORITHMS = ("__init__", "contract", "transform", "invariant")
FLIPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
WALKS = threading.local()


class Mutant(NamedTuple):
    file: str
    line: int
    change: str
    source: str
    keywords: str
    sign: bool


def mutants(path: Path) -> list[Mutant]:
    """Return all mutants of one file."""
    tree = ast.parse(path.read_text())
    classes = [snake_case(node.name) for node in tree.body if isinstance(node, ast.ClassDef)]
    keywords = " or ".join([*classes, path.stem, *([ALSO[path.stem]] if path.stem in ALSO else [])])
    places = []
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and function.name not in NOT_EQUATIONS:
            places += [node for node in ast.walk(function) if _flippable(node)]
    found = []
    for place in dict.fromkeys(places):
        mutated = copy.deepcopy(tree)
        twin = next(n for n in ast.walk(mutated) if _same(n, place))
        before = ast.unparse(twin)
        if isinstance(twin, ast.BinOp):
            twin.op = FLIPS[type(twin.op)]()
        else:
            twin.op = ast.UAdd()
        change = f"`{before}` → `{ast.unparse(twin)}`"
        source = ast.unparse(ast.fix_missing_locations(mutated))
        sign = isinstance(twin, ast.UnaryOp) or isinstance(twin.op, ast.Add | ast.Sub)
        found.append(Mutant(path.name, place.lineno, change, source, keywords, sign))
    return found


def signs(found: list[Mutant]) -> list[Mutant]:
    """Return the mutants of signs; of a file without any, all."""
    return [mutant for mutant in found if mutant.sign] or found


def _spread(found: list[Mutant], most: int | None) -> list[Mutant]:
    if most is None or len(found) <= most:
        return found
    return [found[i * len(found) // most] for i in range(most)]


def _flippable(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp):
        text = any(isinstance(side, ast.Constant | ast.JoinedStr) and isinstance(getattr(side, "value", ""), str)
                   for side in (node.left, node.right))  # fmt: skip
        return type(node.op) in FLIPS and not text
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def _same(a: ast.AST, b: ast.AST) -> bool:
    place = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return type(a) is type(b) and all(getattr(a, p, None) == getattr(b, p, None) for p in place)


def survives(mutant: Mutant, quick: bool = False) -> bool:
    """Run the tests that name the file's algorithms on a copy of the package with this mutant in it."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "losac"
        shutil.copytree(ROOT / "src" / "losac", package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "algorithms" / mutant.file).write_text(mutant.source)
        words = mutant.keywords.split(" or ")
        if _trajectories_differ(folder, words):
            return False
        if quick:
            return _passes(["test_laws"], ["-m", "quick"], folder)
        plain = [word.replace("_", "") for word in words]
        own = [t for t in TESTS if any(word in file_of(t).read_text().lower() for word in plain)]
        chosen = ["-k", mutant.keywords]
        return _passes(own, chosen, folder) and _passes(["test_laws"], chosen, folder)


def _trajectories_differ(folder: str, words: Sequence[str]) -> bool:
    """Ask this thread's process of walks, which starts with the first question."""
    if not hasattr(WALKS, "process"):
        command = [sys.executable, str(ROOT / "tests" / "mutant_walks.py")]
        WALKS.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    print(json.dumps([folder, words]), file=WALKS.process.stdin, flush=True)
    answer = WALKS.process.stdout.readline().strip()
    if answer not in ("0", "1"):
        raise RuntimeError("the process that walks the trajectories has ended")
    return answer == "1"


def _passes(tests: Sequence[str], chosen: list[str], folder: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *chosen]
    command += [str(file_of(name)) for name in tests]
    environment = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}tests", "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=7200)
    if run.returncode not in (0, 1, 2, 5):  # 2: not even collected; 5: no test names the file's algorithms
        raise RuntimeError(f"pytest ended with {run.returncode}: {run.stdout[-2000:]}")
    return run.returncode in (0, 5)


class Kept:
    """Results of mutants by file, line, change and the file's text, one line of JSON each."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.found = {tuple(entry[:-1]): entry[-1] for entry in map(json.loads, lines)}
        self.lock = threading.Lock()

    def survives(self, mutant: Mutant, quick: bool) -> bool:
        """Return what was found before, or try the mutant and store what is found."""
        text = (FOLDER / mutant.file).read_bytes()
        key = mutant.file, mutant.line, mutant.change, hashlib.sha256(text).hexdigest()[:12], quick
        if key in self.found:
            return bool(self.found[key])
        alive = survives(mutant, quick)
        if self.path is not None:
            with self.lock, self.path.open("a") as file:
                file.write(json.dumps([*key, alive]) + "\n")
        return alive


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="files to mutate, without .py; all by default")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--most", type=int, help="at most so many mutants of a file, spread evenly over it")
    parser.add_argument("--quick", action="store_true", help="flip signs; run what make quick runs of the algorithms")
    parser.add_argument("--kept", type=Path, help="store results here, and take those that are there already")
    parser.add_argument("--out", type=Path, help="write the list here")
    arguments = parser.parse_args()
    files = sorted(p for p in FOLDER.glob("*.py") if p.stem not in NOT_ALGORITHMS)
    files = [p for p in files if not arguments.names or p.stem in arguments.names]
    lines = ["| file | line | mutant | |", "|---|---|---|---|"]
    quick = arguments.quick
    tried = [m for path in files for m in _spread(signs(mutants(path)) if quick else mutants(path), arguments.most)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = pool.map(partial(Kept(arguments.kept).survives, quick=quick), tried)
        for number, (mutant, alive) in enumerate(zip(tried, results), 1):
            verdict = "**survives**" if alive else "killed"
            lines.append(f"| {mutant.file} | {mutant.line} | {mutant.change.replace('|', '¦')} | {verdict} |")
            print(f"{number}/{len(tried)} {mutant.file}:{mutant.line} {mutant.change} {verdict}", flush=True)
    killed = sum(line.endswith("| killed |") for line in lines)
    summary = f"{len(tried)} mutants tried, {killed} killed, {len(tried) - killed} survive."
    print(summary)
    if arguments.out:
        about = "\n\n".join(part for part in __doc__.strip().split("\n\n") if not part.startswith(" "))
        options = f" --most {arguments.most}" if arguments.most else ""
        options += " --kept mutants.jsonl" if arguments.kept else ""
        made = f"Made by `python tests/mutation.py{options} --out docs/mutants.md`. {summary}"
        arguments.out.write_text("\n".join(["# Mutants of the algorithm files", "", about, "", made, "", *lines, ""]))


if __name__ == "__main__":
    main()
