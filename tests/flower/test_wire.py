"""Whatever travels: hostile replies change nothing and cost nothing, hostile orders are not carried out."""

from __future__ import annotations

import dataclasses
import inspect
import logging
import re
import time
import tracemalloc
from typing import Any, get_type_hints

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, RecordDict

import losac
from flower_loop import LoopGrid, loop, over_the_wire
from fuzz_wire import Wire, content_of, fuzz
from losac.federation.errors import RefusedError
from losac.flower import Limits, Rules, Strategy
from losac.flower.app import make_strategy
from losac.flower.records import read_order
from losac.flower.server import LimitKeywords
from losac.flower.transport import FlowerTransport
from problems import quadratic

A = losac.algorithms
PROBLEM = quadratic(clients=4, samples=8)
SCAFFOLD = A.scaffold(0.1 / PROBLEM.curvature, 3, 2)


class RawGrid(LoopGrid):
    """A grid that hands over what a client sent as it is: on Flower's wire, shapes are not limited to 32 bits."""

    def pull_messages(self, message_ids: Any) -> Any:
        replies = []
        for number in message_ids:
            if (message := self.sent.pop(number, None)) is not None:
                app, context = self.nodes[message.metadata.dst_node_id]
                reply = over_the_wire(app(over_the_wire(message), context))
                replies.append(self.spoil(message.metadata.dst_node_id, reply))
        return replies


def run(folder: Any, spoil: Any, rounds: int = 3, **options: Any) -> Any:
    grid = loop(PROBLEM.task, SCAFFOLD, folder / "clients", spoil=spoil)
    rules = Rules(clients=4, clients_per_round=4)
    strategy = Strategy(SCAFFOLD, rules, out=folder / "server", evaluate_every=rounds, patience=0.0, **options)
    return strategy.start(RawGrid(grid.nodes, spoil), PROBLEM.task, rounds)


def one(change: Any, key: str = "reply") -> Any:
    """Spoil what node 101 sends."""

    def spoil(node: int, reply: Any) -> Any:
        if node == 101 and key in reply.content:
            change(reply.content)
        return reply

    return spoil


def first_array(content: RecordDict) -> tuple[Any, str, Array]:
    record = content["message"]
    name = next(iter(record))
    return record, name, record[name]


def with_shape(content: RecordDict) -> None:
    record, name, array = first_array(content)
    record[name] = Array(array.dtype, (10**12,), array.stype, array.data)


def with_header(content: RecordDict) -> None:
    record, name, array = first_array(content)
    record[name] = Array(array.dtype, array.shape, array.stype, array.data.replace(b"(4,)", b"(4000000000,)"))


def with_cost(content: RecordDict) -> None:
    content["reply"]["gradients"] = float("nan")


def with_more(content: RecordDict) -> None:
    content["more"] = ArrayRecord({"a": Array(np.zeros(3))})


HOSTILE = {"a declared shape": with_shape, "a declared header": with_header, "a cost": with_cost, "more": with_more}


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_reply_ends_the_run(kind, tmp_path, caplog):
    """A declared shape of 10¹² did, where its bytes were counted."""
    history = run(tmp_path, one(HOSTILE[kind]))
    if kind == "a declared shape":  # Flower's own note of the shape is not used
        assert history.metric("answered")[-1] in (3, 4)
    else:
        assert history.metric("answered")[-1] == 3
        assert re.search(r"client-1 (\(node 101\) )?sent is refused", caplog.text)
    assert history.rounds[-1] == 3
    assert np.isfinite(history.gradients).all()


def test_a_record_that_nobody_asked_for_costs_no_memory(tmp_path):
    """400 MB of it cost 1.1 GB."""
    large = ArrayRecord({"a": Array("float32", (1,), "numpy.ndarray", bytes(2**25))})
    peaks = []
    exchange = FlowerTransport._read

    def spoil(node: int, reply: Any) -> Any:
        if node == 101 and "reply" in reply.content:
            reply.content["more"] = large
            tracemalloc.start()
        return reply

    grid = loop(PROBLEM.task, SCAFFOLD, tmp_path, spoil=spoil)
    transport_run = Strategy(SCAFFOLD, Rules(clients=4, clients_per_round=4), patience=0.0)
    try:
        transport_run.start(RawGrid(grid.nodes, spoil), PROBLEM.task, 1)
        peaks.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    assert exchange is FlowerTransport._read
    assert peaks[0] < 2**24


