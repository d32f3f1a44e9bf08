"""Every partitioner deals every row exactly once and leaves no client empty."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from losac.data import partition
from losac.data.partition import by_group, deal, dirichlet, iid, mixture, parse, shards, sorted_by_label

PARTITIONERS = [
    iid(),
    sorted_by_label(),
    mixture(0.0),
    mixture(0.37),
    mixture(1.0),
    dirichlet(100.0),
    dirichlet(0.3),
    dirichlet(1e-4),
    shards(1),
    shards(3),
    by_group(),
]


def rng(seed=0):
    return np.random.default_rng(seed)


@st.composite
def problems(draw):
    """Labels, groups and a number of clients that every partitioner can serve."""
    clients = draw(st.integers(1, 12))
    rows = draw(st.integers(3 * clients, 3 * clients + 60))
    classes = draw(st.integers(1, 8))
    labels = rng(draw(st.integers(0, 2**32))).integers(0, classes, rows)
    groups = rng(draw(st.integers(0, 2**32))).permutation(np.arange(rows) % clients)
    return labels, groups, clients


@pytest.mark.parametrize("partitioner", PARTITIONERS, ids=repr)
@settings(max_examples=40, deadline=None)
@given(problem=problems(), seed=st.integers(0, 1000))
def test_every_row_goes_to_exactly_one_client_and_no_client_is_empty(partitioner, problem, seed):
    labels, groups, clients = problem
    parts = partitioner(labels, clients, rng(seed), groups)
    assert len(parts) == clients
    assert min(map(len, parts)) >= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))


@pytest.mark.parametrize("partitioner", PARTITIONERS[:-1], ids=repr)
def test_the_seed_fixes_the_parts_and_another_seed_gives_others(partitioner):
    labels = rng(7).integers(0, 5, 200)
    first, again, other = (partitioner(labels, 8, rng(seed)) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other))


@pytest.mark.parametrize(("c", "same"), [(0.0, iid()), (1.0, sorted_by_label())])
def test_mixture_runs_from_iid_to_sorted(c, same):
    labels = rng(3).integers(0, 4, 101)
    for mine, other in zip(mixture(c)(labels, 7, rng()), same(labels, 7, rng())):
        np.testing.assert_array_equal(mine, other)


@settings(max_examples=60, deadline=None)
@given(c=st.floats(0, 1), rows=st.integers(1, 200), clients=st.integers(1, 30))
def test_mixture_sizes_differ_by_at_most_one(c, rows, clients):
    if clients > rows:
        return
    sizes = [len(part) for part in mixture(c)(np.arange(rows) % 3, clients, rng())]
    assert max(sizes) - min(sizes) <= 1


def test_mixture_grows_the_share_of_a_clients_main_label():
    labels = np.repeat(np.arange(10), 100)

    def main_share(c):
        parts = mixture(c)(labels, 10, rng())
        return np.mean([np.bincount(labels[rows]).max() / len(rows) for rows in parts])

    shares = [main_share(c) for c in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_sorted_keeps_a_random_order_within_a_label():
    parts = sorted_by_label()(np.zeros(50, int), 2, rng())
    assert not np.array_equal(np.concatenate(parts), np.arange(50))


def test_dirichlet_skews_more_as_alpha_falls():
    labels = np.repeat(np.arange(10), 200)

    def classes_held(alpha):
        return np.mean([len(np.unique(labels[rows])) for rows in dirichlet(alpha)(labels, 20, rng())])

    assert classes_held(0.05) < classes_held(0.5) < classes_held(50.0)


def test_dirichlet_gives_as_many_clients_as_rows_one_row_each():
    assert [len(p) for p in dirichlet(0.01)(np.zeros(30, int), 30, rng())] == [1] * 30


def test_a_client_of_two_shards_sees_at_most_three_labels():
    labels = np.repeat(np.arange(10), 60)
    assert max(len(np.unique(labels[rows])) for rows in shards(2)(labels, 50, rng())) <= 3


def test_by_group_is_one_client_per_group():
    groups = np.array(["b", "a", "b", "c"])
    parts = by_group()(np.zeros(4), None, rng(), groups)
    assert [p.tolist() for p in parts] == [[1], [0, 2], [3]]
    with pytest.raises(ValueError, match=r"clients=5.*3 groups.*give 3"):
        by_group()(np.zeros(4), 5, rng(), groups)
    with pytest.raises(ValueError, match=r"needs data with groups.*iid"):
        by_group()(np.zeros(4), None, rng())


@pytest.mark.parametrize("partitioner", PARTITIONERS[:-1], ids=repr)
def test_more_clients_than_rows_is_an_error_with_the_way_out(partitioner):
    with pytest.raises(ValueError, match=r"clients=9.*only 5 rows.*at most 5"):
        partitioner(np.zeros(5, int), 9, rng())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mixture(1.5), "c=1.5.*0 .*to 1"),
        (lambda: mixture(float("nan")), "c=nan"),
        (lambda: dirichlet(0.0), "alpha=0.0.*positive"),
        (lambda: shards(0), "per_client=0.*at least one"),
        (lambda: shards(4)(np.zeros(7, int), 2, rng()), "2 clients x 4 shards.*8 rows.*fewer"),
        (lambda: iid()(np.zeros(7, int), 0, rng()), "clients=0.*at least 1"),
        (lambda: iid()(np.zeros((7, 2)), 2, rng()), r"\(7, 2\).*one label per row"),
    ],
)
def test_bad_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_parse_reads_every_form():
    assert parse("iid") == iid()
    assert parse("sorted") == sorted_by_label()
    assert parse("mixture:0.5") == mixture(0.5)
    assert parse("dirichlet:0.3") == dirichlet(0.3)
    assert parse("shards:2") == shards(2)
    assert parse("group") == by_group()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dirichelt:0.3", "dirichelt:0.3.*mixture:SHARE.*Did you mean 'dirichlet'"),
        ("mixture", "'mixture' is not of the form mixture:SHARE"),
        ("mixture:half", "mixture:half.*mixture:SHARE.*half"),
        ("mixture:2", "mixture:2.*c=2.0"),
        ("iid:3", "'iid:3' is not of the form iid"),
        ("???", "iid, sorted, mixture:SHARE, dirichlet:ALPHA, shards:PER_CLIENT, group"),
    ],
)
def test_parse_errors_list_the_forms_and_the_nearest(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_a_users_own_callable_is_taken_and_checked():
    def halves(labels, clients, rng, groups=None):
        return np.array_split(np.arange(len(labels)), clients)

    assert [p.tolist() for p in deal(np.zeros(3), 2, halves, rng())] == [[0, 1], [2]]
    with pytest.raises(ValueError, match="each of the 3 rows exactly once"):
        deal(np.zeros(3), 2, lambda labels, clients, rng, groups=None: [[0, 1], [1, 2]], rng())
    with pytest.raises(ValueError, match="client 1 without rows"):
        deal(np.zeros(3), 2, lambda labels, clients, rng, groups=None: [[0, 1, 2], []], rng())


def test_the_public_list_is_complete():
    assert all(hasattr(partition, name) for name in partition.__all__)
