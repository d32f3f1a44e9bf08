"""How a run stands: its status file, its log lines, the versions that both sides say, and what a client call loads."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict

import losac
from commands import losac as command
from commands import refused
from flower_loop import loop
from losac.federation import logs, requests
from losac.federation.errors import RefusedError
from losac.federation.status import Refusals, read_status
from losac.federation.versions import PROTOCOL, versions
from losac.flower import Rules, Strategy
from problems import quadratic

A = losac.algorithms
PROBLEM = quadratic(clients=4, samples=8)
SCAFFOLD = A.scaffold(0.1 / PROBLEM.curvature, 3, 2)


def run(folder: Path, spoil: Any = None, rounds: int = 3, **options: Any) -> Any:
    grid = loop(PROBLEM.task, SCAFFOLD, folder / "clients", spoil=spoil)
    strategy = Strategy(SCAFFOLD, Rules(clients=4, clients_per_round=4), out=folder / "out", patience=0.0, **options)
    return strategy.start(grid, PROBLEM.task, rounds)


def nan_from_101(node: int, reply: Any) -> Any:
    if node == 101 and "reply" in reply.content:
        reply.content["reply"]["gradients"] = float("nan")
    return reply


def test_the_status_says_round_who_answered_the_invariant_and_what_was_refused(tmp_path):
    run(tmp_path, nan_from_101)
    told = read_status(tmp_path / "out")
    assert (told["state"], told["round"], told["rounds"], told["places"]) == ("finished", 3, 3, 4)
    assert sorted(told["answered"]) == ["client-0", "client-2", "client-3"]
    assert told["invariant"]["round"] == 3
    assert told["invariant"]["relative_error"] < 1e-5
    assert told["members"]["client-1"]["answered"] is None
    assert (
        told["members"]["client-0"] | {"answered": 3, "present": True, "losac": losac.__version__}
        == told["members"]["client-0"]
    )
    (refusal,) = told["refusals"]
    assert (refusal["client"], refusal["times"]) == ("client-1", told["refused"])
    assert refusal["why"] == "what client client-1 sent is refused: it reports nan computed gradients"
    assert (tmp_path / "out" / "status.json").stat().st_mode & 0o777 == 0o600
    shown = command("deploy", "status", str(tmp_path / "out")).stdout
    assert "finished, round 3 of 3" in shown
    assert f"{refusal['why']} ({refusal['times']} times)" in shown
    assert json.loads(command("deploy", "status", str(tmp_path / "out"), "--json").stdout)["round"] == 3


def test_a_run_that_breaks_off_says_why(tmp_path):
    with pytest.raises(RefusedError):
        run(tmp_path, lambda node, reply: None if "reply" in reply.content else reply, attempts=1, deadline=0.3)
    assert "ended by RefusedError: 1 rounds in a row did not count" in read_status(tmp_path / "out")["state"]


def test_the_sums_are_compared_when_an_operator_asks(tmp_path, caplog):
    caplog.set_level(logging.INFO, "losac")
    with pytest.raises(ValueError, match="holds no checkpoint"):
        requests.ask_check(tmp_path)
    run(tmp_path, rounds=1)
    assert command("deploy", "check", str(tmp_path / "out")).exit_code == 0
    run(tmp_path, rounds=3)
    lines = [each for each in caplog.messages if "sums and what the clients hold differ" in each]
    assert len(lines) == 3, "at the end of both runs, and once in between"
    assert not requests.take_check(tmp_path / "out")


def test_refusals_that_repeat_count_as_one_and_old_ones_go():
    kept = Refusals()
    for number in (1, 1, *range(100)):
        kept.handle(logging.makeLogRecord({"levelno": logging.ERROR, "msg": f"no {number}", "client": "c"}))
    assert kept.total == 102
    assert len(kept.recent) == 20
    assert list(kept.recent.values())[-1]["why"] == "no 99"


# --- versions


def say(**changes: Any) -> Any:
    """Spoil what node 101 says about itself."""

    def spoil(node: int, reply: Any) -> Any:
        if node == 101 and "hello" in reply.content:
            for name, value in changes.items():
                reply.content["hello"].pop(name, None) if value is None else reply.content["hello"].update(
                    {name: value}
                )
        return reply

    return spoil


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"protocol": None}, "does not say which protocol it speaks: install losac"),
        ({"protocol": PROTOCOL + 1, "losac": "9.1"}, f"speaks protocol {PROTOCOL + 1} (losac 9.1), and here it is"),
        ({"losac": "\x1b[31m"}, "says that its version of losac is"),
    ],
)
def test_a_client_with_another_protocol_is_refused(changes, complaint, tmp_path, caplog):
    history = run(tmp_path, say(**changes), rounds=1)
    assert history.metric("answered")[-1] == 3
    assert complaint in caplog.text
    assert any(complaint in each["why"] for each in read_status(tmp_path / "out")["refusals"])


def test_a_client_refuses_a_server_with_another_protocol(tmp_path, caplog):
    app, context = loop(PROBLEM.task, SCAFFOLD, tmp_path).nodes[100]
    for told, complaint in (({}, "does not say which"), (versions() | {"protocol": 1}, "the server speaks protocol 1")):
        content = RecordDict({"hello": ConfigRecord(told)}) if told else RecordDict()
        reply = app(Message(content, 100, "query"), context)
        assert set(reply.content) == {"failed"}
        assert complaint in caplog.text
    assert "hello" in app(Message(RecordDict({"hello": ConfigRecord(versions())}), 100, "query"), context).content


# --- the log


def test_lines_have_time_level_round_and_client_in_a_process_that_flower_has_configured():
    """INFO lines never reached the log: Flower's processes configure Flower's logger alone."""
    code = """
