"""Secure aggregation through really serialised messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
pytest.importorskip("Crypto")

import losac
from flower_loop import loop
from losac.federation import durable
from losac.federation.secure.identity import make_identity, write_peers
from losac.federation.secure.rules import PEERS
from losac.flower.app import make_strategy
from problems import quadratic
from serving import distance

A = losac.algorithms
PROBLEM = quadratic(clients=4, samples=8)
METHOD = A.losac(0.02 / PROBLEM.curvature, 2, 2)
ON = {"secure-aggregation": True, "secure-range": "4, 400", "secure-threshold": 3}
RUN = {"rounds": 4, "clients": 4, "fewest": 3, "evaluate-every": 4, "patience": 1.0, "node-keys": False}


def trusted(folder: Path) -> None:
    """Give every client a key and the list of all."""
    keys = {f"client-{i}": make_identity(folder / str(i)) for i in range(4)}
    for i in range(4):
        write_peers(folder / str(i) / PEERS, keys)


def run(folder: Path, config: dict[str, Any], spoil: Any = None, method: Any = METHOD) -> Any:
    grid = loop(PROBLEM.task, method, folder / "clients", spoil=spoil)
    for _, context in grid.nodes.values():
        context.run_config.update(config)
    strategy = make_strategy({**RUN, "out": str(folder / "server")} | config, method)
    return strategy.start(grid, PROBLEM.task, 4)


def error(folder: Path) -> float:
    return float(json.loads((folder / "server" / "invariant.json").read_text())["relative_error"])


def test_the_numbers_are_those_of_the_simulator_and_the_sums_exact(tmp_path):
    """The wire quantises as the transform does in the simulator."""
    trusted(tmp_path / "clients")
    sent = []
    there = run(tmp_path, ON, lambda node, reply: sent.append(reply) or reply)
    fixed = METHOD.replace(uploads=(A.fixed_point((4.0, 400.0)),))
    here = losac.simulate(PROBLEM.task, fixed, rounds=4, eval_every=4)
    assert distance(there.params, here.params) < 1e-6
    assert error(tmp_path) == 0.0
    assert there.bytes_up[-1] > here.bytes_up[-1] == 4 * 4 * 2 * 4 * 8, "and keys and shares"
    records = [record for reply in sent for record in reply.content.array_records.values()]
    assert {array.dtype for record in records for array in record.values()} == {"uint64"}


def test_a_client_that_fails_between_shares_and_unmask_changes_nothing_but_the_sum(tmp_path, caplog):
    """Node 102 is lost after the keys of the second round were shared: its masks are told by the others."""
    trusted(tmp_path / "clients")
    seen = []

    def spoil(node: int, reply: Any) -> Any:
        if node == 102 and "message" in reply.content:
            seen.append(node)
            return None if len(seen) == 2 else reply
        return reply

    history = run(tmp_path, ON | {"deadline": 0.1}, spoil)
    lines = [line["answered"] for line in durable.read(tmp_path / "server" / "checkpoint").values["log"][1:]]
    asked = [[int(name.split("-")[1]) for name in line] for line in lines]
    plain = losac.simulate(PROBLEM.task, METHOD, rounds=4, eval_every=4, clients_per_round=4, sampling=asked)
    assert asked[:2] == [[0, 1, 2, 3], [0, 1, 3]]
    assert distance(history.params, plain.params) < 1e-5
    assert error(tmp_path) == 0.0


def test_clients_with_peers_take_part_in_nothing_else(tmp_path, caplog):
    trusted(tmp_path / "clients")
    with pytest.raises(ValueError, match="rounds in a row did not count"):
        run(tmp_path, {"attempts": 1})
    assert "this client sends none" in caplog.text
    (tmp_path / "clients" / "0" / PEERS).unlink()
    with pytest.raises(ValueError, match="rounds in a row did not count"):
        run(tmp_path, ON | {"attempts": 1, "fewest": 4, "out": str(tmp_path / "other")})
    assert "has no list of peers" in caplog.text


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({"secure-aggregation": True}, "secure-aggregation needs secure-range"),
        ({"secure-range": 4.0}, "is of secure aggregation, which is off: set secure-aggregation to true"),
        ({"secure-agregation": True}, "did you mean 'secure-aggregation'"),
        (ON | {"secure-aggregation": "true"}, "must be True or False"),
        (ON | {"secure-range": "4, -1"}, "must be a positive number, or some with commas"),
        (ON | {"secure-range": "1, 2, 3"}, "limit has 3 numbers, but the upload has 2 parts"),
        (ON | {"recovery": "resync"}, "what that client alone held"),
        (ON | {"largest": "adaptive"}, "bounds the norm of single uploads"),
        (ON | {"evaluate-clients": True}, "a loss on its own data"),
    ],
)
def test_a_configuration_that_contradicts_itself_is_refused(config, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        run(tmp_path, config)
