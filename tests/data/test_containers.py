"""IDX, LIBSVM, HDF5, LEAF and Arrow files of one's own."""

from __future__ import annotations

import gzip
import json
import struct

import numpy as np
import pyarrow as pa
import pytest

from losac.data import DataError, read

RNG = np.random.default_rng(0)


def write_idx(path, array, code=8):
    content = struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(content) if path.name.endswith(".gz") else content)


@pytest.fixture
def mnist_like(tmp_path):
    for stem, rows, ending in (("train", 8, ""), ("t10k", 4, ".gz")):
        pictures = RNG.integers(0, 256, (rows, 5, 6)).astype(np.uint8)
        write_idx(tmp_path / f"{stem}-images-idx3-ubyte{ending}", pictures)
        write_idx(tmp_path / f"{stem}-labels-idx1-ubyte{ending}", (np.arange(rows) % 3).astype(np.uint8))
    return tmp_path


def test_a_folder_of_idx_files_and_one_of_them(mnist_like):
    data = read(mnist_like, clients=2, flatten=True)
    assert (data.x.shape, data.num_classes, len(data.test[0])) == ((8, 30), 3, 4)
    assert data.x.max() <= 1
    alone = read(mnist_like / "train-images-idx3-ubyte", clients=2)
    assert (alone.x.shape, alone.test) == ((8, 5, 6, 1), None)
    (mnist_like / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="train-images… and train-labels…"):
        read(mnist_like, clients=2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello there", "mark of an IDX file"),
        (struct.pack(">BBBBI", 0, 0, 8, 1, 9) + b"abc", "holds 3 bytes of data"),
        (b"\x1f\x8bno gzip", "cannot be read"),
    ],
)
def test_a_damaged_idx_file_is_refused(tmp_path, content, words):
    for kind in ("images-idx3", "labels-idx1"):
        (tmp_path / f"train-{kind}-ubyte").write_bytes(content)
    with pytest.raises(DataError, match=words):
        read(tmp_path / "train-images-idx3-ubyte", clients=1)


def test_libsvm(tmp_path):
    (tmp_path / "a.svm").write_text("+1 1:0.5 4:2\n-1 2:1\n+1 3:1\n")
    data = read(tmp_path / "a.svm", clients=1, labels=True)
    assert sorted(map(tuple, data.x.tolist())) == [(0, 0, 1, 0), (0, 1, 0, 0), (0.5, 0, 0, 2)]
    assert data.label_names == ("-1", "1")
    (tmp_path / "b.svm").write_text("what is this\n")
    with pytest.raises(DataError, match=r"b\.svm cannot be read"):
        read(tmp_path / "b.svm", clients=1)


def test_hdf5_with_and_without_clients(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "tff.h5", "w") as file:
        for name, rows in (("b", 2), ("a", 3)):
            file[f"examples/{name}/pixels"] = RNG.random((rows, 4)).astype(np.float32)
            file[f"examples/{name}/label"] = np.arange(rows)
    data = read(tmp_path / "tff.h5", target="label")
    assert (data.sizes.tolist(), data.info["client_names"], data.num_classes) == ([3, 2], ("a", "b"), 3)
    with h5py.File(tmp_path / "plain.hdf5", "w") as file:
        file["x"], file["y"] = np.ones((4, 2)), np.arange(4)
        file["x_test"], file["y_test"] = np.ones((2, 2)), np.arange(2)
    data = read(tmp_path / "plain.hdf5", clients=2)
    assert (len(data), len(data.test[0])) == (4, 2)
    (tmp_path / "no.h5").write_bytes(b"not HDF5")
    with pytest.raises(DataError, match=r"no\.h5 cannot be read"):
        read(tmp_path / "no.h5", clients=1)


def test_leaf(tmp_path):
    held = {"u1": {"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]}, "u0": {"x": [[5.0, 6.0]], "y": [1]}}
    (tmp_path / "all.json").write_text(json.dumps({"users": ["u1", "u0"], "num_samples": [2, 1], "user_data": held}))
    data = read(tmp_path / "all.json")
    assert (data.info["client_names"], data.sizes.tolist(), data.x[0].tolist()) == (("u0", "u1"), [1, 2], [5.0, 6.0])
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(DataError, match="user_data"):
        read(tmp_path / "other.json")


def test_arrow_files_and_streams(tmp_path):
    table = pa.table({"a": [1.0, 2.0, 3.0], "y": ["no", "yes", "no"]})
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    with pa.OSFile(str(tmp_path / "b.arrow"), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    for name in ("a.arrow", "b.arrow"):
        data = read(tmp_path / name, clients=1)
        assert (data.x[:, 0].tolist(), data.label_names) == ([1, 2, 3], ("no", "yes"))
    (tmp_path / "c.arrow").write_bytes(b"neither")
    with pytest.raises(DataError, match="as Arrow"):
        read(tmp_path / "c.arrow", clients=1)
