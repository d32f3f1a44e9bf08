"""The board: it lists what is there, follows what goes on, and gives away nothing else."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import quote

import pytest

from commands import refused
from losac._files import locked
from losac.board import BoardServer, Shelf
from run_folders import HEAD, line, write_comparison, write_run


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "secret.txt").write_text("a secret beside the folder")
    return write_comparison(tmp_path / "runs")


@pytest.fixture
def server(folder):
    with BoardServer(folder) as board:
        thread = threading.Thread(target=board.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield board
        board.shutdown()
        thread.join()


def get(server, path, host="localhost", method="GET"):
    """Ask for a path exactly as it is written; return the status, the headers and the text."""
    connection = http.client.HTTPConnection(*server.server_address, timeout=30)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


def ask(server, path):
    status, _, text = get(server, path)
    assert status == 200, text
    return json.loads(text)


def test_every_run_is_listed_with_what_it_reached(server):
    rows = {row["id"]: row for row in ask(server, "/api/runs")}
    assert list(rows) == [f"{name}-seed{seed}" for name in ("losac", "scaffold") for seed in range(3)]
    row = rows["losac-seed1"]
    assert (row["status"], row["round"], row["last"], row["rate"]) == ("finished", 16, 16, 4)
    assert (row["algorithm"], row["seed"], row["left"]) == ("losac", 1, None)
    assert row["loss"] == pytest.approx(2 * 0.6**8, abs=0.011)
    assert row["accuracy"] == pytest.approx(0.8, abs=0.011)


def test_a_running_run_has_a_rate_and_a_time_left(folder):
    run = write_run(folder / "live", "mime", steps=4, status="running")
    shelf = Shelf(folder, fresh=0)
    with locked(run):
        row = next(row for row in shelf.rows() if row["id"] == "live")
        assert (row["status"], row["round"], row["rate"], row["left"]) == ("running", 8, 4.0, 2.0)
    row = next(row for row in shelf.rows() if row["id"] == "live")
    assert (row["status"], row["left"]) == ("killed", None)


def test_curves_are_single_runs_or_means_over_seeds(server):
    names = "&".join(f"run=losac-seed{seed}" for seed in range(3))
    apart, together = ask(server, f"/api/curves?{names}&apart=1"), ask(server, f"/api/curves?{names}")
    assert [group["label"] for group in apart["groups"]] == ["losac-seed0", "losac-seed1", "losac-seed2"]
    assert [group["label"] for group in together["groups"]] == ["losac"]
    assert ask(server, "/api/curves?run=nobody") is None


def test_a_run_has_a_page_with_configuration_and_the_end_of_its_log(server, folder):
    (folder / "losac-seed0" / "log.txt").write_text("".join(f"line {i} of a long log\n" for i in range(5000)))
    told = ask(server, "/api/run?run=losac-seed0")
    assert told["experiment"]["simulation"]["clients_per_round"] == 5
    assert told["about"]["versions"]["python"] == "3.11"
    assert told["log"].endswith("line 4999 of a long log\n")
    assert told["log"].startswith("line ")
    assert len(told["log"]) < 40_000
    status, headers, text = get(server, "/run?run=losac-seed0")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "losac-seed0" in text
    assert get(server, "/run?run=nobody")[0] == 404


def test_the_report_of_chosen_runs_is_a_page(server):
    status, _, text = get(server, "/report?run=losac-seed0&run=scaffold-seed0")
    assert status == 200
    assert "2 algorithms on toy" in text
    assert get(server, "/report")[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/runs/../../secret.txt",
        "//etc/passwd",
        "/losac-seed0/run.json",
        *(
            f"{page}?run={quote(name, safe=safe)}"
            for page in ("/run", "/api/run", "/report")
            for name in ("..", "../secret.txt", "/etc", "losac-seed0/../..", "..\\secret.txt", "\0", "losac-seed0/")
            for safe in ("/", "")
        ),
    ],
)
def test_nothing_but_the_runs_of_the_folder_is_served(server, path):
    status, _, text = get(server, path)
    assert status == 404
    assert "secret" not in text
    assert "root:" not in text


def test_links_out_of_the_folder_are_not_followed(folder, tmp_path):
    outside = write_run(tmp_path / "outside", "mime")
    (folder / "link").symlink_to(outside)
    (folder / "losac-seed0" / "log.txt").unlink()
    (folder / "losac-seed0" / "log.txt").symlink_to(tmp_path / "secret.txt")
    shelf = Shelf(folder)
    assert "link" not in shelf.books()
    assert shelf.details("losac-seed0")["log"] == ""


def test_pages_of_other_sites_cannot_read_the_board(server):
    assert get(server, "/api/runs", host="evil.example")[0] == 403
    assert get(server, "/api/runs", host=f"127.0.0.1:{server.server_address[1]}")[0] == 200
    assert get(server, "/api/runs", host="[::1]")[0] == 200
    assert get(server, "/api/runs", host="[::1")[0] == 403
    _, headers, _ = get(server, "/")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers


def test_the_board_only_reads(server):
    assert get(server, "/api/runs", method="POST")[0] == 501
    status, headers, text = get(server, "/", method="HEAD")
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 10_000


BROKEN = {
    "empty": "",
    "cut off": '{"format": "losac run 1", "sta',
    "no status": '{"format": "losac run 1"}',
    "a list": "[]",
    "other format": '{"format": "losac run 99", "status": "finished"}',
    "no times": '{"format": "losac run 1", "status": "finished", "algorithm": "losac", "last": "many"}',
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_damaged_run_is_listed_as_such_and_harms_no_other(server, folder, content):
    (folder / "odd").mkdir()
    (folder / "odd" / "run.json").write_text(content)
    time.sleep(0.5)
    rows = {row["id"]: row for row in ask(server, "/api/runs")}
    assert len(rows) == 7
    assert rows["odd"]["status"] == "unreadable"
    assert rows["odd"]["reason"]
    assert rows["losac-seed0"]["status"] == "finished"
    assert ask(server, "/api/run?run=odd")["row"]["status"] == "unreadable"
    assert get(server, "/run?run=odd")[0] == 200
    assert len(ask(server, "/api/curves?run=odd&run=losac-seed0")["runs"]) == 1


@pytest.mark.parametrize(
    "table", ["", "round", HEAD, HEAD + "0,1", HEAD + line(0) + "2,0.5", HEAD + line(0) + "x,y,z,1,1,1,1\n"]
)
def test_metrics_that_are_half_written_break_nothing(folder, table):
    (folder / "losac-seed0" / "metrics.csv").write_text(table)
    shelf = Shelf(folder)
    assert len(shelf.rows()) == 6
    assert json.dumps(shelf.curves(["losac-seed0", "losac-seed1"], apart=True))


def test_numbers_that_json_does_not_know_reach_the_browser_as_words(server, folder):
    (folder / "losac-seed0" / "experiment.toml").write_text("[algorithm]\nclip = inf\nsteps = [1, nan]\n")
    (folder / "losac-seed0" / "metrics.csv").write_text(HEAD + line(0) + "2,inf,nan,1,1,1,1\n")
    for path in ("/api/run?run=losac-seed0", "/api/curves?run=losac-seed0", "/api/runs"):
        text = get(server, path)[2]
        json.loads(text, parse_constant=pytest.fail)
    told = ask(server, "/api/run?run=losac-seed0")
    assert told["experiment"]["algorithm"] == {"clip": "inf", "steps": [1, "nan"]}


def test_a_folder_that_is_a_run_is_a_board_of_one(folder):
    shelf = Shelf(folder / "losac-seed0")
    assert [(row["id"], row["name"]) for row in shelf.rows()] == [(".", "losac-seed0")]
    assert shelf.details(".")["log"].startswith("round 0 of 16")


def test_runs_come_grow_and_go(folder):
    shelf = Shelf(folder, fresh=0)
    states = [shelf.state()]
    assert shelf.state() == states[0]
    run = write_run(folder / "deep" / "er" / "new", "mime", steps=2)
    states.append(shelf.state())
    with (run / "metrics.csv").open("a") as file:
        file.write(line(3))
    states.append(shelf.state())
    assert next(row for row in shelf.rows() if row["id"] == "deep/er/new")["round"] == 6
    shutil.rmtree(run)
    states.append(shelf.state())
    assert len(set(states)) == 3
    assert states[3] == states[0]


def test_events_tell_of_every_change(server, folder):
    connection = http.client.HTTPConnection(*server.server_address, timeout=30)
    connection.request("GET", "/events", headers={"Host": "localhost"})
    answer = connection.getresponse()
    first = answer.readline()
    assert first.startswith(b"data: ")
    assert answer.readline() == b"\n"
    with (folder / "losac-seed0" / "metrics.csv").open("a") as file:
        file.write(line(9))
    second = answer.readline()
    assert second.startswith(b"data: ")
    assert second != first
    connection.close()


def test_a_folder_that_vanishes_is_an_empty_board(server, folder):
    shutil.rmtree(folder)
    time.sleep(0.5)
    assert ask(server, "/api/runs") == []


def test_a_port_in_use_and_a_missing_folder_are_said_in_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refused("board", str(tmp_path), "--port", str(port), "--no-open")
    assert f"port {port} is in use; give another with --port" in said
    assert "is not a folder" in refused("board", str(tmp_path / "none"), "--no-open")
    assert "cannot listen at 203.0.113.1" in refused("board", str(tmp_path), "--host", "203.0.113.1", "--no-open")


def test_ctrl_c_ends_the_board_quietly(folder):
    command = [sys.executable, "-m", "losac", "board", str(folder), "--port", "0", "--no-open"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ)
    said = process.stderr.readline()
    url = said.split(" are at ")[1].split()[0]
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("GET", "/events")
    assert connection.getresponse().readline().startswith(b"data: ")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
    assert host == "127.0.0.1"