HELLOS = {
    "name": ["", "a\nb", "\x1b[31mred", " padded ", "x" * 201, 7, "a\u202eb"],
    "rows": [0, -1, 2**62, True, 3.0],
    "client": [-2, 2**62],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in HELLOS.items() for value in values])
def test_introductions_that_no_client_makes_are_refused(field, value, tmp_path, caplog):
    def change(content: RecordDict) -> None:
        content["hello"][field] = value

    history = run(tmp_path, one(change, "hello"), rounds=1)
    assert history.metric("answered").tolist() == [0, 3]
    assert "node 101 does not say who it is: it says" in caplog.text
    assert all(record.getMessage().isprintable() for record in caplog.records)


ORDERS = {
    "kind": ["dance", ""], "token": ["", "r", "r/1", "r/1/-1", "r/1/1\n", "x" * 600, "r/1/" + "9" * 40],
    "accepted": ["q/1/1", "r/1/x"], "algorithm": ["other 123", "\x1b[2J"], "seed": [-1, 2**32], "round": [-1, 2**40],
    "place": [-1, 1, 2**31], "client": [-1, 4], "slot": [-1, 4], "clients": [0, 2**40, -4], "sampled": [0, 5],
    "weight": [float("nan"), float("inf"), 0.0, -1.0, 5.0, 1], "steps": [300_000, 3, 0], "follows": [1, "true"],
    "name": ["a\nb"], "key": ["\0"],
}  # fmt: skip


@pytest.fixture(scope="module")
def wires() -> dict[str, Wire]:
    return {method: Wire(method) for method in ("scaffold", "tamuna")}


def order_of(wire: Wire) -> tuple[RecordDict, Any]:
    name, _, message, _ = wire.transport.orders[0]
    return content_of(message), wire.transport.clients[name].worker


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in ORDERS.items() for value in values])
def test_orders_that_no_server_gives_are_refused(field, value, wires):
    content, worker = order_of(wires["scaffold"])
    read_order(content, worker, wires["scaffold"].agreed)
    content["order"][field] = value
    with pytest.raises(RefusedError) as refusal:
        read_order(content, worker, wires["scaffold"].agreed)
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 600


def test_a_client_takes_the_number_of_steps_that_follows_from_the_seed_and_no_other(wires):
    """``steps=300000`` kept a client busy indefinitely."""
    content, worker = order_of(wires["tamuna"])
    due = content["order"]["steps"]
    assert due > 0
    for steps in (due, 300_000, due + 2):
        content["order"]["steps"] = steps
        if steps == due:
            assert read_order(content, worker, wires["tamuna"].agreed).task.steps == due
        else:
            with pytest.raises(RefusedError, match=f"it asks for {steps} steps"):
                read_order(content, worker, wires["tamuna"].agreed)


def test_orders_with_other_arrays_than_those_due_are_refused(wires):
    changes = {
        "NaN": lambda a: a * np.nan, "shape": lambda a: np.zeros(3), "dtype": lambda a: a.astype(np.float16),
        "whole numbers": lambda a: a.astype(np.int64), "huge": lambda a: np.zeros(10**6),
    }  # fmt: skip
    for change in changes.values():
        content, worker = order_of(wires["scaffold"])
        record, name, array = first_array(content)
        record[name] = Array(change(array.numpy()))
        with pytest.raises(RefusedError, match="message"):
            read_order(content, worker, wires["scaffold"].agreed)


def test_mutated_messages_in_both_directions_break_nothing():
    """The first of the 10⁵ that ``python tests/fuzz_wire.py`` delivers."""
    levels = {name: logging.getLogger(name).level for name in ("losac", "flwr")}
    began = time.perf_counter()
    try:
        outcomes = fuzz(1500, 0)
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    assert set(outcomes) >= {"server took it", "server refused it", "client answered it", "client refused it"}
    assert time.perf_counter() - began < 120


# --- the configuration


