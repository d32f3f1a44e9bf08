"""Data in files: the same run, and memory for the rows of the clients at hand only."""

from __future__ import annotations

import tracemalloc

import jax
import numpy as np
import pandas as pd
import pytest

import losac
from losac.data import DataError, FederatedData, map_npy, read, write_npy
from losac.simulation.engines import paged, streaming

RNG = np.random.default_rng(0)
SIZES = RNG.integers(3, 9, 40)


def made(dim=4):
    clients = [(RNG.normal(size=(n, dim)).astype("float32"), RNG.integers(0, 3, n).astype("int32")) for n in SIZES]
    return FederatedData.from_clients(clients, test=clients[0], num_classes=3, label_names=("a", "b", "c"), name="made")


def test_a_folder_gives_back_what_was_written_and_copies_nothing(tmp_path):
    data = made()
    back = map_npy(write_npy(tmp_path / "made", data))
    assert isinstance(back.x, np.memmap)
    assert isinstance(back.y, np.memmap)
    assert (back.name, back.num_classes, back.label_names) == ("made", 3, ("a", "b", "c"))
    for mine, other in ((back.x, data.x), (back.y, data.y), (back.offsets, data.offsets), (back.test[0], data.test[0])):
        np.testing.assert_array_equal(mine, other)
    assert isinstance(back.client(3)[0], np.memmap)
    assert isinstance(read(tmp_path / "made", memory_map=True).x, np.memmap)


def test_rows_in_client_order_say_whose_they_are(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(10.0).reshape(5, 2))
    np.save(tmp_path / "y.npy", np.arange(5.0))
    np.save(tmp_path / "client.npy", np.array(["b", "b", "a", "a", "a"]))
    assert map_npy(tmp_path).offsets.tolist() == [0, 2, 5]


def peak_of(task, store):
    """Return a run, and the most bytes that NumPy held at a time while it went on."""
    options = {"rounds": 6, "clients_per_round": 3, "eval_every": 3, "store": store, "keep_state": True}
    tracemalloc.start()
    try:
        run = losac.simulate(task, losac.algorithms.scaffold(0.01, 2), **options)
        return run, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_paged_run_on_mapped_data_is_the_run_in_memory_and_never_loads_x(tmp_path, monkeypatch):
    """Of the 16 MB of x it holds the clients of two rounds, and a slab of the training loss."""
    monkeypatch.setattr(paged, "MOST_ROUNDS", 2)
    monkeypatch.setattr(streaming, "SLAB_BYTES", 2**18)
    monkeypatch.setattr(streaming, "chunk_rows", lambda x: 64)
    data = losac.data.crowd(clients=200, samples=50, dim=400, classes=3)
    mapped = map_npy(write_npy(tmp_path / "crowd", data))
    model = losac.models.softmax_regression(400, 3)
    whole, loaded = peak_of(losac.classification(model, data), "device")
    run, held = peak_of(losac.classification(model, mapped), "memory")
    for mine, other in zip(jax.tree.leaves(run.params), jax.tree.leaves(whole.params)):
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_allclose(run.metrics["loss"], whole.metrics["loss"], rtol=1e-5)
    assert isinstance(mapped.x, np.memmap)
    assert held < mapped.x.nbytes / 3 < loaded


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((2, 1))}, r"y\.npy does not exist"),
        ({"x": np.ones((2, 1)), "y": np.ones(2)}, "neither offsets.npy nor client.npy"),
        ({"x": np.ones((2, 1)), "y": np.ones(3)}, r"2 rows in x\.npy but 3 in y\.npy"),
        ({"x": np.ones((3, 1)), "y": np.ones(3), "client": [0, 1, 0]}, "not have its rows in the order of the clients"),
        ({"x": np.ones((3, 1)), "y": np.ones(3), "client": [0, 1]}, r"client\.npy has shape \(2,\); give one entry"),
        ({"x": np.ones((3, 1)), "y": np.ones(3), "offsets": [0, 2]}, "offsets must run from 0 to the 3 rows"),
        ({"x": np.full((3, 1), np.nan), "y": np.ones(3), "offsets": [0, 2, 3]}, "client 0, row 0, holds nan in x"),
    ],
)
def test_wrong_folders_are_refused(arrays, message, tmp_path):
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(ValueError, match=message):
        map_npy(tmp_path)


def test_a_folder_says_itself_what_is_what(tmp_path):
    write_npy(tmp_path, made())
    with pytest.raises(ValueError, match="says target itself; leave it out"):
        read(tmp_path, target="kind")
    with pytest.raises(ValueError, match="clients=… would bring mapped rows into memory"):
        read(tmp_path, clients=3)


def test_a_damaged_file_is_said(tmp_path):
    write_npy(tmp_path, made())
    (tmp_path / "x.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match=r"x\.npy cannot be mapped"):
        map_npy(tmp_path)


def test_the_check_for_nan_goes_piece_by_piece(monkeypatch):
    monkeypatch.setattr("losac.data.checks._PIECE", 4)
    x = np.ones((9, 3))
    x[7, 2] = np.inf
    with pytest.raises(ValueError, match="client 1, row 3, holds inf in x"):
        FederatedData(x, np.ones(9), np.array([0, 4, 9]))


def table(folder, ending):
    """A table whose clients' rows are not together."""
    frame = pd.DataFrame(RNG.normal(size=(50, 3)), columns=["a", "b", "c"])
    frame = frame.assign(kind=RNG.choice(["cat", "dog"], 50), who=RNG.choice(["x", "y", "z"], 50))
    path = folder / f"t.{ending}"
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_table_is_written_some_rows_at_a_time_and_is_the_table_in_memory(ending, tmp_path, monkeypatch):
    monkeypatch.setattr("losac.data.stream.BATCH", 7)
    path = table(tmp_path, ending)
    mapped = read(path, target="kind", client="who", memory_map=tmp_path / "maps")
    whole = read(path, target="kind", client="who")
    assert isinstance(mapped.x, np.memmap)
    for mine, other in ((mapped.x, whole.x), (mapped.y, whole.y), (mapped.offsets, whole.offsets)):
        np.testing.assert_array_equal(mine, other)
    assert (mapped.label_names, mapped.info["client_names"]) == (whole.label_names, whole.info["client_names"])
    chosen = read(path, target="kind", client="who", features=["c", "a"], memory_map=tmp_path / "two")
    np.testing.assert_array_equal(chosen.x, whole.x[:, [2, 0]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "kind"}, "needs target=… and client=…"),
        ({"target": "kind", "client": "whom"}, "no column 'whom' for the clients.*Did you mean 'who'"),
        ({"target": "kind", "client": "who", "features": ["d"]}, "no column 'd' for the inputs"),
        ({"target": "a", "client": "who"}, "column 'kind' of .* is text"),
        ({"target": "kind", "client": "who", "test": 0.2}, "test=… would bring mapped rows into memory"),
    ],
)
def test_a_table_that_cannot_be_mapped_is_refused(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(table(tmp_path, "parquet"), memory_map=tmp_path / "maps", **options)
