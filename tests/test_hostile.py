"""Every hostile input is refused in one line of losac's own: no traceback, no hang, no silence.

The tables are texts in ``tests/hostile``; ``python tests/hostile/list.py`` prints every input with its whole answer.
"""

from __future__ import annotations

import numpy as np
import pytest

import losac
from hostile.kinds import Row, answer_of_command, answer_of_file, answer_of_python, known_names, table

PYTHON, COMMANDS, FILES = table("python"), table("command_line"), table("files")


def parts_of(tables: dict[str, list[Row]], size: int = 40) -> list[object]:
    """Return the rows of every topic in parts."""
    found = []
    for topic, rows in tables.items():
        for first in range(0, len(rows), size):
            found.append(pytest.param(rows[first : first + size], id=f"{topic} {first // size + 1}"))
    return found


def wrong(given: str, words: str, found: object) -> str:
    """Return what is wrong with an answer; empty where nothing is."""
    ours, text = found
    return "" if ours and words in text else f"{given}\n    wanted: {words}\n    got:    {text}"


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return known_names(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("rows", parts_of(PYTHON))
def test_python(rows, known):
    failures = [wrong(given, words, answer_of_python(given, known)) for given, words in rows]
    assert not any(failures), "\n" + "\n".join(filter(None, failures))


@pytest.mark.parametrize("rows", parts_of(COMMANDS))
def test_command_line(rows, tmp_path):
    failures = []
    for number, (given, words) in enumerate(rows):
        (tmp_path / str(number)).mkdir()
        failures.append(wrong(given, words, answer_of_command(given, tmp_path / str(number))))
    assert not any(failures), "\n" + "\n".join(filter(None, failures))


@pytest.mark.parametrize("rows", parts_of(FILES))
def test_files(rows, tmp_path):
    failures = []
    for number, (given, words) in enumerate(rows):
        (tmp_path / str(number)).mkdir()
        failures.append(wrong(given, words, answer_of_file(given, tmp_path / str(number))))
    assert not any(failures), "\n" + "\n".join(filter(None, failures))


def test_the_table_is_long_and_no_input_is_there_twice():
    inputs = [given for kind in (PYTHON, COMMANDS, FILES) for rows in kind.values() for given, _ in rows]
    assert len(set(inputs)) == len(inputs) >= 400


def test_what_looks_hostile_and_is_not(known):
    """Names of columns that are numbers, empty leaves, a batch larger than any client."""
    read = eval("read(source=numbered, target=1, client=2)", known)
    assert read.info["features"] == ("0",)
    empty = {"w": np.zeros(3), "e": np.zeros((0, 2))}
    for given in (
        "run(task=task, algorithm=A.fedavg(0.01, uploads=(A.top_k(0.5),)))",
        "run(task=task, algorithm=A.losac(0.01, uploads=(A.qsgd(4),)))",
    ):
        own = {**known, "task": known["losing"](known["empty_error"], params=empty)}
        assert np.isfinite(eval(given, {**known, **own}).final("loss"))
    group = losac.prox.group_l2(0.1)
    assert group.prox(empty, 1.0)["e"].shape == (0, 2)
    assert group.value(empty) == 0
    assert eval("run(algorithm=A.fedavg(0.01, batch_size=10**10))", known).rounds[-1] == 1