def test_limits_are_given_as_a_value_or_as_keywords():
    rules = Rules(clients=4, clients_per_round=4)
    assert Strategy(SCAFFOLD, rules, deadline=5.0, attempts=3).limits == Limits(deadline=5.0, attempts=3)
    assert Strategy(SCAFFOLD, rules, limits=Limits(deadline=5.0), patience=1.0).limits == Limits(
        deadline=5.0, patience=1.0
    )
    with pytest.raises(TypeError, match=r"did you mean 'deadline'\?"):
        Strategy(SCAFFOLD, rules, deadlin=5.0)
    assert get_type_hints(LimitKeywords) == get_type_hints(Limits)
    assert {f.name for f in dataclasses.fields(Limits)} <= set(inspect.signature(Strategy).parameters)


GOOD = {"rounds": 3, "clients": 4}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"deadlin": 5.0}, "did you mean 'deadline'"), ({"clients_per_round": 2}, "did you mean 'clients-per-round'"),
        ({"evaluate-clients": "false"}, "evaluate-clients='false' must be True or False"),
        ({"deadline": -1.0}, "deadline=-1.0 must be a positive number"), ({"deadline": float("nan")}, "deadline=nan"),
        ({"dtype": "float16"}, "must be one of 'float32', 'float64'"), ({"dtype": "flaot32"}, "did you mean 'float32'"),
        ({"largest": "adaptiv"}, "largest='adaptiv' must be"), ({"largest": float("inf")}, "largest=inf"),
        ({"fewest": 2.5}, "fewest=2.5 must be a whole number"), ({"rounds": True}, "rounds=True must be"),
        ({"rounds": "3"}, "rounds='3'"), ({"seed": -1}, "seed=-1"), ({"recovery": "resink"}, "did you mean 'resync'"),
        ({"mean-rows": float("nan")}, "mean-rows=nan"), ({"out": 7}, "out=7 must be a text"),
    ],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused_with_the_nearest_right_name(change, complaint, tmp_path):
    """The same in pyproject.toml and for --set, and before anything starts."""
    from losac.deploy.app import write_app
    from losac.deploy.runs import checked_settings

    with pytest.raises(ValueError, match=complaint):
        make_strategy(GOOD | change, SCAFFOLD)
    app = tmp_path / "some-app"
    write_app(
        app, algorithm="fedavg", settings={"step_size": 1e-4}, data="digits", model="softmax", partition="sorted",
        clients=4, clients_per_round=4, rounds=2,
    )  # fmt: skip
    with pytest.raises(ValueError, match=complaint.split("=")[0].split(" must")[0]):
        checked_settings(app, change)


def test_every_documented_setting_can_be_set(tmp_path):
    from losac.deploy.app import write_app
    from losac.deploy.runs import app_config, checked_settings
    from losac.federation.configuration import CONFIG, read

    app = tmp_path / "some-app"
    write_app(
        app, algorithm="fedavg", settings={"step_size": 1e-4}, data="digits", model="softmax", partition="sorted",
        clients=4, clients_per_round=2, rounds=2,
    )  # fmt: skip
    assert set(CONFIG) <= set(app_config(app))
    values = {"fewest": 2, "largest": "none", "deadline": 5, "evaluate-clients": True, "dtype": "float64", "out": "x"}
    found = read({**app_config(app), **checked_settings(app, values)})
    assert found["largest"] is None
    assert (found["deadline"], found["evaluate-clients"], found["dtype"]) == (5.0, True, "float64")
    assert read(app_config(app))["fewest"] == 0, "0 stands for the default"
    with pytest.raises(ValueError, match=r"has no setting 'fewst'.*did you mean 'fewest'"):
        checked_settings(app, {"fewst": 2})


def test_who_answered_is_in_the_metrics_and_in_a_file(tmp_path):
    def away(node: int, reply: Any) -> Any:
        if node == 102 and "reply" in reply.content:
            del reply.content["reply"]
        return reply

    history = run(tmp_path, away, rounds=2)
    assert history.metric("answered").tolist() == [0, 3]
    lines = (tmp_path / "server" / "answered.csv").read_text().splitlines()
    assert lines[0] == "round,asked,answered,void"
    assert [line.count("client-") for line in lines[1:]] == [7, 6], "who failed is not asked again at once"
    assert "client-2" not in lines[2]
    assert (tmp_path / "server" / "answered.csv").stat().st_mode & 0o777 == 0o600
