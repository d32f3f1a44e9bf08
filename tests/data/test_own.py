"""What users have becomes clients' data: the same rows whatever they came in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import losac
from losac.data import FederatedData, read

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "height": RNG.normal(size=60),
        "visits": RNG.integers(0, 5, 60),
        "smokes": RNG.random(60) < 0.5,
        "kind": RNG.choice(["cat", "dog", "elk"], 60),
        "subject": RNG.choice(["ann", "bob", "eve"], 60),
    }
)
NUMBERS = ["height", "visits", "smokes"]


def assert_is_the_frame(data: FederatedData) -> None:
    """Each subject is a client, in alphabetical order, with its rows in the order of the frame."""
    assert data.info["client_names"] == ("ann", "bob", "eve")
    assert data.label_names == ("cat", "dog", "elk")
    for i, (_, rows) in enumerate(FRAME.groupby("subject")):
        x, y = data.client(i)
        np.testing.assert_allclose(x, rows[NUMBERS].to_numpy(float), rtol=1e-6)
        assert [data.label_names[label] for label in y] == rows["kind"].tolist()


def csv(folder):
    FRAME.to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def semicolons(folder):
    FRAME.to_csv(folder / "t.csv.gz", index=False, sep=";", encoding="utf-8")
    return str(folder / "t.csv.gz")


def byte_order_mark(folder):
    FRAME.to_csv(folder / "t.csv", index=False, encoding="utf-8-sig")
    return folder / "t.csv"


def parquet(folder):
    FRAME.to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def npz(folder):
    np.savez(
        folder / "t.npz", **{name: FRAME[name].to_numpy(str if name in ("kind", "subject") else None) for name in FRAME}
    )
    return folder / "t.npz"


def categories(folder):
    return FRAME.astype({"kind": "category", "subject": "string", "visits": "Int64", "height": "Float64"})


def polars(folder):
    return pytest.importorskip("polars").from_pandas(FRAME)


def lazy_polars(folder):
    return pytest.importorskip("polars").from_pandas(FRAME).lazy()


def hugging_face(folder):
    return pytest.importorskip("datasets").Dataset.from_pandas(FRAME)


def arrays(folder):
    return {name: FRAME[name].to_numpy() for name in FRAME}


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: FRAME, csv, semicolons, byte_order_mark, parquet, npz, categories, polars, lazy_polars,
        hugging_face, arrays,
    ],
)  # fmt: skip
def test_a_table_is_the_same_data_whatever_it_comes_in(make, tmp_path):
    assert_is_the_frame(read(make(tmp_path), target="kind", client="subject", features=NUMBERS))


def test_one_source_per_client():
    parts = {who: rows.drop(columns="subject") for who, rows in FRAME.groupby("subject")}
    assert_is_the_frame(read(parts, target="kind"))
    listed = read(list(parts.values()), target="kind")
    assert listed.sizes.tolist() == [len(rows) for rows in parts.values()]
    hugging_face = pytest.importorskip("datasets").Dataset
    both = [hugging_face.from_pandas(rows, preserve_index=False) for rows in parts.values()]
    np.testing.assert_array_equal(read(both, target="kind").x, listed.x)


def test_the_parts_and_the_labels_of_a_hugging_face_data_set_keep_their_meaning():
    hf = pytest.importorskip("datasets")
    features = hf.Features({"image": hf.Array2D((4, 3), "uint8"), "label": hf.ClassLabel(names=["no", "yes", "never"])})
    rows = {"image": RNG.integers(0, 255, (6, 4, 3)), "label": [0, 1, 1, 0, 1, 0]}
    part = hf.Dataset.from_dict(rows, features)
    data = read(hf.DatasetDict(train=part, test=part), target="label", clients=2)
    assert data.label_names == ("no", "yes", "never")
    assert data.num_classes == 3
    np.testing.assert_allclose(data.test[0], rows["image"] / 255, rtol=1e-6)
    assert data.x.shape == (6, 4, 3)


def test_pairs_of_arrays_and_archives_with_a_test_part(tmp_path):
    x, y = RNG.normal(size=(9, 2)).astype("float32"), np.arange(9) % 3
    np.testing.assert_array_equal(read([(x[:4], y[:4]), (x[4:], y[4:])]).x, x)
    assert read((x, y), clients=3).num_clients == 3
    np.savez(tmp_path / "t.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2], who_train=y, names=["u", "v"])
    data = read(tmp_path / "t.npz", client="who")
    np.testing.assert_array_equal(data.test[0], x[:2])
    assert data.sizes.tolist() == [3, 3, 3]


def test_a_subset_of_the_clients_keeps_their_names():
    data = read(FRAME, target="kind", client="subject", features=NUMBERS)
    assert data.subset([2, 0]).info["client_names"] == ("eve", "ann")


def test_labels_that_look_like_numbers_and_text_are_text_when_said_so():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "t": ["1", "2", "b", "1"]})
    assert read(frame, target="t", clients=2, labels=True).label_names == ("1", "2", "b")


def test_tensors_by_name_are_columns():
    torch = pytest.importorskip("torch")
    data = read({"x": torch.ones(4, 2), "y": torch.tensor([0, 1, 0, 1])}, clients=2)
    assert data.x.shape == (4, 2)


def test_missing_values_of_a_hugging_face_data_set_are_seen():
    hf = pytest.importorskip("datasets")
    for column in ([1, None, 3], ["u", None, "v"], [1.0, None, 2.0]):
        with pytest.raises(losac.data.DataError, match=r"column 'a' .* has 1 missing values"):
            read(hf.Dataset.from_dict({"a": column, "y": [0, 1, 0]}), target="y", clients=1)


def test_a_torch_data_set_is_read_item_by_item_or_at_once():
    torch = pytest.importorskip("torch")
    x, y = torch.arange(24.0).reshape(6, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    at_once = read(torch.utils.data.TensorDataset(x, y), clients=2, seed=1)

    class Items(torch.utils.data.Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            return x[i], int(y[i])

    np.testing.assert_array_equal(read(Items(), clients=2, seed=1).x, at_once.x)
    assert at_once.num_classes == 3
    assert read(Items(), clients=2, flatten=True).x.shape == (6, 4)
    assert read([Items(), Items()]).num_clients == 2


def picture(path, value, size=(5, 4), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def test_a_folder_of_images_has_a_class_per_folder(tmp_path):
    for at, kind in enumerate(("cat", "dog")):
        for k in range(3):
            picture(tmp_path / kind / f"{k}.png", 255 * at)
    data = read(tmp_path, clients=2)
    assert data.x.shape == (6, 4, 5, 1)
    assert data.label_names == ("cat", "dog")
    np.testing.assert_array_equal(data.x[:, 0, 0, 0], data.y)
    assert read(tmp_path, clients=2, size=(2, 3)).x.shape == (6, 2, 3, 1)


def test_a_folder_of_images_may_have_a_client_per_parent_folder(tmp_path):
    for who in ("ann", "bob"):
        for kind in ("cat", "dog"):
            picture(tmp_path / who / kind / "0.jpg", (10, 20, 30), mode="RGB")
    data = read(tmp_path)
    assert data.info["client_names"] == ("ann", "bob")
    assert data.x.shape == (4, 4, 5, 3)
    assert data.label_counts().tolist() == [[1, 1], [1, 1]]


def test_rows_are_dealt_as_the_partition_says():
    data = read(FRAME, target="kind", clients=4, partition="sorted", features=NUMBERS)
    assert data.sizes.tolist() == [15] * 4
    assert (data.label_counts() > 0).sum(axis=1).max() <= 2
    again = read(FRAME, target="kind", clients=4, partition="dirichlet:0.3", features=NUMBERS, seed=3)
    same = read(FRAME, target="kind", clients=4, partition="dirichlet:0.3", features=NUMBERS, seed=3)
    np.testing.assert_array_equal(again.x, same.x)


def test_text_becomes_one_column_per_value_when_asked():
    data = read(FRAME, target="height", client="subject", categorical="onehot")
    assert data.info["features"] == ("visits", "smokes", "kind=cat", "kind=dog", "kind=elk")
    np.testing.assert_array_equal(data.x[:, 2:].sum(axis=1), 1)
    assert data.num_classes is None
    assert read(FRAME, target="height", client="subject", categorical="drop").x.shape == (60, 2)


def test_a_test_source_is_encoded_like_the_clients_rows():
    data = read(FRAME[:40], target="kind", client="subject", features=["visits", "smokes"], test=FRAME[40:])
    np.testing.assert_array_equal(data.test[0], FRAME[40:][["visits", "smokes"]].to_numpy(float))
    assert [data.label_names[y] for y in data.test[1]] == FRAME[40:]["kind"].tolist()


@pytest.mark.parametrize(("by", "rows"), [("rows", 12), ("pooled", 12), ("clients", None)])
def test_a_share_is_held_out(by, rows):
    whole = read(FRAME, target="kind", client="subject", features=NUMBERS)
    data = read(FRAME, target="kind", client="subject", features=NUMBERS, test=0.2 if rows else 0.34, test_by=by)
    assert len(data) + len(data.test[0]) == 60
    if rows:
        assert abs(len(data.test[0]) - rows) <= 1
    else:
        assert data.num_clients == 2
        assert len(data.test[0]) in whole.sizes


@pytest.mark.parametrize(
    ("values", "labels", "classes", "names"),
    [
        ([0, 1, 2, 1], None, 3, None),
        ([-1, 1, 1, -1], None, 2, ("-1", "1")),
        ([True, False, True, True], None, 2, ("False", "True")),
        ([0.5, 1.5, 0.5, 0.5], None, None, None),
        ([1.0, 2.0, 1.0, 2.0], True, 2, ("1.0", "2.0")),
        ([3, 1, 1, 3], False, None, None),
        (list(range(100, 400, 3)), None, None, None),
    ],
)
def test_labels_are_told_from_numbers(values, labels, classes, names):
    data = read(pd.DataFrame({"a": 1.0, "t": values}), target="t", clients=2, labels=labels)
    assert data.num_classes == classes
    assert data.label_names == names


def test_incomplete_rows_are_dropped_when_asked():
    frame = FRAME.copy()
    frame.loc[3, "height"] = np.nan
    frame.loc[5, "kind"] = None
    data = read(frame, target="kind", client="subject", features=NUMBERS, missing="drop")
    assert len(data) == 58


def test_what_was_read_can_be_trained_on():
    data = read(FRAME, target="kind", client="subject", features=NUMBERS, test=0.2)
    task = losac.classification(losac.models.softmax_regression(3, 3), data)
    history = losac.simulate(task, losac.algorithms.fedavg(1e-3), rounds=2)
    assert np.isfinite(history.final("loss"))
