"""Every algorithm on Flower: the simulator's numbers, through really serialised messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import optax
import pytest

pytest.importorskip("flwr")

from flwr.app import Array

import losac
from catalogue import ONE_EACH, REFUSED, Regime
from flower_loop import loop
from losac.federation import durable
from losac.federation.book import RefusedError
from losac.federation.fingerprint import fingerprint
from losac.federation.numpy import numpy_worker
from losac.flower import Rules, Strategy, client_app
from losac.flower.app import make_strategy
from losac.flower.identity import client_name
from problems import quadratic
from serving import distance
from serving import federate as serve

A = losac.algorithms
PROBLEM = quadratic(clients=4, samples=8)
ROUNDS = 10


def federate(algorithm: Any, folder: Path, sampled: int, dtype: str, task=PROBLEM.task, rounds=ROUNDS, **options: Any):
    rules = Rules(clients=4, clients_per_round=sampled, dtype=dtype, **options.pop("rules", {}))
    grid = loop(task, algorithm, folder / "clients", dtype, options.pop("spoil", None))
    return Strategy(algorithm, rules, out=folder / "server", evaluate_every=rounds, **options).start(grid, task, rounds)


def uncompiled(algorithm: Any) -> list[Any]:
    """The same clients in NumPy."""
    clients = map(PROBLEM.data.client, range(4))

    def gradient(w: Any, x: Any, y: Any) -> Any:
        return x.T @ (x @ w - y) / len(x)

    return [
        numpy_worker(algorithm, gradient, x, y, loss=lambda w, x, y: 0.5 * np.mean((x @ w - y) ** 2))
        for x, y in clients
    ]


@pytest.mark.parametrize("entry", ONE_EACH, ids=lambda entry: entry.name)
def test_the_numbers_are_the_simulators(entry, tmp_path):
    sampled = 4 if entry.random_blocks == REFUSED else 3
    algorithm = entry.make(PROBLEM.curvature, Regime("", sampled, 2))
    compressed = bool(algorithm.transforms())  # by rounding or choosing, which goes another way in single precision
    dtype, limit = ("float64", 1e-10) if compressed else ("float32", 1e-5)
    rules = {"largest": 1e9} if entry.name == "local_prodigy" else {}  # its steps grow faster than the default bound
    here = losac.simulate(
        PROBLEM.task, algorithm, rounds=ROUNDS, clients_per_round=sampled, dtype=dtype, eval_every=ROUNDS
    )
    there = federate(algorithm, tmp_path, sampled, dtype, rules=rules)
    eager = serve(algorithm, uncompiled(algorithm), np.zeros(4, dtype), rounds=ROUNDS, sampled=sampled)
    assert distance(eager.params, here.params) < limit
    assert distance(there.params, here.params) < limit
    assert there.gradients[-1] == pytest.approx(here.gradients[-1], rel=1e-6)
    assert float((tmp_path / "server" / "invariant.json").read_text().split(":")[1].rstrip("}")) < limit


SCAFFOLD = A.scaffold(0.1 / PROBLEM.curvature, 3, 2)


def test_clients_of_unequal_sizes_and_shuffled_batches_are_the_simulators_too(tmp_path):
    task = quadratic(clients=4, samples=[9, 5, 12, 7]).task
    algorithm = A.scaffold(0.02 / PROBLEM.curvature, batch_size=4, epochs=2)
    here = losac.simulate(task, algorithm, rounds=5, clients_per_round=3, eval_every=5)
    there = federate(algorithm, tmp_path, 3, "float32", task, rounds=5)
    assert distance(there.params, here.params) < 1e-5


def test_clients_are_told_over_the_wire_which_share_of_their_upload_was_used(tmp_path):
    """Otherwise the server's sum would not be that of the clients' states any more."""
    robust = SCAFFOLD.replace(aggregation=(A.trimmed_mean(1),))
    here = losac.simulate(PROBLEM.task, robust, rounds=ROUNDS, clients_per_round=3, eval_every=ROUNDS)
    there = federate(robust, tmp_path, 3, "float32", rules={"fewest": 3})
    assert distance(there.params, here.params) < 1e-5
    assert float((tmp_path / "server" / "invariant.json").read_text().split(":")[1].rstrip("}")) < 1e-5


def test_compressed_uploads_travel_compressed(tmp_path):
    data = losac.data.load("digits", clients=4, partition="dirichlet:1.0")
    task = losac.classification(losac.models.softmax_regression(64, 10), data)
    plain, packed = (A.fedavg(1e-4, 2, 2, uploads=u) for u in ((), (A.top_k(0.05, error_feedback=True),)))
    whole = federate(plain, tmp_path / "plain", 3, "float64", task, rounds=3)
    there = federate(packed, tmp_path / "packed", 3, "float64", task, rounds=3)
    here = losac.simulate(task, packed, rounds=3, clients_per_round=3, dtype="float64", eval_every=3)
    assert distance(there.params, here.params) < 1e-10
    assert 0 < there.bytes_up[-1] < 0.4 * whole.bytes_up[-1]
    assert whole.bytes_up[-1] == pytest.approx(3 * 3 * 650 * 8, rel=0.1)


def test_a_run_goes_on_from_its_folder(tmp_path):
    whole = federate(SCAFFOLD, tmp_path / "whole", 3, "float32", rounds=8)
    federate(SCAFFOLD, tmp_path / "parts", 3, "float32", rounds=4)
    rest = federate(SCAFFOLD, tmp_path / "parts", 3, "float32", rounds=8)
    np.testing.assert_array_equal(rest.params, whole.params)
    assert rest.rounds.tolist() == [0, 4, 8]
    assert rest.gradients[-1] == whole.gradients[-1]
    assert (tmp_path / "parts" / "server" / "metrics.csv").read_text().startswith("round,")


def test_a_server_killed_once_a_round_is_in_its_book_still_knows_who_answered(tmp_path, monkeypatch):
    """The line of the round in the log comes later, after its measurements."""
    record = Strategy._record

    def killed(self: Any, driver: Any, *rest: Any) -> None:
        if driver.book.round == 2:
            raise KeyboardInterrupt
        record(self, driver, *rest)

    monkeypatch.setattr(Strategy, "_record", killed)
    with pytest.raises(KeyboardInterrupt):
        federate(SCAFFOLD, tmp_path, 3, "float32", rounds=4)
    monkeypatch.undo()
    federate(SCAFFOLD, tmp_path, 3, "float32", rounds=4)
    log = durable.read(tmp_path / "server" / "checkpoint").values["log"]
    assert [(line["round"], len(line["answered"])) for line in log] == [(0, 0), (1, 3), (2, 3), (3, 3), (4, 3)]


def test_what_goes_wrong_at_a_client_stays_there(tmp_path, caplog):
    """The text of an error may hold data: it is logged at the client, and only the fact travels."""
    sent = []

    def spoil(node, reply):
        sent.append(str(reply.content))
        return reply

    def broken(task, algorithm, folder):
        grid = loop(task, algorithm, folder, spoil=spoil)
        _, context = grid.nodes[101]

        def problem(node, run):
            raise RuntimeError("patient 4711 has a negative age")

        grid.nodes[101] = client_app(problem, lambda run: algorithm), context
        return grid

    rules = Rules(clients=4, clients_per_round=3)
    grid = broken(PROBLEM.task, SCAFFOLD, tmp_path)
    history = Strategy(SCAFFOLD, rules, evaluate_every=4).start(grid, PROBLEM.task, 4)
    assert history.rounds[-1] == 4
    assert "4711" in caplog.text
    assert sent
    assert not any("4711" in text for text in sent)


def test_a_client_with_other_settings_takes_no_part(tmp_path, caplog):
    grid = loop(PROBLEM.task, SCAFFOLD, tmp_path)
    other = A.scaffold(0.2 / PROBLEM.curvature, 3, 2)
    own, context = loop(PROBLEM.task, other, tmp_path).nodes[102]
    grid.nodes[102] = own, context
    rules = Rules(clients=4, clients_per_round=4)
    Strategy(SCAFFOLD, rules, evaluate_every=2).start(grid, PROBLEM.task, 2)
    assert "give both the same algorithm and settings" in caplog.text
    assert "client-2 (node 102) sent is refused: it failed" in caplog.text


def test_clients_evaluate_on_their_own_data(tmp_path):
    grid = loop(PROBLEM.task, SCAFFOLD, tmp_path)
    rules = Rules(clients=4, clients_per_round=4)
    there = Strategy(SCAFFOLD, rules, evaluate_clients=True).start(grid, PROBLEM.task, 3)
    here = losac.simulate(PROBLEM.task, SCAFFOLD, rounds=3, clients_per_round=4, eval_every=1)
    np.testing.assert_allclose(there.metric("loss"), here.metric("loss"), rtol=1e-5)


@pytest.mark.parametrize(
    ("config", "complaint"),
    [({"clients": 4}, "no 'rounds'"), ({"round": 3, "clients": 4}, "has 'round'; did you mean 'rounds'"),
     ({"rounds": 3, "clients": 4, "recovery": "pray"}, "'pray' must be one of 'ledger'")],
)  # fmt: skip
def test_a_configuration_that_cannot_be_run_is_refused_with_what_is_missing(config, complaint):
    with pytest.raises(ValueError, match=complaint):
        make_strategy(config, SCAFFOLD)


def test_a_client_without_a_name_keeps_one_with_its_state(tmp_path):
    first = client_name({}, tmp_path / "state")
    assert first == client_name({}, tmp_path / "state") != client_name({}, tmp_path / "other")
    assert client_name({"partition-id": 3}, tmp_path) == "client-3"
    assert client_name({"client": "ward 7", "partition-id": 3}, tmp_path) == "ward 7"


def test_old_runs_leave_no_growing_heap_of_files_and_nothing_else_is_touched(tmp_path, monkeypatch):
    monkeypatch.setattr("losac.flower.client.RUNS_KEPT", 2)
    own = tmp_path / "once" / "clients" / "1" / "images"
    own.mkdir(parents=True)
    for run in range(6):
        federate(SCAFFOLD, tmp_path / "once", 3, "float32", rounds=1)
        (tmp_path / "once" / "server" / "checkpoint").rename(tmp_path / f"old {run}")
    kept = [len(list(runs.iterdir())) for runs in (tmp_path / "once" / "clients").glob("*/runs")]
    assert kept == [3, 3, 3]
    assert own.exists()


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [({"sampled": 2}, "clients_per_round=3, not 2"), ({"rules": {"recovery": "ledger"}}, "recovery=resync, not ledger"),
     ({"algorithm": A.scaffold(0.2 / PROBLEM.curvature, 3, 2)}, "algorithm=scaffold")],
)  # fmt: skip
def test_a_run_goes_on_only_with_the_settings_it_began_with(changes, complaint, tmp_path):
    federate(SCAFFOLD, tmp_path, 3, "float32", rounds=1)
    given = {"algorithm": SCAFFOLD, "sampled": 3} | changes
    with pytest.raises(ValueError, match=complaint):
        federate(given.pop("algorithm"), tmp_path, given.pop("sampled"), "float32", rounds=2, **given)


def test_two_servers_never_share_a_folder(tmp_path):
    with durable.locked(tmp_path / "server"), pytest.raises(RefusedError, match="another server runs in"):
        federate(SCAFFOLD, tmp_path, 3, "float32", rounds=1)


def empty_arrays(content):
    for name in list(content["message"]):
        content["message"][name] = Array("float32", (4,), "numpy.ndarray", b"")


RUBBISH = {
    "empty arrays": empty_arrays,
    "a broken hello": lambda content: content["hello"].update({"rows": 0}),
    "no arrays": lambda content: content.pop("message"),
    "no reply": lambda content: content.pop("reply"),
}


@pytest.mark.parametrize("kind", RUBBISH)
def test_whatever_a_client_sends_the_run_goes_on_without_it(kind, tmp_path, caplog):
    def spoil(node, reply):
        if node == 101 and ("hello" in reply.content) == ("hello" in kind):
            RUBBISH[kind](reply.content)
        return reply

    history = federate(SCAFFOLD, tmp_path, 3, "float32", rounds=3, spoil=spoil)
    assert history.rounds[-1] == 3
    assert "node 101" in caplog.text


def test_an_algorithm_is_known_by_its_settings_and_schedules():
    def short(r):
        return 0.1 / (1 + r)

    def long(r):
        return 0.1 / (10 + r)

    long.__name__ = short.__name__
    prints = [fingerprint(A.fedavg(s)) for s in (short, long, 0.1, np.float64(0.1), 0.2)]
    assert prints[2] == prints[3]
    assert len(set(prints)) == 4
    packed = [fingerprint(A.fedavg(0.1, uploads=(A.top_k(share),))) for share in (0.1, 0.1, 0.2)]
    assert packed[0] == packed[1] != packed[2]
    assert fingerprint(A.fedavg(0.1, local_optimizer=optax.adam)) != fingerprint(A.fedavg(0.1))
