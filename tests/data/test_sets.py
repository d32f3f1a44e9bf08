"""Published data sets, each from small files of its true format: checksum, rows, labels, owners."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import losac
from data.test_download import Site, serve
from losac.data import DataError
from losac.data.load import _DATASETS
from losac.data.sets import SETS
from losac.data.sets.kept import PublicFile, digest_of, fetch_files, find_files
from losac.data.sets.shakespeare import encoded

RNG = np.random.default_rng(0)


def idx(array):
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


def tar(files, kind):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=f"w:{kind}") as archive:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))
    return stream.getvalue()


def images(rows, *shape):
    return RNG.integers(0, 256, (rows, *shape)).astype(np.uint8)


def hdf5(path, held):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for client, fields in held.items():
            for name, values in fields.items():
                file[f"examples/{client}/{name}"] = values
    return path.read_bytes()


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Put files for a data set in place of the published ones."""
    monkeypatch.setenv("LOSAC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOSAC_DATA_DIR", str(tmp_path / "given"))

    def put(name, contents):
        kept = SETS[name]
        assert [file.name for file in kept.files] == list(contents)
        folder = tmp_path / "given" / name
        folder.mkdir(parents=True)
        files = []
        for file, content in zip(kept.files, contents.values()):
            (folder / file.name).write_bytes(content)
            files.append(replace(file, checksum=f"sha256:{hashlib.sha256(content).hexdigest()}"))
        monkeypatch.setitem(_DATASETS, name, replace(kept, files=tuple(files)))
        return folder

    return put


def test_fashion_mnist(offer):
    parts = [images(6, 28, 28), np.arange(6, dtype=np.uint8), images(3, 28, 28), np.arange(3, dtype=np.uint8)]
    folder = offer("fashion_mnist", dict(zip((f.name for f in SETS["fashion_mnist"].files), map(idx, parts))))
    data = losac.data.load("fashion_mnist", clients=2, flatten=False)
    assert (len(data), data.x.shape[1:], data.num_classes, data.label_names[-1]) == (6, (28, 28, 1), 10, "ankle boot")
    np.testing.assert_allclose(data.test[0][..., 0], parts[2] / 255, rtol=1e-6)
    assert data.test[1].tolist() == [0, 1, 2]
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(DataError, match=r"is not the expected file.*losac data download fashion_mnist"):
        losac.data.load("fashion_mnist")


@pytest.mark.parametrize(
    ("name", "parts", "label", "meta", "names"),
    [
        ("cifar10", ["data_batch_1", "data_batch_2", "test_batch"], b"labels", "batches.meta", b"label_names"),
        ("cifar100", ["train", "test"], b"fine_labels", "meta", b"fine_label_names"),
    ],
)
def test_cifar(offer, name, parts, label, meta, names):
    rows = {part: images(4, 3072) for part in parts}
    count = 10 if name == "cifar10" else 100
    content = {part: {b"data": rows[part], label: [1, 0, 3, 2]} for part in parts}
    content[meta] = {names: [f"name {i}".encode() for i in range(count)]}
    files = {f"cifar/{part}": pickle.dumps(held, protocol=2) for part, held in content.items()}
    archive = SETS[name].files[0].name
    offer(name, {archive: tar(files, "gz")})
    data = losac.data.load(name, clients=1)
    assert (len(data), data.num_classes, data.label_names[3]) == (4 * (len(parts) - 1), count, "name 3")
    np.testing.assert_allclose(data.test[0][1, :, :, 2], rows[parts[-1]][1, 2048:].reshape(32, 32) / 255, rtol=1e-6)


def test_a_pickle_that_would_run_code_is_not_read(offer):
    evil = b"cos\nsystem\n(S'true'\ntR."
    offer("cifar10", {"cifar-10-python.tar.gz": tar({"data_batch_1": evil}, "gz")})
    with pytest.raises(DataError, match=r"asks for (os|posix)\.system"):
        losac.data.load("cifar10")


def test_emnist(offer):
    stream, x = io.BytesIO(), images(4, 28, 28)
    with zipfile.ZipFile(stream, "w") as archive:
        for part in ("train", "test"):
            archive.writestr(f"gzip/emnist-letters-{part}-images-idx3-ubyte.gz", idx(x))
            archive.writestr(f"gzip/emnist-letters-{part}-labels-idx1-ubyte.gz", idx(np.array([1, 2, 26, 3], np.uint8)))
    offer("emnist", {"gzip.zip": stream.getvalue()})
    data = losac.data.load("emnist", clients=1, split="letters", flatten=False)
    assert (data.num_classes, data.y.tolist()) == (26, [0, 1, 25, 2])
    np.testing.assert_allclose(data.x[0, :, :, 0], x[0].T / 255, rtol=1e-6)


def test_femnist_by_writer(offer, tmp_path):
    def writer(rows, first):
        pixels = RNG.random((rows, 28, 28)).astype(np.float32)
        return {"pixels": pixels, "label": np.arange(first, first + rows, dtype=np.int32)}

    held = {"f0002": writer(3, 8), "f0001": writer(2, 0), "f0003": writer(2, 60)}
    files = {f"fed_emnist_{part}.h5": hdf5(tmp_path / "part.h5", held) for part in ("train", "test")}
    offer("femnist", {"fed_emnist.tar.bz2": tar(files, "bz2")})
    data = losac.data.load("femnist", partition="group")
    assert (data.num_clients, data.sizes.tolist(), data.num_classes) == (3, [2, 3, 2], 62)
    np.testing.assert_allclose(data.client(1)[0], 1 - held["f0002"]["pixels"].reshape(3, -1), rtol=1e-6)
    few = losac.data.load("femnist", partition="group", writers=2, digits=True)
    assert (few.sizes.tolist(), few.num_classes, len(few.test[0])) == ([2, 2], 10, 4)


