"""``losac data inspect``: what is in a file of one's own, and what will go wrong with it."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from commands import losac, refused
from data.test_own_wrong import WRONG
from losac.data import DataError, inspect, read

GOOD = pd.DataFrame(
    {
        "age": [31, 45, 27, 60, 33, 52],
        "bmi": [22.0, 30.5, 19.9, 31.0, 24.2, 28.8],
        "sick": ["no", "yes", "no", "yes", "no", "yes"],
        "site": ["a", "a", "b", "b", "b", "b"],
    }
)


def written(folder, frame):
    path = folder / "t.csv"
    frame.to_csv(path, index=False)
    return str(path)


def problems(folder, frame, *options):
    result = losac(
        "data", "inspect", written(folder, frame), "--target", "sick", "--client", "site", "--quiet", *options
    )
    assert result.exit_code == 0, result.output
    return result.stdout


def test_it_says_who_holds_what(tmp_path):
    result = losac("data", "inspect", written(tmp_path, GOOD), "--target", "sick", "--client", "site")
    assert result.exit_code == 0
    assert "6 rows, 4 columns, 2 clients" in result.stdout
    words = [line.split() for line in result.stdout.splitlines()]
    assert ["client", "rows", "no", "yes"] in words
    assert ["a", "2", "1", "1"] in words
    assert ["b", "4", "2", "2"] in words
    assert ["bmi", "float64", "0", "6", "input"] in words
    assert "nothing that would go wrong" in result.stdout


def test_as_json_it_says_all_of_it(tmp_path):
    result = losac("data", "inspect", written(tmp_path, GOOD), "--target", "sick", "--client", "site", "--json")
    told = json.loads(result.stdout)
    assert told["clients"] == {"a": 2, "b": 4}
    assert told["labels"] == ["no", "yes"]
    assert told["label_counts"] == [[1, 1], [2, 2]]
    assert told["columns"][0] == {
        "name": "age", "dtype": "int64", "shape": [], "missing": 0, "distinct": 6, "constant": False,
    }  # fmt: skip
    assert told["problems"] == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bmi": [22.0, np.nan, 1, 1, 2, np.nan]}, "error: column 'bmi' has 2 of 6 values missing"),
        ({"bmi": [22.0, np.inf, 1, 1, 2, 3]}, "error: column 'bmi' holds infinite numbers"),
        ({"bmi": ["1", "2", "3", "4", "none so", "5"]}, "error: column 'bmi' mixes numbers and text: 'none so' in"),
        ({"bmi": list("uvwxyz")}, "error: column 'bmi' is text with 6 different values; give categorical='onehot'"),
        ({"bmi": [1] * 6}, "warning: column 'bmi' has one value only"),
        ({"bmi": [1e7, 0, 1, 2, 3, 4]}, "warning: the inputs' deviations reach from 12 to 3.7e+06.*standardize"),
        ({"sick": ["no"] * 6}, "error: the target 'sick' of .* has one value only, no"),
        ({"sick": ["no", "yes", None, "no", "yes", "no"]}, "error: column 'sick' has 1 of 6 values missing"),
        ({"sick": ["1", "2", "1", "2", "yes", "1"]}, "error: the target 'sick' of .* mixes numbers and text"),
        ({"sick": ["a", "b", "a", "b", "a", "c"]}, "warning: 1 labels have fewer than two rows, such as 'c'"),
        ({"sick": [0.5, 1.5, 0.5, 1.5, 0.5, 1.5]}, "warning: the target 'sick' has 2 different numbers.*labels=True"),
        ({"site": ["a", "b", "b", "b", "b", "b"]}, "warning: clients with a single row: 1, such as 'a'"),
        ({"site": ["a"] * 6}, "warning: there is one client only, 'a'"),
        ({"site": list("uvwxyz")}, "warning: 6 clients for 6 rows; is the client column the number of the row?"),
        ({"site": list("uvuvuv")}, "warning: 2 of 2 clients hold one label only"),
        ({"site": ["a", "a", None, "b", "b", "b"]}, "error: column 'site' has 1 of 6 values missing"),
    ],
)  # fmt: skip
def test_it_says_what_will_go_wrong(change, message, tmp_path):
    assert re.search(message.replace("+", r"\+"), problems(tmp_path, GOOD.assign(**change)))


@pytest.mark.parametrize("change", [{"bmi": list("uvwxyz")}, {"bmi": [np.nan, 1, 2, 3, 4, 5]}, {"sick": ["no"] * 6}])
def test_what_is_called_an_error_is_refused_by_read(change):
    frame = GOOD.assign(**change)
    assert "error" in {problem.kind for problem in inspect(frame, target="sick", client="site").problems}
    with pytest.raises(DataError):
        read(frame, target="sick", client="site")


def test_what_is_called_a_warning_is_read():
    frame = GOOD.assign(bmi=1, site=list("uvuvuw"))
    assert {problem.kind for problem in inspect(frame, target="sick", client="site").problems} == {"warning"}
    assert len(read(frame, target="sick", client="site")) == 6


def test_without_a_target_or_a_client_it_says_what_to_give(tmp_path):
    told = losac("data", "inspect", written(tmp_path, GOOD), "--quiet").stdout
    assert "the column to predict is not known" in told
    assert "the owners of the rows are not known" in told


def test_arrays_and_folders_are_looked_at_too(tmp_path):
    np.savez(tmp_path / "t.npz", x=np.ones((4, 3, 2)), y=np.array([0, 1, 0, 1]), client=np.array([0, 0, 1, 1]))
    assert json.loads(losac("data", "inspect", str(tmp_path / "t.npz"), "--json").stdout)["columns"][0]["shape"] == [
        3,
        2,
    ]
    for kind in ("cat", "dog"):
        (tmp_path / "pets" / "ann" / kind).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "pets" / "ann" / kind / "0.png")
    told = json.loads(losac("data", "inspect", str(tmp_path / "pets"), "--json").stdout)
    assert told["labels"] == ["cat", "dog"]
    assert told["clients"] == {"ann": 2}


def test_entries_of_arrays_that_never_vary_are_counted():
    x = np.arange(12.0).reshape(4, 3) * [1, 0, 1]
    found = inspect({"x": x, "y": np.array([0, 1, 0, 1]), "client": np.array([0, 0, 1, 1])})
    assert [problem.text for problem in found.problems] == ["1 of the 3 entries of 'x' never vary and are no use"]


def test_of_many_columns_and_clients_the_first_are_shown(tmp_path):
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.normal(size=(100, 30)), columns=[f"c{i}" for i in range(30)])
    result = losac("data", "inspect", written(tmp_path, wide.assign(sick=[0, 1] * 50, site=[*range(25)] * 4)),
                   "--target", "sick", "--client", "site")  # fmt: skip
    assert "The first 20 of 32 columns are shown; --json prints all." in result.stderr
    assert "The first 20 of 25 clients are shown" in result.stderr


UNREADABLE = [
    "no file", "empty file", "no rows", "broken encoding", "line too long", "a million columns", "not a table",
    "not an archive", "images of different sizes", "missing column", "unknown ending", "an empty client",
]  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_one_line(name, tmp_path):
    make, options, _ = WRONG[name]
    assert refused("data", "inspect", str(make(tmp_path)), "--target", options.get("target", "y")).startswith("losac: ")
