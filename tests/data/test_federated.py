"""`FederatedData` gives back what was put in, and names the client that breaks its promises."""

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import losac.data
from losac.data import FederatedData


def ragged(sizes, seed=0, dim=3, classes=4):
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((n, dim)), rng.integers(0, classes, n)) for n in sizes]


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_ragged_clients_round_trip(sizes):
    clients = ragged(sizes)
    data = FederatedData.from_clients(clients, num_classes=4)
    assert data.num_clients == len(sizes)
    assert data.sizes.tolist() == sizes
    assert len(data) == sum(sizes)
    for i, (x, y) in enumerate(clients):
        np.testing.assert_array_equal(data.client(i)[0], x)
        np.testing.assert_array_equal(data.client(i)[1], y)
    np.testing.assert_array_equal(data.label_counts().sum(axis=1), sizes)


def test_dtypes_are_promoted_to_the_common_one():
    pairs = [
        (np.ones((2, 1), np.float32), np.ones(2, np.uint8)),
        (np.ones((1, 1), np.float64), np.ones(1, np.int16)),
    ]
    data = FederatedData.from_clients(pairs)
    assert data.x.dtype == np.float64
    assert data.y.dtype == np.int16


def test_from_partition_orders_rows_and_groups_by_client():
    x, y, groups = np.arange(6.0)[:, None], np.arange(6), np.array(list("abcdef"))
    data = FederatedData.from_partition(x, y, [np.array([5, 0]), np.array([1, 2, 3, 4])], groups=groups)
    assert data.y.tolist() == [5, 0, 1, 2, 3, 4]
    assert "".join(data.groups) == "fabcde"


def good():
    return ragged([3, 2, 4])


def broken(i, x=None, y=None):
    clients = good()
    clients[i] = (clients[i][0] if x is None else x, clients[i][1] if y is None else y)
    return clients


def with_value(value):
    x = good()[2][0]
    x[1, 2] = value
    return x


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([], "no clients.*at least one"),
        (broken(1, np.empty((0, 3)), np.empty(0)), "client 1 has no rows; leave it out"),
        (broken(2, y=np.zeros(5)), "client 2 has 4 rows of x but 5 of y"),
        (broken(1, np.ones((2, 7))), r"client 1 .*x of shape \(7,\), client 0 of shape \(3,\)"),
        (broken(2, y=np.ones((4, 2))), r"client 2 .*y of shape \(2,\)"),
        (broken(1, np.array([["a"] * 3] * 2)), "x of client 1 has dtype <U1; give numbers"),
        (broken(1, np.array([[None] * 3] * 2)), "x of client 1 has dtype object; give numbers"),
        (broken(2, with_value(np.nan)), "client 2, row 1, holds nan in x; drop such rows"),
        (broken(2, with_value(-np.inf)), "client 2, row 1, holds -inf in x"),
        (broken(0, y=np.array([0.0, np.nan, 1.0])), "client 0, row 1, holds nan in y"),
    ],
)
def test_errors_name_the_client_and_the_way_out(clients, message):
    with pytest.raises(ValueError, match=message):
        FederatedData.from_clients(clients)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 2}, "has the label [23]; num_classes=2 allows 0 to 1"),
        ({"test": (np.ones((2, 5)), np.ones(2))}, r"test x has rows of shape \(5,\).*\(3,\)"),
        ({"test": (np.ones((2, 3)), np.ones(4))}, "test data has 2 rows of x but 4 of y"),
        ({"test": (np.full((2, 3), np.nan), np.ones(2))}, "test row 0 holds nan in x"),
    ],
)
def test_labels_and_test_part_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        FederatedData.from_clients(good(), **options)


def test_the_constructor_checks_too():
    x, y = np.ones((4, 2)), np.ones(4)
    with pytest.raises(ValueError, match=r"offsets must run from 0 to the 4 rows.*from_clients"):
        FederatedData(x, y, np.array([0, 3]))
    with pytest.raises(ValueError, match="client 1 has no rows"):
        FederatedData(x, y, np.array([0, 2, 2, 4]))
    with pytest.raises(ValueError, match="groups has 3 entries for 4 rows"):
        FederatedData(x, y, np.array([0, 4]), groups=np.arange(3))
    with pytest.raises(ValueError, match=r"num_classes=2 needs one whole-number label.*regression"):
        FederatedData(x, y, np.array([0, 4]), num_classes=2)
    with pytest.raises(ValueError, match="client 1 asks for a row outside 0 to 3"):
        FederatedData.from_partition(x, y, [np.array([0]), np.array([7])])


