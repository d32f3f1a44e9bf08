"""The real data sets, read from LOSAC_DATA_DIR, are the ones we know."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from data.test_formats import esr_text, har_zip, idx, libsvm
from losac._folders import cache_dir
from losac.data import DataError, load
from losac.data.files import content_digest, read_npz
from losac.data.sources import SOURCES

REAL = os.environ.get("LOSAC_DATA_DIR")


def real(*names):
    """Mark a test of the real data sets: skipped, and said so, where one is missing."""
    missing = [name for name in names if not (REAL and (Path(REAL) / f"{name}.npz").exists())]
    reason = f"LOSAC_DATA_DIR has no {', '.join(missing)}"
    return [pytest.mark.real_data, pytest.mark.skipif(bool(missing), reason=reason)]


def each_real(*names):
    return pytest.mark.parametrize("name", [pytest.param(name, marks=real(name)) for name in names])


SHAPES = {
    "mnist": ((60000, 784), (10000, 784), 10),
    "har": ((7352, 561), (2947, 561), 6),
    "esr": ((9200, 178), (2300, 178), 2),
    "a9a": ((32561, 123), (16281, 123), 2),
    "w8a": ((49749, 300), None, 2),
}


@each_real(*SHAPES)
def test_real_data_is_verified_and_has_its_known_shape(name):
    found = load(name, download=False)
    train, test, classes = SHAPES[name]
    assert found.x.shape == train
    assert (found.test and found.test[0].shape) == test
    assert found.num_clients == 100
    assert found.x.dtype == np.float32
    assert set(np.unique(found.y)) == set(range(classes))
    assert found.x.min() >= -1
    assert found.x.max() <= 1


@each_real(*SHAPES)
def test_a_truncated_or_altered_copy_is_refused(name, tmp_path):
    path = tmp_path / f"{name}.npz"
    content = (Path(REAL) / path.name).read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=rf"{name}.npz cannot be read"):
        load(name, data_dir=tmp_path)
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(DataError, match=rf"{name}.npz.*{SOURCES[name].digest}.*losac data download {name}"):
        load(name, data_dir=tmp_path)


@pytest.fixture
def raw(tmp_path):
    def write(name, content):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


@each_real(*SHAPES)
def test_the_published_files_become_the_expected_data(name, raw):
    """Write the real arrays back in the published format: reading that must give the same digest."""
    arrays = read_npz(Path(REAL) / f"{name}.npz", SOURCES[name].digest)
    if name == "mnist":
        stems = {"train": "train", "test": "t10k"}
        files = {f"{s}-images-idx3-ubyte.gz": idx(arrays[f"x_{p}"][:50]) for p, s in stems.items()}
        files |= {f"{s}-labels-idx1-ubyte.gz": idx(arrays[f"y_{p}"][:50]) for p, s in stems.items()}
        arrays = {key: array[:50] for key, array in arrays.items()}
    elif name == "har":
        keys = [key for key in arrays if key.endswith(("_train", "_test"))]
        arrays |= {key: arrays[key][:300] for key in keys}
        files = {"har.zip": har_zip(arrays, nested=True)}
    elif name == "esr":
        files = {"esr.csv": esr_text(arrays, 100, 23).encode()}
    else:
        parts = {name: "train", f"{name}.t": "test"}
        files = {f: libsvm(arrays[f"x_{parts[f]}"], arrays[f"y_{parts[f]}"]) for f in SOURCES[name].files}
    found = SOURCES[name].read({file: raw(file, content) for file, content in files.items()})
    assert content_digest(found) == content_digest(arrays)


@pytest.mark.parametrize("by_env", [True, False])
@each_real("har")
def test_a_client_is_a_person_where_the_data_says_who(name, by_env, monkeypatch):
    folder = REAL
    if not by_env:
        monkeypatch.delenv("LOSAC_DATA_DIR")
    found = load(name, partition="group", data_dir=None if by_env else folder)
    assert found.num_clients == 21
    assert all(len(np.unique(found.groups[a:b])) == 1 for a, b in zip(found.offsets, found.offsets[1:]))
    assert found.label_names[0] == "walking"
    with pytest.raises(ValueError, match=r"clients=7.*21 groups"):
        load(name, 7, "group", data_dir=folder)


@each_real("mnist")
def test_mnist_comes_as_rows_or_as_images(name):
    images, rows = load(name, 10, flatten=False), load(name, 10)
    assert images.x.shape == (60000, 28, 28, 1)
    np.testing.assert_array_equal(images.x.reshape(60000, -1), rows.x)


@each_real("w8a")
def test_a_good_file_in_the_cache_is_used_when_the_folder_lacks_it(name, tmp_path, monkeypatch):
    monkeypatch.setenv("LOSAC_CACHE", str(tmp_path / "cache"))
    cached = cache_dir() / f"{name}.npz"
    cached.parent.mkdir()
    shutil.copy(Path(REAL) / cached.name, cached)
    with pytest.warns(UserWarning, match="looking in the cache"):
        assert len(load(name, data_dir=tmp_path, download=False)) == 49749
