"""Who a client is: names bound to keys, vaults with one owner, places that an operator frees."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

import losac
from commands import losac as command
from commands import refused
from flower_loop import LoopGrid, loop
from losac.federation import owner, requests
from losac.federation.book import RefusedError
from losac.federation.checkpoint import members
from losac.flower import Rules, Strategy, transport
from problems import quadratic

A = losac.algorithms
PROBLEM = quadratic(clients=4, samples=8)
SCAFFOLD = A.scaffold(0.1 / PROBLEM.curvature, 3, 2)


class KeyedGrid(LoopGrid):
    """A grid whose nodes have keys, as a SuperLink with authentication shows them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.keys: dict[int, bytes] = {}

    def get_nodes(self) -> Any:
        return [SimpleNamespace(node_id=n, public_key=self.keys.get(n, b"key %d" % n)) for n in self.nodes]


def keyed(folder: Path, spoil: Any = None) -> KeyedGrid:
    grid = loop(PROBLEM.task, SCAFFOLD, folder, spoil=spoil)
    return KeyedGrid(grid.nodes, grid.spoil)


def run(grid: Any, folder: Path, rounds: int, **options: Any) -> Any:
    rules = Rules(clients=4, clients_per_round=4)
    strategy = Strategy(SCAFFOLD, rules, out=folder / "server", evaluate_every=rounds, patience=0.0, **options)
    return strategy.start(grid, PROBLEM.task, rounds)


def add(grid: Any, node: int, like: int, **config: Any) -> None:
    """Add a node that says it is another one, or somebody new."""
    app, context = grid.nodes[like]
    other = type(context)(0, node, {**context.node_config, **config}, context.state, context.run_config)
    grid.nodes[node] = app, other


def test_a_second_node_with_a_name_does_not_evict_the_first(tmp_path, caplog):
    """A second node that said ``client-0`` took its place."""
    grid = keyed(tmp_path / "clients")
    run(grid, tmp_path, 2)
    add(grid, 999, 100, **{"state-dir": str(tmp_path / "thief")})
    history = run(grid, tmp_path, 5)
    assert history.rounds[-1] == 5
    assert "client-0 is bound to the key" in caplog.text
    assert not (tmp_path / "thief" / "runs").exists(), "no order reached it"
    plain = run(keyed(tmp_path / "plain"), tmp_path / "alone", 5)
    np.testing.assert_array_equal(history.params, plain.params)


def test_a_key_has_one_name_and_does_not_fill_every_place(tmp_path, caplog):
    grid = keyed(tmp_path / "clients")
    for node in (101, 102, 103):
        del grid.nodes[node]
    for k in range(3):
        add(grid, 500 + k, 100, client=f"sybil {k}", **{"state-dir": str(tmp_path / f"s{k}"), "partition-id": 1 + k})
        grid.keys = {**grid.keys, 500 + k: b"one key"}
    rules = Rules(clients=4, clients_per_round=4, fewest=3)
    strategy = Strategy(SCAFFOLD, rules, out=tmp_path / "server", patience=0.0, attempts=1)
    with pytest.raises(RefusedError, match="2 clients are there"):
        strategy.start(grid, PROBLEM.task, 1)
    assert members(tmp_path / "server") == ["client-0", "sybil 0"]
    assert "a key has one name" in caplog.text


def test_the_binding_lasts_as_long_as_the_book_and_ends_by_request(tmp_path, caplog):
    grid = keyed(tmp_path / "clients")
    run(grid, tmp_path, 2)
    grid.keys = {100: b"renewed"}
    run(grid, tmp_path, 4)
    assert "client-0 is bound to the key" in caplog.text
    done = command("deploy", "free", str(tmp_path / "server"), "client-0", "--rebind")
    assert done.exit_code == 0, done.output
    caplog.clear()
    run(grid, tmp_path, 8)
    assert "belongs to another key of 'client-0'" in caplog.text, "the node's own disk has a say too"
    assert owner.release(tmp_path / "clients" / "0") == 1
    caplog.clear()
    history = run(grid, tmp_path, 12)
    assert "ERROR" not in [record.levelname for record in caplog.records]
    assert json.loads((tmp_path / "server" / "invariant.json").read_text())["relative_error"] < 1e-5
    assert history.rounds[-1] == 12


def test_where_nodes_have_no_lasting_keys_a_restarted_one_comes_back(tmp_path, caplog):
    """Without registration, Flower gives a node a new key at each start."""
    grid = keyed(tmp_path / "clients")
    run(grid, tmp_path, 2, node_keys=False)
    grid.keys = {100: b"new at this start"}
    run(grid, tmp_path, 8, node_keys=False)
    assert "ERROR" not in [record.levelname for record in caplog.records]