def test_subset_takes_clients_in_the_order_given():
    data = FederatedData.from_clients(good(), info={"optimum": 1, "truth": 2})
    part = data.subset([2, 0])
    assert part.sizes.tolist() == [4, 3]
    np.testing.assert_array_equal(part.client(1)[0], data.client(0)[0])
    assert part.info == {"truth": 2}, "a subset has another optimum"
    with pytest.raises(ValueError, match="client 3 does not exist; the clients are 0 to 2"):
        data.subset([3])
    with pytest.raises(ValueError, match="client -1 does not exist"):
        data.client(-1)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8), fraction=st.floats(0.05, 0.95))
def test_split_takes_a_share_of_every_client_and_loses_no_row(sizes, fraction):
    data = FederatedData.from_clients([*ragged(sizes), *ragged([20], seed=1)])
    train, (x, y) = data.split(fraction, seed=3)
    assert (train.sizes >= 1).all()
    assert len(train) + len(x) == len(data)
    assert len(x) == len(y)
    both = np.concatenate([train.x, x])
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(data.x, axis=0))


def test_split_is_fixed_by_its_seed_and_refuses_what_it_cannot_do():
    data = FederatedData.from_clients(ragged([10, 12]))
    (_, first), (_, again), (_, other) = (data.split(0.4, seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[0], other[0])
    with pytest.raises(ValueError, match=r"fraction=1.5; give a share between 0 and 1"):
        data.split(1.5, 0)
    with pytest.raises(ValueError, match=r"fraction=0.01.*12 rows.*larger fraction"):
        data.split(0.01, 0)


def test_label_counts_refuse_regression():
    data = FederatedData.from_clients([(np.ones((2, 1)), np.array([0.5, 1.5]))], name="houses")
    with pytest.raises(ValueError, match="'houses' has no labels to count: y is float64"):
        data.label_counts()


def test_repr_says_what_a_reader_wants_to_know():
    test = (np.ones((7, 3)), np.ones(7, int))
    text = repr(FederatedData.from_clients(good(), name="mine", num_classes=4, test=test))
    for part in ("'mine'", "3 clients", "9 rows (2 to 4 each)", "4 classes", "test 7 rows", "float64"):
        assert part in text


def test_the_picture_is_bars_for_few_clients_and_a_map_for_many():
    names = ("ant", "bee", "cat", "dog")
    few = FederatedData.from_clients(ragged([5] * 8), num_classes=4, label_names=names, name="pets").plot()
    many = FederatedData.from_clients(ragged([5] * 100), num_classes=4, label_names=names).plot()
    sizes = FederatedData.from_clients([(x, y * 0.5) for x, y in ragged([3, 4])]).plot()
    assert [text.get_text() for text in few.axes[0].get_legend().get_texts()] == list(names[::-1])
    assert "pets: 40 rows at 8 clients" in few.axes[0].get_title(loc="left")
    assert [text.get_text() for text in many.axes[0].get_yticklabels()] == list(names)
    assert many.axes[0].images[0].get_array().shape == (4, 100)
    assert [bar.get_height() for bar in sizes.axes[0].patches] == [3, 4]
    for figure in (few, many, sizes):
        assert figure.axes[0].get_xlabel() == "client"
        assert figure.axes[0].get_ylabel()


def test_the_picture_goes_into_axes_that_are_given():
    from matplotlib.figure import Figure

    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert FederatedData.from_clients(ragged([5] * 60), num_classes=4).plot(right) is figure
    assert right.images
    assert not left.images


def test_the_package_needs_only_numpy_to_be_imported():
    heavy = {"jax", "matplotlib", "sklearn", "rich"}
    for path in Path(losac.data.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert not heavy & {name.split(".")[0] for name in names}, path.name
