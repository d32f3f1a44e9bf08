"""Client weights that act in the average: zero weights, and what a client leaves behind that is taken out."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import losac
import losac.algorithms as A
from catalogue import FULL, ONE_EACH
from faults import CLIENTS, METHODS, START, QuickWorker
from losac.algorithms.contract import Algorithm
from losac.federation import membership
from losac.federation.book import Rules
from losac.federation.drive import Driver
from losac.federation.inprocess import InProcess
from losac.federation.protocol import Client
from losac.federation.setting import Setting
from losac.federation.vault import Memory
from losac.prox import zero
from losac.simulation.sampling import Fixed
from losac.trees import map_trees
from problems import quadratic

AVERAGING = [entry.name for entry in ONE_EACH if hasattr(entry.make(10.0, FULL), "weighting")]
PROBLEM = quadratic(clients=4, samples=[4, 5, 6, 7], dim=2, weights=[0, 0, 1, 3])
RUN = {"clients_per_round": 2, "sampling": [[0, 1], [2, 3], [1, 3]], "dtype": "float64"}


def averaging(name: str) -> Any:
    made = next(entry for entry in ONE_EACH if entry.name == name).make(PROBLEM.curvature, FULL)
    return made.replace(weighting="average")


@pytest.mark.parametrize("name", AVERAGING)
def test_a_round_of_clients_without_weight_changes_nothing_at_the_server(name):
    algorithm = averaging(name)
    start, idle, *rest = (
        losac.simulate(PROBLEM.task, algorithm, rounds=rounds, keep_state=True, **RUN).state.server if rounds else None
        for rounds in (0, 1, 4)
    )
    start = jax.tree.map(np.asarray, algorithm.init(np.zeros(2)))
    map_trees(np.testing.assert_array_equal, idle, start)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(rest))


def test_every_engine_leaves_the_server_unchanged_alike():
    algorithm = A.mifa(0.01, 2, weighting="average")
    whole = losac.simulate(PROBLEM.task, algorithm, rounds=4, **RUN)
    paged = losac.simulate(PROBLEM.task, algorithm, rounds=4, store="memory", **RUN)
    np.testing.assert_allclose(paged.params, whole.params, rtol=1e-12)
    (member,) = losac.sweep(PROBLEM.task, algorithm, {}, rounds=4, **RUN).members
    np.testing.assert_allclose(member.params, whole.params, rtol=1e-12)
    torch = pytest.importorskip("torch")
    from losac.torch import simulate

    module = torch.nn.Linear(2, 1, bias=False).double()
    torch.nn.init.zeros_(module.weight)
    for vectorize in (True, False):
        run = simulate(
            module, lambda out, y: 0.5 * ((out[:, 0] - y) ** 2).mean(), PROBLEM.data, algorithm, rounds=4,
            weights=[0, 0, 1, 3], vectorize=vectorize, **{k: v for k, v in RUN.items() if k != "dtype"},
        )  # fmt: skip
        np.testing.assert_allclose(run.params["weight"][0], whole.params, rtol=1e-9)


# --- a client that leaves


class WeightedFeddyn(A.feddyn):
    """A method of one's own whose clients' states are summed with their weights."""

    weighting = "average"


LEAVING = {
    **METHODS,
    "fedvarp, average": A.fedvarp(0.2, 2, 1, weighting="average"),
    "mifa, average": A.mifa(0.2, 2, 1, weighting="average"),
    "feddyn, average": WeightedFeddyn(0.2, 2, 1, alpha=1.0),
}
LEAVING = {
    name: algorithm
    for name, algorithm in LEAVING.items()
    if (algorithm.server_rows or type(algorithm).credit is not Algorithm.credit) and not algorithm.aggregation
}
"""Without robust rules: the weights of those who stay depend on the client that left, so they are not as without it."""
SUMS = ("phi", "c", "h", "mean")
"""The fields of the servers' states that are sums over what clients hold, or over what the server keeps for them."""


def sums_after_one_round(algorithm: Any, asked: list[int], gone: str | None, recovery: str) -> dict[str, Any]:
    """Run a round of some clients with unequal weights, let one leave, and return the server's sums."""
    rules = Rules(clients=CLIENTS, clients_per_round=3, dtype="float64", recovery=recovery)
    setting = Setting(algorithm, rules, START, (), zero(), Fixed([asked]))
    clients = {f"c{i}": Client(QuickWorker(algorithm, i), Memory()) for i in range(CLIENTS)}
    book = setting.first_book("r")
    for i in range(CLIENTS):
        book = membership.enrol(setting, book, f"c{i}", 1, i, weight=(1 + i) / 2.5)
    driver = Driver(setting, InProcess(clients), book)
    list(driver.run(1))
    assert driver.invariant_error() < 1e-14
    if gone:
        driver.keep(membership.dismiss(setting, driver.book, gone))
        del clients[gone]
    if driver.book.unsettled:
        driver.resync(driver.gather())
    assert driver.invariant_error() < 1e-14
    return {name: value for name, value in driver.book.server._asdict().items() if name in SUMS}


@pytest.mark.parametrize("recovery", ["ledger", "resync"])
@pytest.mark.parametrize("name", [name for name, algorithm in LEAVING.items() if not algorithm.needs_all_replies])
def test_a_client_that_leaves_is_as_one_that_never_was(name, recovery):
    """Sums at the server lose the client's part, with its weight; what it did to the model stays."""
    found = sums_after_one_round(LEAVING[name], [0, 1, 2], "c2", recovery)
    wanted = sums_after_one_round(LEAVING[name], [0, 1], None, recovery)
    map_trees(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-14), found, wanted)


def test_a_reset_forgets_the_servers_rows_with_its_sums():
    """Else the rows would be taken out of, or differ from, sums that no longer contain them."""
    rules = Rules(clients=CLIENTS, clients_per_round=2, dtype="float64")
    setting = Setting(A.fedvarp(0.2, 2, 1), rules, START, (), zero(), Fixed([[0, 1]]))
    clients = {f"c{i}": Client(QuickWorker(setting.given, i), Memory()) for i in range(CLIENTS)}
    driver = Driver(setting, InProcess(clients), setting.first_book("r"))
    list(driver.run(1))
    fresh = membership.reset(setting, driver.book)
    assert not any(member.row.any() for member in fresh.members.values())