def test_shakespeare_by_role(offer, tmp_path):
    held = {"HAMLET": {"snippets": [b"to be", b"or~"]}, "GHOST": {"snippets": [b"mark me"]}}
    files = {f"shakespeare_{part}.h5": hdf5(tmp_path / "part.h5", held) for part in ("train", "test")}
    offer("shakespeare", {"shakespeare.tar.bz2": tar(files, "bz2")})
    data = losac.data.load("shakespeare", partition="group", length=3, stride=1)
    x, y = data.client(1)
    assert (data.num_clients, data.num_classes, len(x)) == (2, 88, len("to be\nor~") - 1)
    np.testing.assert_array_equal(x[2], encoded("to "))
    assert y[2] == encoded("b")[0]
    assert x[0].tolist() == [0, 0, encoded("t")[0]]
    assert y[-1] == 1, "a character outside of the alphabet"


def test_stackoverflow_by_user(offer, tmp_path):
    held = {f"{u:04d}": {"tokens": [b"how do i sort", b"sort it", b"never read"]} for u in range(3)}
    files = {f"stackoverflow_{part}.h5": hdf5(tmp_path / "part.h5", held) for part in ("train", "test")}
    offer("stackoverflow", {"stackoverflow.tar.bz2": tar(files, "bz2")})
    data = losac.data.load("stackoverflow", partition="group", users=2, sentences=2, words=2, length=4, stride=1)
    assert (data.num_clients, data.num_classes, data.sizes.tolist()) == (2, 5, [6, 6])
    assert data.y[:4].tolist() == [4, 1, 3, 2]  # do, i (not among the two words), sort, the end
    assert data.x[3].tolist() == [1, 4, 1, 3]


def test_libsvm_sets_by_name(offer):
    offer("mushrooms", {"mushrooms": b"1 3:1 112:0.5\n2 1:1\n1 2:-1\n"})
    data = losac.data.load("mushrooms", clients=1)
    assert (data.x.shape, data.y.tolist(), data.x[0, 111]) == ((3, 112), [0, 1, 0], 0.5)
    text = b"-1 1:1\n1 22:2\n"
    offer("ijcnn1", {"ijcnn1.bz2": bz2.compress(text), "ijcnn1.t.bz2": bz2.compress(text)})
    assert losac.data.load("ijcnn1", clients=1).test[0][1, 21] == 2


def test_a_checksum_that_nobody_states_is_recorded(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSAC_CACHE", str(tmp_path))
    monkeypatch.delenv("LOSAC_DATA_DIR", raising=False)
    kept = replace(SETS["mushrooms"], files=(PublicFile("mushrooms", ()),))
    with serve(Site({"mushrooms": b"1 1:1\n2 1:0\n"})) as site:
        folder = fetch_files(kept, base_url=site.url, progress=False, timeout=5, pause=0.01)
    path = folder / "mushrooms"
    assert (folder / "mushrooms.sha256").read_text() == digest_of(path, "sha256")
    assert find_files(kept, download=False) == {"mushrooms": path}
    path.write_bytes(b"1 1:1\n2 1:1\n")
    with pytest.raises(DataError, match="expected sha256"):
        find_files(kept, download=False)
    path.unlink()
    with pytest.raises(DataError, match="losac data download mushrooms"):
        find_files(kept, download=False)


def test_another_file_at_the_source_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSAC_CACHE", str(tmp_path))
    with serve(Site({f.name: b"<html>" for f in SETS["fashion_mnist"].files})) as site, pytest.raises(DataError):
        fetch_files(SETS["fashion_mnist"], base_url=site.url, progress=False, timeout=5, pause=0.01)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_every_set_says_where_it_comes_from_and_whom_to_cite():
    for name, kept in SETS.items():
        assert kept.name == name
        assert kept.terms
        for file in kept.files:
            assert file.urls
            assert all(url.startswith("http") and url.endswith(file.name) for url in file.urls)
            kind, _, value = (file.checksum or "sha256:" + 64 * "0").partition(":")
            assert len(value) == {"md5": 32, "sha256": 64}[kind]


def test_synthetic_of_fedprox():
    data = losac.data.load("synthetic", seed=3, alpha=0.5, beta=0.5)
    assert (data.num_clients, data.x.shape[1], data.num_classes) == (30, 60, 10)
    assert data.sizes.min() >= 45
    variances = np.var(np.concatenate([x - x.mean(0) for x, _ in map(data.client, range(30))]), axis=0)
    np.testing.assert_allclose(variances, np.arange(1, 61) ** -1.2, rtol=0.1)
    iid = losac.data.load("synthetic", clients=20, iid=True)
    assert np.abs(iid.x.mean(0)).max() < 0.1
    means = [np.std([x.mean() for x, _ in map(d.client, range(20))]) for d in (iid, data)]
    assert means[1] > 10 * means[0]