def test_a_freed_place_is_free_and_the_sums_are_right_without_the_client(tmp_path):
    grid = keyed(tmp_path / "clients")
    run(grid, tmp_path, 3)
    del grid.nodes[100]
    add(grid, 300, 101, client="newcomer", **{"state-dir": str(tmp_path / "new"), "partition-id": 0})
    for _ in range(2):
        requests.ask(tmp_path / "server", "free", "client-0")
    assert "has no client 'client0' in its last round (did you mean 'client-" in refused(
        "deploy", "free", str(tmp_path / "server"), "client0"
    )
    run(grid, tmp_path, 6)
    assert set(members(tmp_path / "server")) == {"client-1", "client-2", "client-3", "newcomer"}
    assert json.loads((tmp_path / "server" / "invariant.json").read_text())["relative_error"] < 1e-5
    assert list((tmp_path / "server" / "requests").iterdir()) == []
    assert "no checkpoint" in refused("deploy", "free", str(tmp_path), "client-0")


def test_two_clients_with_one_state_folder_do_not_upload_the_same_for_two_places(tmp_path, caplog):
    """They did, without a warning, and the accuracy went from .911 to .618."""
    grid = loop(PROBLEM.task, SCAFFOLD, tmp_path / "clients")
    grid.nodes[101][1].node_config["state-dir"] = grid.nodes[100][1].node_config["state-dir"]
    history = run(grid, tmp_path, 4)
    assert history.rounds[-1] == 4
    assert "belongs to client 'client-0'" in caplog.text or "belongs to client 'client-1'" in caplog.text
    answered = {name for line in history_log(tmp_path) for name in line["answered"]}
    assert len(answered & {"client-0", "client-1"}) == 1
    assert json.loads((tmp_path / "server" / "invariant.json").read_text())["relative_error"] < 1e-5


def history_log(folder: Path) -> list[dict[str, Any]]:
    from losac.deploy.demo import read_log

    return read_log(folder / "server")


def test_a_vault_is_one_clients(tmp_path):
    owner.claim(tmp_path, "r", "a", "")
    owner.claim(tmp_path, "r", "a", "k")
    for run_name, name, key in (("r", "b", "k"), ("q", "a", "k"), ("r", "a", "l")):
        with pytest.raises(RefusedError, match="belongs to"):
            owner.claim(tmp_path, run_name, name, key)
    assert (tmp_path / "owner").stat().st_mode & 0o777 == 0o600


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass where the transport waits, and by hand."""
    now = [0.0]
    faked = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(transport, "time", faked)
    return now


def test_a_mute_node_holds_the_others_up_less_and_less(clock):
    """Everybody waits while it is asked who it is: 5 minutes, then again after ever longer rests."""

    class Mute(LoopGrid):
        def pull_messages(self, message_ids: Any) -> Any:
            return []

    asking, waited = transport.FlowerTransport(Mute({1: None}, None), None, 300.0), 0.0
    while clock[0] < 6 * 3600:
        began = clock[0]
        assert asking.peers() == []
        waited += clock[0] - began
        clock[0] += 10
    assert waited < 0.13 * clock[0], "it was a third"


def test_a_node_that_is_refused_is_asked_again_who_it_is(clock, tmp_path):
    """It said another's name, and is set up right while the run goes on."""
    said = ["client-0"]

    def spoil(node: int, reply: Any) -> Any:
        reply.content["hello"]["name"] = said[0]
        return reply

    grid = loop(PROBLEM.task, SCAFFOLD, tmp_path, spoil=spoil)
    grid.nodes = dict(list(grid.nodes.items())[:1])
    asking = transport.FlowerTransport(grid, None, 300.0)
    (peer,) = asking.peers()
    said[0] = "client-3"
    asking.doubt(peer)
    assert list(asking.peers()) == [peer], "the book may take it in meanwhile"
    clock[0] += 601
    assert [peer.name for peer in asking.peers()] == ["client-3"]
    assert not asking.doubted


def test_a_reply_whose_content_never_comes_is_given_up_at_the_deadline(clock, monkeypatch):
    """Flower would ask for it every ten seconds, for minutes to hours, whatever the deadline of the round is."""
    from flwr.supercore.inflatable import inflatable_utils
    from flwr.superlink.grid import http_grid

    monkeypatch.setattr(inflatable_utils, "time", transport.time)
    tries = []

    def unavailable(name: str) -> bytes:
        clock[0] += 1
        tries.append(name)
        raise inflatable_utils.ObjectUnavailableError(name)

    before = http_grid.pull_objects
    with transport.replies_whole_by(1.5), pytest.raises(inflatable_utils.ObjectPullError):
        http_grid.pull_objects(["a"], unavailable, initial_backoff=0.01)
    assert (len(tries), http_grid.pull_objects) == (2, before)
