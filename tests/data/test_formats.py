"""The published formats: small files of each kind, and the arrays they should become."""

import gzip
import io
import struct
import zipfile

import numpy as np
import pytest

from losac.data.esr_csv import published_ids, read_esr
from losac.data.formats import read_har, read_idx, read_libsvm


def idx(array):
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


def small_mnist():
    rng = np.random.default_rng(0)
    arrays, files = {}, {}
    for part, stem, rows in (("train", "train", 6), ("test", "t10k", 3)):
        arrays[f"x_{part}"] = rng.integers(0, 256, (rows, 28, 28)).astype(np.uint8)
        arrays[f"y_{part}"] = rng.integers(0, 10, rows).astype(np.uint8)
        files[f"{stem}-images-idx3-ubyte.gz"] = idx(arrays[f"x_{part}"])
        files[f"{stem}-labels-idx1-ubyte.gz"] = idx(arrays[f"y_{part}"])
    return arrays, files


def libsvm(x, y):
    return "".join(
        f"{label:+d} " + " ".join(f"{j + 1}:1" for j in np.flatnonzero(row)) + " \n" for row, label in zip(x, y)
    ).encode()


def small_binary(features, names):
    rng = np.random.default_rng(1)
    arrays, files = {}, {}
    for part, name in zip(("train", "test"), names):
        x = (rng.random((5, features)) < 0.1).astype(np.uint8)
        y = rng.choice([-1, 1], 5).astype(np.int8)
        arrays |= {f"x_{part}": x, f"y_{part}": y}
        files[name] = libsvm(x, y)
    return arrays, files


def har_number(value):
    """Write a number as the official files do: 16 wide, with a three-digit exponent."""
    mantissa, exponent = f"{value:.7e}".split("e")
    return f"{mantissa}e{exponent[0]}{int(exponent[1:]):03d}".rjust(16)


def har_files(arrays):
    files = {
        "features.txt": "".join(f"{i + 1} {name}\n" for i, name in enumerate(arrays["feature_names"])),
        "activity_labels.txt": "".join(f"{i + 1} {name}\n" for i, name in enumerate(arrays["activity_names"])),
    }
    for part in ("train", "test"):
        rows = ("".join(map(har_number, row)) + "\n" for row in arrays[f"x_{part}"].tolist())
        files[f"{part}/X_{part}.txt"] = "".join(rows)
        files[f"{part}/y_{part}.txt"] = "".join(f"{label + 1}\n" for label in arrays[f"y_{part}"].tolist())
        files[f"{part}/subject_{part}.txt"] = "".join(f"{s}\n" for s in arrays[f"subject_{part}"].tolist())
    return files


def zipped(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def har_zip(arrays, nested):
    members = {f"UCI HAR Dataset/{name}": text for name, text in har_files(arrays).items()}
    inner = zipped({"__MACOSX/UCI HAR Dataset/features.txt": "junk", **members})
    return zipped({"UCI HAR Dataset.zip": inner, "UCI HAR Dataset.names": ""}) if nested else inner


def small_har(nested=True):
    rng = np.random.default_rng(2)
    arrays = {
        "feature_names": np.array(["tBodyAcc-mean()-X", "angle(X,gravityMean)"]),
        "activity_names": np.array(["WALKING", "SITTING"]),
    }
    for part, rows in (("train", 4), ("test", 2)):
        arrays[f"x_{part}"] = rng.uniform(-1, 1, (rows, 2)).astype(np.float32)
        arrays[f"y_{part}"] = rng.integers(0, 2, rows).astype(np.uint8)
        arrays[f"subject_{part}"] = rng.integers(1, 31, rows).astype(np.uint8)
    return arrays, {"har.zip": har_zip(arrays, nested)}


def esr_text(arrays, files, chunks):
    """Write the published CSV for these arrays: R's row names, rows shuffled."""
    name_of = {place: name for name, place in published_ids(files, chunks).items()}
    lines = []
    for x, y, recording, chunk in zip(*(arrays[key].tolist() for key in ("x", "y", "recording", "chunk"))):
        lines.append(f'"{name_of[y, recording % 100, chunk]}",{",".join(map(str, x))},{y}\n')
    shuffled = np.random.default_rng(3).permutation(lines)
    return ",".join(['""', *(f'"X{i + 1}"' for i in range(arrays["x"].shape[1])), '"y"']) + "\n" + "".join(shuffled)


def small_esr(packed=False):
    rng = np.random.default_rng(4)
    y, file, chunk = (grid.ravel() for grid in np.meshgrid((2, 3, 4, 1, 5), range(12), (1, 2), indexing="ij"))
    arrays = {
        "x": rng.integers(-1800, 2000, (len(y), 4)).astype(np.int16),
        "y": y.astype(np.uint8),
        "recording": (100 * (y - 1) + file).astype(np.uint16),
        "chunk": chunk.astype(np.uint8),
    }
    text = esr_text(arrays, 12, 2)
    return arrays, {"esr.csv": zipped({"data.csv": text}) if packed else text.encode()}


SMALL = {
    "mnist": small_mnist(),
    "har": small_har(),
    "har-flat": small_har(nested=False),
    "esr": small_esr(),
    "esr-zip": small_esr(packed=True),
    "a9a": small_binary(123, ("a9a", "a9a.t")),
    "w8a": small_binary(300, ("w8a",)),
}


def test_readers_refuse_what_they_cannot_mean(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(gzip.compress(b"\x00\x00\x07\x01"))
    with pytest.raises(ValueError, match="f does not start with the mark of an IDX file"):
        read_idx(path)
    path.write_text("+1 4:1\n")
    with pytest.raises(ValueError, match="row 0: 4:1 is not a binary feature"):
        read_libsvm(path, features=3)
    path.write_bytes(zipped({"x.txt": ""}))
    with pytest.raises(ValueError, match=r"no features.txt"):
        read_har(path)
    with pytest.raises(ValueError, match="should hold one CSV file"):
        read_esr(path)
    _, files = SMALL["esr"]
    path.write_bytes(files["esr.csv"].replace(b'"X1.V1.114"', b'"X1.V1.9999"', 1))
    with pytest.raises(ValueError, match=r"'X1.V1.9999' is not a row name"):
        read_esr(path)


PUBLISHED = {  # rows of the published CSV whose recording was found by their values: label, file, chunk
    "X21.V1.791": (4, 79, 21), "X15.V1.924": (1, 92, 15), "X8.V1.1": (5, 1, 8), "X16.V1.60": (5, 60, 16),
    "X11.V1.273": (2, 27, 11), "X7.V1.162": (3, 16, 7), "X1.V1.614": (2, 6, 1), "X1.V1.615": (2, 61, 1),
    "X9.V1.915": (2, 91, 9), "X2.V1.110": (4, 1, 2), "X8.V1.214": (2, 2, 8), "X14.V1.116": (1, 1, 14),
    "X22.V1.114": (2, 1, 22), "X16.V1.210": (4, 2, 16), "X3.V1.99": (5, 99, 3), "X23.V1.714": (2, 7, 23),
}  # fmt: skip


def test_the_row_names_of_the_published_csv_are_understood():
    ids = published_ids(files=100, chunks=23)
    assert {name: ids[name] for name in PUBLISHED} == PUBLISHED
