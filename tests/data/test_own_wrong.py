"""Wrong files and wrong words get one clear error each: what is wrong, where, and the way out."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from losac.data import DataError, read
from losac.data.tabular import MOST_COLUMNS

GOOD = "a,b,y,who\n1,2,0,x\n3,4,1,x\n5,6,0,z\n7,8,1,z\n"


def text(content, name="t.csv"):
    def make(folder):
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return make


def saved(**arrays):
    def make(folder):
        np.savez(folder / "t.npz", **arrays)
        return folder / "t.npz"

    return make


def frame(**columns):
    return lambda folder: pd.DataFrame(columns)


def pictures(**sizes):
    def make(folder):
        for place, size in sizes.items():
            path = folder / f"{place.replace('_', '/')}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", size).save(path)
        return folder

    return make


def broken_picture(folder):
    (folder / "cat").mkdir()
    (folder / "cat" / "0.png").write_bytes(b"no picture")
    return folder


def empty_client(folder):
    (folder / "bob" / "cat").mkdir(parents=True)
    return pictures(ann_cat_0=(4, 4), ann_dog_0=(4, 4))(folder)


def ragged_lists(folder):
    return pytest.importorskip("datasets").Dataset.from_dict({"x": [[1.0, 2.0], [3.0]], "y": [0, 1]})


WRONG = {
    "no file": (lambda folder: folder / "t.csv", {}, r"t\.csv does not exist; check the path"),
    "nearly its name": (
        lambda folder: text(GOOD, "data.csv")(folder).with_name("dta.csv"),
        {},
        r"dta\.csv does not exist.*Did you mean 'data\.csv'",
    ),
    "empty file": (text(""), {}, "is empty"),
    "empty first line": (text("\n1,2\n"), {}, "begins with an empty line"),
    "no rows": (text("a,y,who\n"), {}, "has a header but no rows"),
    "unknown ending": (text("a", "t.xlsx"), {}, r"ending '\.xlsx'; known are \.csv"),
    "broken encoding": (text(b"a,y,who\n\xff\xfe,0,x\n"), {}, "is not utf-8 text .byte 0xff.*encoding='latin-1'"),
    "broken header": (text("größe,y,who\n1,0,x\n".encode("latin-1")), {}, "is not utf-8 text .byte 0xf6"),
    "broken archive": (text(b"no gzip", "t.csv.gz"), {}, "cannot be unpacked"),
    "cut archive": (text(gzip.compress(GOOD.encode() * 99)[:-20], "t.csv.gz"), {}, "cannot be unpacked"),
    "line too long": (text(GOOD + "1,2,0,x,9\n"), {}, "is ragged: line 6 has 5 fields, the header 4"),
    "all lines too long": (text("a,y,who\n1,0,x,9\n2,1,x,9\n"), {}, "is ragged: line 2 has 4 fields, the header 3"),
    "line too short": (text(GOOD + "1,2,0\n"), {}, "is ragged: line 6 has 3 fields, the header 4"),
    "quote not closed": (text('a,y,who\n1,0,"x\n2,1,x\n'), {}, "ragged|quotes that are not closed"),
    "two columns of one name": (text("a,a,y,who\n1,2,0,x\n"), {}, "has two columns 'a'; rename one"),
    "a million columns": (
        lambda folder: text(",".join(f"c{i}" for i in range(10**6)) + "\n")(folder),
        {},
        "has 1,000,000 columns, more than the 100,000.*np.savez",
    ),
    "a wide frame": (
        lambda folder: pd.DataFrame(np.zeros((1, MOST_COLUMNS + 1))),
        {},
        "the pandas frame has 100,001 columns",
    ),
    "missing value": (
        text(GOOD + ",2,0,x\n"),
        {},
        r"column 'a' of .*t\.csv has 1 missing values.*row 4.*missing='drop'",
    ),
    "missing label": (text(GOOD + "1,2,,x\n"), {}, "column 'y' of .* has 1 missing values"),
    "missing client": (frame(a=[1, 2], y=[0, 1], who=["x", None]), {}, "column 'who' of .* has 1 missing values"),
    "nothing complete": (frame(a=[np.nan], y=[0], who=["x"]), {"missing": "drop"}, "no row of .* is complete"),
    "infinite": (frame(a=[1.0, np.inf], y=[0, 1], who=[1, 2]), {}, "column 'a' .* holds an infinite number in row 1"),
    "one class": (
        frame(a=[1, 2], y=["no", "no"], who=[1, 2]),
        {},
        "the target 'y' .* one value only, no: .*nothing to learn",
    ),
    "mixed types": (text(GOOD + "n/k,2,0,x\n"), {}, "column 'a' .* mixes numbers and text: 'n/k' in row 4"),
    "mixed labels": (text(GOOD + "1,2,yes,x\n"), {}, "the target 'y' .* mixes numbers and text: 'yes' in row 4"),
    "text": (
        frame(a=["red", "blue"], y=[0, 1], who=[1, 2]),
        {},
        r"column 'a' .* is text \('blue', 'red'\).*categorical='onehot'.*\(2 here\).*features=",
    ),
    "too many texts": (
        frame(a=[f"id{i}" for i in range(1200)], y=[0, 1] * 600, who=0),
        {"categorical": "onehot"},
        "column 'a' .* has 1,200 different texts",
    ),
    "dates": (frame(a=pd.to_datetime(["2020-01-01", "2020-01-02"]), y=[0, 1], who=0), {}, "column 'a' .* holds dates"),
    "missing column": (
        text(GOOD),
        {"target": "Y2"},
        "has no column 'Y2' for the target; its columns are a, b, y, who. Did.* 'y'",
    ),
    "missing client column": (text(GOOD), {"client": "whom"}, "no column 'whom' for the clients.*Did you mean 'who'"),
    "missing feature": (text(GOOD), {"features": ["a", "bb"]}, "no column 'bb' for the inputs.*Did you mean 'b'"),
    "the target as input": (text(GOOD), {"features": ["a", "y"]}, "'y' is the target or the client"),
    "no inputs": (frame(y=[0, 1], who=[0, 1]), {}, "has no column left for the inputs"),
    "no target": (frame(a=[1], b=[2]), {"target": None}, "name the column to predict: target=.*columns a, b"),
    "nobody's rows": (text(GOOD), {"client": None}, "name the owners of the rows: client=COLUMN, or clients=N"),
    "two answers": (text(GOOD), {"partition": "sorted"}, "partition='sorted' has no meaning"),
    "other number": (text(GOOD), {"clients": 5}, "clients=5, but the client column has 2 values"),
    "too many clients": (
        text(GOOD),
        {"client": None, "clients": 9, "features": "a"},
        "clients=9, but there are only 4 rows",
    ),
    "wrong word": (text(GOOD), {"categorical": "one-hot"}, "categorical='one-hot'; give one of 'refuse', 'onehot'"),
    "not a table": (text("no parquet", "t.parquet"), {}, "cannot be read as Parquet"),
    "not an archive": (text("no archive", "t.npz"), {}, "cannot be read as NPZ"),
    "objects": (saved(x=np.array([None, {}]), y=[0, 1]), {}, "cannot be read as NPZ.*not of objects"),
    "uneven arrays": (saved(x=np.ones((3, 2)), y=np.ones(2)), {}, "different numbers of rows: x has 3, y has 2"),
    "an array alone": (lambda folder: np.ones((3, 2)), {}, "an ndarray cannot be read; give a file"),
    "a client without rows": (
        lambda folder: [pd.DataFrame({"a": [1], "y": [0]}), pd.DataFrame({"a": [], "y": []})],
        {"client": None},
        "client 1 has no rows; leave it out",
    ),
    "no clients": (lambda folder: [], {"client": None}, "no clients were given"),
    "clients that differ": (
        lambda folder: [pd.DataFrame({"a": [1], "y": [0]}), pd.DataFrame({"b": [1], "y": [1]})],
        {"client": None},
        "of client 1 has no column 'a'",
    ),
    "images of different sizes": (
        pictures(cat_0=(4, 4), dog_0=(5, 4)),
        {"client": None, "clients": 1},
        r"dog/0\.png is 5 x 4 pixels, .*cat/0\.png 4 x 4; .*size=\(28, 28\)",
    ),
    "no images": (lambda folder: folder, {}, "holds no images"),
    "images beside folders": (pictures(cat_0=(4, 4), loose=(4, 4)), {}, "different depths.*such as loose.png"),
    "parts, not clients": (
        pictures(train_cat_0=(4, 4), test_cat_0=(4, 4)),
        {},
        "has the parts test, train, not clients",
    ),
    "an empty client": (empty_client, {}, "bob has no images, so its class or client is empty"),
    "a broken image": (broken_picture, {}, r"cat/0\.png is not a readable image"),
    "rows of different length": (
        ragged_lists,
        {"client": None, "clients": 1},
        r"shape \(1,\) in row 1 .* \(2,\) in row 0",
    ),
    "map of a table": (text(GOOD), {"memory_map": True}, r"give a folder with x\.npy and y\.npy.*write_npy"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line(name, tmp_path):
    make, options, message = WRONG[name]
    with pytest.raises(ValueError, match=message) as error:
        read(make(tmp_path), **{"target": "y", "client": "who"} | options)
    assert "\n" not in str(error.value)


def test_broken_files_are_data_errors(tmp_path):
    for name in ("empty file", "broken encoding", "line too long", "not a table", "not an archive"):
        with pytest.raises(DataError):
            read(WRONG[name][0](tmp_path), target="y", client="who")


def test_another_encoding_can_be_given(tmp_path):
    path = text("größe,y,who\n1,0,ä\n2,1,ä\n".encode("latin-1"))(tmp_path)
    data = read(path, target="y", client="who", encoding="latin-1")
    assert data.info["features"] == ("größe",)
