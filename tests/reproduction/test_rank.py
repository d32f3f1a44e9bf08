"""The study that ranks all methods: its synthetic data is FedProx's, and every method is there in its own forms."""

from __future__ import annotations

import numpy as np
import pytest

from losac.algorithms import ALGORITHMS
from losac.data.partitioners import dirichlet
from losac_reproduction import Options
from losac_reproduction.studies import rank
from losac_reproduction.synthetic import CLASSES, DIM, accuracy_of, fitted, synthetic


@pytest.mark.parametrize(("kind", "spread", "shift"), [("iid", 0.0, 0.0), ("0,0", 1.0, 0.0), ("1,1", 1.0, 1.0)])
def test_clients_have_the_inputs_that_the_kind_says(kind, spread, shift):
    """The mean input of client i is v_i ~ N(B_i, 1), with B_i ~ N(0, β); it is zero with IID clients."""
    data = synthetic(kind, seed=3)
    assert (data.num_clients, data.x.shape[1], data.num_classes) == (30, DIM, CLASSES)
    assert data.sizes.min() >= 45
    assert data.sizes.max() > 5 * np.median(data.sizes)
    means = np.stack([data.client(i)[0].mean(0) for i in range(30)])
    assert abs(means.std(1).mean() - spread) < 0.1
    assert abs(means.mean(1).std() - np.hypot(shift, spread * DIM**-0.5)) < 0.3
    whitened = np.stack([data.client(i)[0].std(0) for i in range(30)]).mean(0) * np.arange(1, DIM + 1) ** 0.6
    np.testing.assert_allclose(whitened, 1, atol=0.1)
    assert not np.array_equal(data.sizes, synthetic(kind, seed=4).sizes)


def test_the_share_is_that_of_a_model_fitted_to_all_rows():
    """One linear model labels all rows of IID clients rightly, and so its own."""
    data = synthetic("iid", seed=0)
    small = data.subset(np.argsort(data.sizes)[:2])
    assert accuracy_of(fitted(small), (small.x, small.y)) == 1.0


@pytest.mark.parametrize("data", [*rank.CONTESTS])
def test_every_method_is_in_every_setting_once(data):
    made = rank.jobs(Options(), data, shares=False)
    contest = rank.CONTESTS[data]
    names = [job.arguments["method"] for job in made if job.arguments["partition"] == contest.partitions[0]]
    assert len(names) == len(set(names))
    assert len(made) == len(names) * len(contest.partitions)
    missing = {n for n in ALGORITHMS if n not in names} - {*rank.SAME}
    assert missing == {"scaffnew", "tamuna", "locodl"}


def test_methods_that_ask_all_clients_now_and_then_are_ranked_with_those_that_always_do():
    asking = {name for name in rank.tuned_methods() if rank.asks_all(name)}
    assert asking == {"vrl_sgd", "fedlin", "local_svrg", "pp_marina"}


def test_clients_that_count_by_their_rows_are_averaged_so_where_a_method_can():
    forms = {name: rank.forms_of(name, "synthetic")[0].settings for name in ("fedavg", "fedprox", "scaffold")}
    assert forms == {"fedavg": {"weighting": "average"}, "fedprox": {"weighting": "average"}, "scaffold": {}}
    assert rank.forms_of("fedavg")[0].settings == {}


def test_no_client_has_too_few_rows_for_its_blocks():
    """Rows move from the largest clients; each still has one owner, and only those that need rows get some."""
    labels = np.arange(600) % 10
    given = dirichlet(0.3)(labels, 60, np.random.default_rng(0))
    dealt = rank.enough(dirichlet(0.3))(labels, 60, np.random.default_rng(0))
    sizes = [len(rows) for rows in given], [len(rows) for rows in dealt]
    assert min(sizes[0]) < rank.LEAST_ROWS == min(sizes[1])
    assert sorted(np.concatenate(dealt)) == list(range(600))
    for before, after in zip(given, dealt):
        assert set(before) <= set(after) if len(before) <= rank.LEAST_ROWS else set(after) <= set(before)
