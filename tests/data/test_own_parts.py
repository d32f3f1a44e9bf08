"""Scales from sums alone, and parts to choose and to judge by."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from losac.data import FederatedData, Scale, client_sums, combine, split, standardize

RNG = np.random.default_rng(0)


def made(sizes, dim=3, centre=0.0, test=True):
    clients = [(centre + k + RNG.normal(size=(n, dim)) * (1 + k), RNG.integers(0, 2, n)) for k, n in enumerate(sizes)]
    held = (RNG.normal(size=(7, dim)), RNG.integers(0, 2, 7)) if test else None
    return FederatedData.from_clients(clients, test=held, num_classes=2, info={"optimum": 0})


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 30), min_size=2, max_size=8), centre=st.sampled_from([0.0, 1.0, -1e6]))
def test_the_federations_statistics_are_those_of_the_pooled_rows(sizes, centre):
    data = made(sizes, centre=centre)
    scale = standardize(data).info["scale"]
    np.testing.assert_allclose(scale.mean, data.x.mean(axis=0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(scale.deviation, data.x.std(axis=0), rtol=1e-12 * max(1, abs(centre)))


def test_one_exchange_of_sums_is_enough_for_inputs_near_zero():
    data = made([5, 9, 2])
    scale = combine(client_sums(data.client(i)[0]) for i in range(3))
    np.testing.assert_allclose(scale.mean, data.x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(scale.deviation, data.x.std(axis=0), rtol=1e-12)


def test_a_message_is_three_sums_whatever_the_number_of_rows():
    few, many = client_sums(RNG.normal(size=(2, 4))), client_sums(RNG.normal(size=(2000, 4)))
    assert [np.shape(part) for part in few] == [np.shape(part) for part in many] == [(), (4,), (4,), (4,)]


def test_all_rows_have_mean_zero_and_deviation_one_in_the_federations_scale():
    data = made([20, 30, 10])
    scaled = standardize(data)
    np.testing.assert_allclose(scaled.x.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.x.std(axis=0), 1, rtol=1e-12)
    np.testing.assert_array_equal(scaled.y, data.y)
    assert "optimum" not in scaled.info


def test_each_client_has_its_own_scale_and_the_test_part_the_federations():
    data = made([20, 30, 10])
    scaled = standardize(data, by="client")
    for i in range(3):
        np.testing.assert_allclose(scaled.client(i)[0].mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(scaled.client(i)[0].std(axis=0), 1, rtol=1e-12)
    expected = (data.test[0] - data.x.mean(axis=0)) / data.x.std(axis=0)
    np.testing.assert_allclose(scaled.test[0], expected, rtol=1e-11)
    np.testing.assert_array_equal(scaled.test[0], standardize(data).test[0])


@pytest.mark.parametrize("by", ["client", "federation"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 + 0.1, -3.0])
def test_inputs_that_never_vary_stay_finite_and_become_nothing(by, value):
    clients = [(np.column_stack([np.full(n, value), RNG.normal(size=n)]), np.ones(n)) for n in (3, 1, 7)]
    scaled = standardize(FederatedData.from_clients(clients), by=by)
    assert np.isfinite(scaled.x).all()
    np.testing.assert_allclose(scaled.x[:, 0], 0, atol=1e-6)


def test_a_scale_found_before_serves_for_new_rows_and_whole_numbers():
    data = FederatedData.from_clients([(RNG.integers(0, 255, (9, 2, 2), dtype=np.uint8), np.ones(9))])
    scale = Scale(np.asarray(127.5), np.asarray(255.0))
    assert standardize(data, by=scale).x.dtype == np.float32
    np.testing.assert_allclose(standardize(data, by=scale).x, data.x / 255 - 0.5, atol=1e-6)


def test_wrong_ways_to_standardize_are_refused():
    data = made([3, 4])
    with pytest.raises(ValueError, match="by='clients'; give 'federation', 'client' or a Scale"):
        standardize(data, by="clients")
    with pytest.raises(ValueError, match=r"rows of shape \(2,\), but x has rows of shape \(3,\)"):
        standardize(data, by=Scale(np.zeros(2), np.ones(2)))
    with pytest.raises(ValueError, match="no client sent"):
        combine([])
    with pytest.raises(ValueError, match="about different points"):
        combine([client_sums(data.x), client_sums(data.x, 1.0)])


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=3, max_size=9),
    by=st.sampled_from(["rows", "clients", "pooled"]),
    seed=st.integers(0, 3),
)
def test_every_row_is_in_one_part(sizes, by, seed):
    sizes = [*sizes, 40, 40, 40]
    x = np.arange(sum(sizes), dtype=float)[:, None]
    data = FederatedData(x, x[:, 0], np.cumsum([0, *sizes]))
    train, validation, test = split(data, validation=0.2, test=0.3, by=by, seed=seed)
    parts = [train.y, validation.y, test.y]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), data.y)
    np.testing.assert_array_equal(train.test[1], test.y)
    for part in (train, validation, test):
        for i, who in enumerate(part.info["clients"]):
            assert np.isin(part.client(i)[1], data.client(who)[1]).all()
    again = split(data, validation=0.2, test=0.3, by=by, seed=seed)
    np.testing.assert_array_equal(again.test.y, test.y)
    if by != "clients":
        assert train.num_clients == len(sizes)


def test_whole_clients_are_held_out():
    data = made([4, 5, 6, 7, 8], test=False)
    train, validation, test = split(data, validation=0.2, test=0.4, by="clients")
    everyone = [*train.info["clients"], *validation.info["clients"], *test.info["clients"]]
    assert sorted(everyone) == [0, 1, 2, 3, 4]
    assert (train.num_clients, validation.num_clients, test.num_clients) == (2, 1, 2)
    assert test.sizes.tolist() == [int(data.sizes[i]) for i in test.info["clients"]]


def test_a_test_part_that_is_there_stays():
    data = made([10, 12])
    train, validation, test = split(data, validation=0.25)
    assert test is None
    assert validation.sizes.tolist() == [2, 3]
    np.testing.assert_array_equal(train.test[0], data.test[0])
    with pytest.raises(ValueError, match="has a test part of 7 rows already"):
        split(data, test=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 1.0}, r"test=1.0; give a share between 0 and 1"),
        ({"validation": -0.1}, r"validation=-0.1; give a share"),
        ({"validation": 0.5, "test": 0.5}, "leave something to train on"),
        ({}, "and take something"),
        ({"test": 0.2, "by": "client"}, "by='client'; give one of 'rows', 'clients', 'pooled'"),
        ({"test": 0.01}, "test=0.01 of 2 clients with at most 4 rows, by='rows', rounds to zero"),
        ({"test": 0.1, "by": "clients"}, "by='clients', rounds to zero"),
    ],
)
def test_shares_that_cannot_be_taken_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        split(made([3, 4], test=False), **options)