import logging, flwr.supercore.logger
from losac.federation import logs
for form in ("text", "json"):
    logs.show(form)
    with logs.about(round=3):
        logging.getLogger("losac").info("hello", extra={"client": "a\\nb"})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    text, line = done.stderr.splitlines()
    assert text[10] == "T"
    assert text.endswith('INFO    round=3 client="a\\nb" hello')
    told = json.loads(line)
    assert {"level": "INFO", "round": 3, "client": "a\nb", "message": "hello"}.items() <= told.items()


def test_server_and_clients_say_which_round_and_client_a_line_is_about(tmp_path, caplog):
    seen = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append((logs.fields_of(record), record.getMessage()))

    caplog.set_level(logging.INFO, "losac")
    logs.LOG.addHandler(keeper := Keeper())
    try:
        run(tmp_path, nan_from_101, rounds=2)
    finally:
        logs.LOG.removeHandler(keeper)
    assert ({"round": 2, "client": "client-3"}, "order to train: done") in seen
    assert {"round": 1, "client": "client-1"} in [about for about, text in seen if "is refused" in text]
    assert [about for about, text in seen if text.startswith("measured")][-1] == {"round": 2}


def test_the_form_of_the_log_is_checked(tmp_path):
    from losac.federation.configuration import read

    with pytest.raises(ValueError, match="log-format='jsn' must be one of 'text', 'json'"):
        read({"rounds": 1, "clients": 1, "log-format": "jsn"})


# --- what a call costs


def test_a_client_imports_what_its_framework_needs_and_no_more(tmp_path):
    """scikit-learn, for the embedded digits, and optax took longer than all of the client's work."""
    code = f"""
import sys
import losac
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from losac.federation.versions import versions
from losac.flower import client_app
TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
data = losac.data.load("digits", 4, "sorted").subset([0])
task = losac.classification(losac.models.softmax_regression(64, 10), data)
app = client_app(lambda node, run: task, lambda run: losac.algorithms.scaffold(1e-3, 5, 2))
context = Context(1, 1, {{"partition-id": 0, "state-dir": {str(tmp_path)!r}}}, RecordDict(), {{}})
reply = app(Message(RecordDict({{"hello": ConfigRecord(versions())}}), 1, "query"), context)
assert reply.content["hello"]["rows"] == len(data)
print([name for name in ("torch", "optax", "sklearn", "pandas", "scipy", "matplotlib", "flax") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_status_of_a_folder_without_a_run_is_refused(tmp_path):
    assert "holds no federation" in refused("deploy", "status", str(tmp_path))
    (tmp_path / "status.json").write_text("{")
    assert "is damaged" in refused("deploy", "status", str(tmp_path))
