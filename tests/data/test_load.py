"""`load` gives the same data for the same arguments, and refuses files that are not the expected ones."""

import numpy as np
import pytest

from losac import data
from losac._folders import cache_dir
from losac.data import DataError, load, tables
from losac.data.files import content_digest, read_npz, write_npz
from losac.data.sets import SETS
from losac.data.sources import SOURCES


def same(a, b):
    return np.array_equal(a.x, b.x) and np.array_equal(a.y, b.y) and np.array_equal(a.offsets, b.offsets)


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSAC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LOSAC_DATA_DIR", raising=False)
    return tmp_path


# --- names, options, seeds -----------------------------------------------------------------------------


def test_digits_are_those_of_scikit_learn_which_is_not_imported_for_them():
    from sklearn.datasets import load_digits

    from losac.data.tables import _digits

    for ours, theirs in zip(_digits(), load_digits(return_X_y=True), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_digits_come_with_the_library():
    digits = load("digits")
    assert digits.num_clients == 20
    assert (len(digits), len(digits.test[0])) == (1438, 359)
    assert digits.x.dtype == np.float32
    assert (digits.x.min(), digits.x.max()) == (0, 1)
    assert digits.num_classes == 10


@pytest.mark.parametrize("partition", ["iid", "sorted", "mixture:0.5", "dirichlet:0.3", "shards:2"])
def test_the_seed_fixes_the_split_and_the_partition(partition):
    first, again, other = (load("digits", 10, partition, seed=seed) for seed in (1, 1, 2))
    assert same(first, again)
    assert np.array_equal(first.test[0], again.test[0])
    assert not same(first, other)


def test_the_held_out_rows_do_not_depend_on_the_partition():
    few, many = load("digits", 5, "iid"), load("digits", 50, "sorted")
    np.testing.assert_array_equal(few.test[0], many.test[0])


def test_a_users_own_partition_is_taken():
    def first_client_gets_one(labels, clients, rng, groups=None):
        return [np.array([0]), np.arange(1, len(labels))]

    digits = load("digits", partition=first_client_gets_one)
    assert digits.sizes.tolist() == [1, 1437]
    assert digits.info["partition"] == "first_client_gets_one"


@pytest.mark.parametrize("name", ["quadratic", "lowrank", "logistic"])
def test_synthetic_data_is_loaded_by_name_with_its_options(name):
    made = load(name, clients=3, samples=9, dim=9, seed=4)
    assert made.sizes.tolist() == [9, 9, 9]
    assert same(made, getattr(data, name)(clients=3, samples=9, dim=9, seed=4))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("minst",), {}, "unknown data set 'minst'; known are digits, mnist.*Did you mean 'mnist'"),
        (("digits", 10, "dirichelt:1"), {}, "dirichelt:1.*Did you mean 'dirichlet'"),
        (("digits",), {"flatten": True}, "'digits' has no option 'flatten'; it has no options"),
        (
            ("quadratic",),
            {"sampels": 3},
            "no option 'sampels'; its options are samples.*Did you mean 'samples'",
        ),
        (("quadratic", 3, "sorted"), {}, "'quadratic' is made client by client.*'sorted'.*leave it out"),
        (("digits", 5000), {}, "clients=5000.*1438"),
        (("digits", None, "group"), {}, "'digits' has no groups.*try 'iid'"),
    ],
)
def test_bad_arguments_are_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        load(*arguments, **options)


def test_every_data_set_has_a_line_about_it():
    assert list(data.datasets()) == [
        *["digits", "mnist", "har", "esr", "a9a", "w8a"],
        *SETS,
        "synthetic",
        "quadratic",
        "lowrank",
        "logistic",
    ]
    assert all(data.datasets().values())


def small_esr():
    rng = np.random.default_rng(0)
    y, recording = np.repeat([1, 2, 3, 4, 5], 20), np.repeat(np.arange(25), 4)
    x = rng.integers(-900, 900, (100, 6)).astype(np.int16)
    x[3] = 7
    return {"x": x, "y": y.astype(np.uint8), "recording": recording.astype(np.uint16)}


def test_esr_preprocessing_learns_its_scales_from_the_training_part():
    def make(kind):
        return tables.esr(small_esr(), np.random.default_rng(0), preprocessing=kind)

    row = make("row")
    varied = np.ptp(row.x, axis=1) > 0
    assert (row.x[varied].min(axis=1) == 0).all()
    assert (row.x[varied].max(axis=1) == 1).all()
    feature = make("feature").x
    assert (feature.min(axis=0) == 0).all()
    assert (feature.max(axis=0) == 1).all()
    np.testing.assert_allclose(make("standard").x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(make("standard").x.std(axis=0), 1, atol=1e-6)
    assert (make("global").x.min(), make("global").x.max()) == (0, 1)
    assert np.ptp(make("none").x) > 1000
    with pytest.raises(ValueError, match="preprocessing='rows'; give one of row, feature"):
        make("rows")


def test_a_flat_row_becomes_zero_and_not_nan():
    table = tables.esr(small_esr(), np.random.default_rng(0))
    every = np.concatenate([table.x, table.test[0]])
    assert np.isfinite(every).all()
    assert (np.ptp(every, axis=1) == 0).sum() == 1


def test_esr_splits_by_row_or_by_recording():
    recording_of = {tuple(x): r for x, r in zip(small_esr()["x"].tolist(), small_esr()["recording"].tolist())}

    def shared(split):
        table = tables.esr(small_esr(), np.random.default_rng(0), preprocessing="none", split=split)
        assert (len(table.x), len(table.test[0])) == (80, 20)
        return {recording_of[tuple(x)] for x in table.test[0].astype(int).tolist()} & set(table.groups.tolist())

    assert shared("random")
    assert not shared("recording")
    with pytest.raises(ValueError, match="split='person'; give one of random, recording"):
        shared("person")


def test_esr_is_binary_or_has_five_classes():
    binary = tables.esr(small_esr(), np.random.default_rng(0))
    five = tables.esr(small_esr(), np.random.default_rng(0), multiclass=True)
    np.testing.assert_array_equal(binary.y == 1, five.y == 0)
    assert len(five.label_names) == five.num_classes == 5


# --- files ---------------------------------------------------------------------------------------------


def test_a_missing_file_names_itself_its_checksum_and_both_ways_out(no_data):
    with pytest.raises(DataError) as error:
        load("har", download=False)
    for part in ("har.npz", SOURCES["har"].digest, str(no_data), "losac data download har", "LOSAC_DATA_DIR"):
        assert part in str(error.value)


@pytest.mark.parametrize("by", ["data_dir", "LOSAC_DATA_DIR"])
def test_a_folder_without_the_file_is_said_and_passed_over(no_data, monkeypatch, by):
    monkeypatch.setenv("LOSAC_DATA_DIR", str(no_data / "empty"))
    with (
        pytest.warns(UserWarning, match=rf"{by}=.*empty has no w8a.npz: looking in the cache"),
        pytest.raises(DataError, match=r"w8a.npz is missing"),
    ):
        load("w8a", data_dir=no_data / "empty" if by == "data_dir" else None, download=False)


def test_other_data_under_the_right_name_is_refused(no_data):
    write_npz(no_data / "w8a.npz", {"x_train": np.zeros((2, 300)), "y_train": np.ones(2)})
    with pytest.raises(DataError) as error:
        load("w8a", data_dir=no_data)
    found = content_digest({"x_train": np.zeros((2, 300)), "y_train": np.ones(2)})
    for part in ("w8a.npz", SOURCES["w8a"].digest, found, "losac data download w8a"):
        assert part in str(error.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x93NUMPY"])
def test_what_is_not_an_archive_is_refused(no_data, content):
    (no_data / "a9a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a9a.npz cannot be read.*sha256.*Delete it"):
        load("a9a", data_dir=no_data)


def test_the_digest_sees_content_and_not_the_container(tmp_path):
    arrays = {"x": np.arange(6.0).reshape(2, 3), "names": np.array(["a", "bc"])}
    write_npz(tmp_path / "packed.npz", arrays)
    np.savez(tmp_path / "plain.npz", **dict(reversed(arrays.items())))
    for name in ("packed", "plain"):
        found = read_npz(tmp_path / f"{name}.npz", content_digest(arrays))
        np.testing.assert_array_equal(found["x"], arrays["x"])
    assert content_digest(arrays) != content_digest({**arrays, "x": arrays["x"].astype(np.float32)})
    assert content_digest(arrays) != content_digest({**arrays, "x": arrays["x"].T})


def test_the_cache_is_where_it_is_said_to_be(monkeypatch, tmp_path):
    monkeypatch.setenv("LOSAC_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("LOSAC_CACHE")
    assert cache_dir().name == "losac"
