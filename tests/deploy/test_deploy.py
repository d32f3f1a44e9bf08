"""A federation of real processes: keys, apps, pid files, and one federation from start to end."""

from __future__ import annotations

import ast
import errno
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from commands import losac, refused
from losac.algorithms import ALGORITHMS
from losac.deploy import DeployError, LocalFederation, processes
from losac.deploy.certificates import certificate_authority, check_certificate, node_key, server_certificate
from losac.deploy.commands import environment, write_toml
from losac.deploy.folder import CLI, FederationFolder, FederationSettings
from losac.deploy.lock import locked
from losac.deploy.network import free_ports, is_free, require_free
from losac.deploy.processes import ProcessRecord, is_running, kill, members, read_records, spawn, terminate
from losac.deploy.shutdown import stop_all
from losac.deploy.startup import prepare
from losac.federation import owner

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)",
]


def new_app(folder: Path) -> Path:
    made = losac("deploy", "init", str(folder / "some-app"))
    assert made.exit_code == 0, made.output
    return folder / "some-app"


def start(folder: Path, name: str, command: list[str]) -> ProcessRecord:
    return spawn(name, command, os.environ, pids=folder / "pids", log=folder / "logs" / f"{name}.log")


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_a_server_certificate_is_trusted_for_its_hosts_and_no_others(tmp_path):
    authority = certificate_authority(tmp_path)
    server = server_certificate(tmp_path, ["127.0.0.1", "server.example.org"], authority)
    read = x509.load_pem_x509_certificate(server.certificate.read_bytes())
    read.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.read_bytes()))
    check_certificate(server.certificate, ["127.0.0.1", "server.example.org"])
    with pytest.raises(ValueError, match=r"is for 127\.0\.0\.1, server\.example\.org, not for 'other\.example\.org'"):
        check_certificate(server.certificate, ["other.example.org"])
    for host, trusted in (("server.example.org", True), ("127.0.0.1", True), ("other.example.org", False)):
        assert handshake(authority.certificate, server, host) is trusted


def handshake(authority, server, host):
    """Whether a client that trusts the authority accepts the server under a name; all in memory."""
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    listening.load_cert_chain(server.certificate, server.key)
    calling = ssl.create_default_context(cafile=authority)
    calling.verify_flags |= ssl.VERIFY_X509_STRICT
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = listening.wrap_bio(up, down, server_side=True)
    there = calling.wrap_bio(down, up, server_hostname=host)
    for _ in range(4):
        for side in (there, here):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return there.version() is not None


def test_a_certificate_that_ran_out_is_refused(tmp_path):
    authority = certificate_authority(tmp_path, days=0)
    with pytest.raises(ValueError, match="expired on"):
        check_certificate(authority.certificate, [])


def test_a_node_key_is_one_pair_on_p384_in_the_format_that_flower_reads(tmp_path):
    key = node_key(tmp_path, "node-0")
    private = load_ssh_private_key(key.private.read_bytes(), None)
    public = load_ssh_public_key(key.public.read_bytes())
    assert private.public_key() == public
    assert public.curve.name == "secp384r1"


def test_keys_are_private_and_never_overwritten(tmp_path):
    authority = certificate_authority(tmp_path)
    server = server_certificate(tmp_path, ["localhost"], authority)
    key = node_key(tmp_path, "node-0")
    before = {path: path.read_bytes() for path in (*authority, *server, *key)}
    assert {path.stat().st_mode & 0o777 for path in before} == {0o600}
    for again in (
        lambda: certificate_authority(tmp_path),
        lambda: server_certificate(tmp_path, ["localhost"], authority),
        lambda: node_key(tmp_path, "node-0"),
    ):
        with pytest.raises(ValueError, match="exists and is not overwritten"):
            again()
    assert {path: path.read_bytes() for path in before} == before


def test_keys_are_made_by_command(tmp_path):
    made = losac("deploy", "keys", str(tmp_path / "keys"), "--host", "server.example.org")
    assert made.exit_code == 0, made.output
    assert {path.name for path in (tmp_path / "keys").iterdir()} == {
        *("ca.crt", "ca.key", "server.crt", "server.key", "executor.secret"),
    }
    check_certificate(tmp_path / "keys" / "server.crt", ["server.example.org"])
    assert "not empty" in refused("deploy", "keys", str(tmp_path / "keys"), "--host", "a")
    before = {path.name: path.read_bytes() for path in (tmp_path / "keys").iterdir()}
    assert losac("deploy", "keys", str(tmp_path / "keys"), "--host", "server.example.org", "--renew").exit_code == 0
    assert {name: (tmp_path / "keys" / f"{name}.1").read_bytes() for name in before} == before
    assert all((tmp_path / "keys" / name).read_bytes() != old for name, old in before.items())


def test_all_keys_of_a_federation_are_renewed_by_one_command(tmp_path):
    folder = FederationFolder(tmp_path)
    prepare(folder, 2, "127.0.0.1", None)
    token = (folder.home(CLI) / "credentials.yaml").read_text()
    owner.claim(folder.state(0) / "runs" / "abc", "abc", "client-0", "old key")
    before = {path: path.read_bytes() for path in folder.keys.iterdir()}
    done = losac("deploy", "rotate", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert folder.settings().node_ids == {}
    prepare(folder, 2, "127.0.0.1", None)
    assert all(path.read_bytes() != old for path, old in before.items())
    assert (folder.home(CLI) / "credentials.yaml").read_text() != token
    owner.claim(folder.state(0) / "runs" / "abc", "abc", "client-0", "new key")
    assert [path for path in tmp_path.rglob("*") if path.stat().st_mode & 0o077] == []
    record = start(tmp_path, "node-0", SLEEP)
    assert "stop the federation first" in refused("deploy", "rotate", str(tmp_path))
    terminate([record], patience=5)


def test_a_nodes_key_is_made_on_the_node(tmp_path):
    """The server's command made all private keys, which then had to travel."""
    made = losac("deploy", "key", str(tmp_path / "node-0"), "--quiet")
    assert made.stdout.split() == [str(tmp_path / "node-0"), str(tmp_path / "node-0.pub")]
    old = (tmp_path / "node-0").read_bytes()
    assert "exists and is not overwritten" in refused("deploy", "key", str(tmp_path / "node-0"))
    assert losac("deploy", "key", str(tmp_path / "node-0"), "--renew").exit_code == 0
    assert (tmp_path / "node-0.1").read_bytes() == old != (tmp_path / "node-0").read_bytes()


def test_a_state_that_a_new_key_takes_over_must_be_there(tmp_path):
    """Without a word nothing was taken over, and the node was refused later."""
    file, state = tmp_path / "node-0", tmp_path / "state"
    for words in ("holds no client's state", "is damaged"):
        assert words in refused("deploy", "key", str(file), "--renew", "--state", str(state))
        assert not file.exists()
        (state / "runs" / "abc").mkdir(parents=True, exist_ok=True)
        (state / "runs" / "abc" / "owner").write_text("not JSON")


@pytest.mark.parametrize("host", ["", "my server", "https://server", "höst", "a" * 300])
def test_a_host_that_cannot_be_one_is_refused_before_any_key_is_set_aside(tmp_path, host):
    folder = tmp_path / "keys"
    assert losac("deploy", "keys", str(folder), "--host", "server").exit_code == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "is neither a host name nor an IP address" in refused(
        "deploy", "keys", str(folder), "--renew", "--host", "server", "--host", host
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("stop", range(1, 8))
def test_a_start_that_is_interrupted_between_two_keys_is_made_again(tmp_path, monkeypatch, stop):
    """By a full disk, which left an empty secret, or by a kill."""
    from losac.deploy import certificates

    link, made = certificates.os.link, []

    def full(source, target):
        made.append(target)
        if len(made) == stop:
            raise OSError(errno.ENOSPC, "No space left on device")
        link(source, target)

    monkeypatch.setattr(certificates.os, "link", full)
    folder = FederationFolder(tmp_path)
    with pytest.raises(OSError, match="No space"):
        prepare(folder, 1, "127.0.0.1", None)
    monkeypatch.undo()
    prepare(folder, 1, "127.0.0.1", None)
    keys = {path.name for path in folder.keys.iterdir() if path.suffix != ".1"}
    assert keys == {"ca.crt", "ca.key", "server.crt", "server.key", "executor.secret", "node-0", "node-0.pub"}
    assert all(path.stat().st_size for path in folder.keys.iterdir())


def test_free_ports_are_free_and_a_taken_one_is_named():
    import socket

    ports = free_ports(5, "127.0.0.1")
    assert len(set(ports)) == 5
    assert all(is_free(port, "127.0.0.1") for port in ports)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeployError, match=f"port {port} of 127.0.0.1 is in use; choose another"):
            require_free(port, "127.0.0.1")
    with pytest.raises(ValueError, match="port 70000 does not exist"):
        require_free(70000, "127.0.0.1")


def test_a_taken_port_is_refused_before_anything_starts(tmp_path):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port} of 127.0.0.1 is in use" in refused(
            "deploy", "up", str(tmp_path), "--nodes", "1", "--port", port, "--json"
        )
    assert read_records(tmp_path / "pids") == {}


def test_the_environment_is_flowers_own_folder_and_no_downloads(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "example.org")
    given = environment(tmp_path / "home", {"JAX_PLATFORMS": "cpu"})
    assert given["FLWR_HOME"] == str(tmp_path / "home")
    assert given["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"
    assert given["JAX_PLATFORMS"] == "cpu"
    assert given["NO_PROXY"].split(",") == ["example.org", "127.0.0.1", "localhost", "::1"]


def test_toml_is_read_back_as_it_was_written(tmp_path):
    content = {"rate": 1e-5, "path": '/a "b"/ç\\d', "yes": True, "n": 3, "part": {"inner": "x"}}
    assert tomllib.loads(write_toml(tmp_path / "a.toml", content).read_text()) == content
    with pytest.raises(ValueError, match="cannot be configured in Flower"):
        write_toml(tmp_path / "b.toml", {"list": [1]})


def test_a_process_is_found_again_by_its_pid_file_and_ended(tmp_path):
    record = start(tmp_path, "node-0", SLEEP)
    assert read_records(tmp_path / "pids") == {"node-0": record}
    assert is_running(record)
    terminate([record], patience=5)
    assert not is_running(record)


def test_a_process_that_ignores_the_request_is_killed(tmp_path):
    record = start(tmp_path, "deaf", DEAF)
    wait_until(lambda: "deaf" in (tmp_path / "logs" / "deaf.log").read_text())
    began = time.monotonic()
    terminate([record], patience=0.5)
    assert time.monotonic() - began < 5
    assert members(record) == []


def test_killing_takes_the_children_too(tmp_path):
    parent = f"import subprocess; subprocess.Popen({SLEEP!r}); print('born', flush=True); import time; time.sleep(60)"
    record = start(tmp_path, "parent", [sys.executable, "-c", parent])
    wait_until(lambda: len(members(record)) == 2)
    kill(record)
    assert members(record) == []


def test_the_children_of_a_process_that_is_ending_are_still_its_own(tmp_path, monkeypatch):
    """It has no command line any more then, which must not be taken for another process with its pid."""
    app = tmp_path / "flwr-app.py"
    app.write_text("import time; time.sleep(60)")
    parent = f"import subprocess; subprocess.Popen({[sys.executable, str(app)]!r}); import time; time.sleep(60)"
    record = start(tmp_path, "parent", [sys.executable, "-c", parent])
    wait_until(lambda: len(members(record)) == 2)
    command = processes._command
    monkeypatch.setattr(processes, "_command", lambda one: [] if one.pid == record.pid else command(one))
    assert len(members(record)) == 2
    kill(record)


def test_a_pid_that_now_belongs_to_another_process_is_not_signalled(tmp_path):
    with subprocess.Popen(SLEEP, start_new_session=True) as stranger:
        folder = FederationFolder(tmp_path)
        ProcessRecord("node-0", stranger.pid, time.time(), ("flower-supernode", "--port", "1")).save(folder.pids)
        command = tuple(Path(f"/proc/{stranger.pid}/cmdline").read_text().split("\0")[:-1])
        ProcessRecord("node-1", stranger.pid, time.time() - 86400, command).save(folder.pids)
        assert stop_all(folder, patience=0.2) == []
        assert stranger.poll() is None
        assert list(folder.pids.iterdir()) == []
        stranger.kill()


def test_down_clears_stale_and_damaged_pid_files(tmp_path):
    folder = FederationFolder(tmp_path)
    folder.write(FederationSettings(2, port=1, node_ports=(2, 3), ready=True))
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    for name in ("superlink", "node-0"):
        ProcessRecord(name, gone.pid, time.time(), ("flower-superlink",)).save(folder.pids)
    (folder.pids / "node-1.json").write_text("{not json")
    done = losac("deploy", "down", str(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"stopped": []}
    assert list(folder.pids.iterdir()) == []
    assert not folder.settings().ready


def test_a_federation_dies_with_the_process_that_started_it(tmp_path):
    code = f"""
import os, time
from pathlib import Path
from losac.deploy.guard import start_guard
from losac.deploy.processes import spawn
root = Path({str(tmp_path)!r})
guard = start_guard(root)
spawn("node-0", {SLEEP!r}, os.environ, pids=root / "pids", log=root / "log")
print("ready", flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "ready\n"
        (record,) = read_records(tmp_path / "pids").values()
        assert is_running(record)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_running(record) and not list((tmp_path / "pids").iterdir()))


def test_two_commands_cannot_start_the_same_federation(tmp_path):
    with locked(tmp_path), pytest.raises(DeployError, match="another command starts the federation"):
        LocalFederation(tmp_path, 1).start()


def test_bad_numbers_and_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="nodes=0; a federation needs at least 1"):
        LocalFederation(tmp_path, 0)
    with pytest.raises(
        ValueError, match="no process is called 'node-2'; there are superlink, superexec, node-0, node-1"
    ):
        LocalFederation(tmp_path, 2).kill("node-2")
    assert "holds no federation" in refused("deploy", "status", str(tmp_path))
    assert "holds no federation" in refused("deploy", "down", str(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"data": "digits", "partition": "sorted", "step-size": 1.5e-4, "local-steps": 10, "blocks": 5}),
        (["--algorithm", "fedavg:server_step=2,batch_size=8"], {"server-step": 2, "batch-size": 8}),
        (["--algorithm", "dsgd", "--data", "quadratic"], {"data": "quadratic", "partition": "", "step-size": 5e-3}),
    ],
)
def test_init_writes_an_app_whose_problem_is_solvable(tmp_path, options, expected):
    folder = tmp_path / "my-app"
    made = losac("deploy", "init", str(folder), "--clients", "3", *options, "--json")
    assert made.exit_code == 0, made.output
    assert all(Path(path).is_file() for path in json.loads(made.stdout)["files"])
    described = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    config = described["config"]
    assert config.items() >= expected.items()
    assert {"out", "rounds", "clients", "clients-per-round", "deadline", "seed"} <= set(config)
    assert described["components"] == {"serverapp": "my_app.server_app:app", "clientapp": "my_app.client_app:app"}
    for name in ("server_app", "client_app"):
        assert "losac.flower" in ast.unparse(ast.parse((folder / "my_app" / f"{name}.py").read_text()))

    problem = {}
    exec((folder / "my_app" / "problem.py").read_text(), problem)
    method = problem["algorithm"](config)
    assert type(method) in ALGORITHMS.values()
    assert {name: getattr(method, name.replace("-", "_")) for name in expected if "-" in name} == {
        name: value for name, value in expected.items() if "-" in name
    }
    tasks = [problem["problem"]({"partition-id": number}, config) for number in range(3)]
    whole = problem["load"](config)
    assert [task.data.num_clients for task in tasks] == [1, 1, 1]
    assert [len(task.data) for task in tasks] == whole.sizes.tolist()
    central = problem["central"](config)
    assert len(central.test[0]) == len(whole if whole.test is None else whole.test[0])


def test_init_refuses_what_it_would_overwrite_or_shadow(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    assert "is not an empty folder" in refused("deploy", "init", str(tmp_path / "full"))
    assert "a Python package 'json' exists already" in refused("deploy", "init", str(tmp_path / "json"))
    assert "did you mean" in refused("deploy", "init", str(tmp_path / "a"), "--data", "digit").lower()
    assert "unknown algorithm" in refused("deploy", "init", str(tmp_path / "a"), "--algorithm", "lossac")
    assert not (tmp_path / "a").exists()


def test_a_new_federation_needs_its_number_of_nodes(tmp_path):
    assert "--nodes 4" in refused("deploy", "up", str(tmp_path), "--quiet")


def test_the_demo_knows_two_data_sets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "must be auto or one of mnist, digits" in refused("deploy", "demo", "--data", "har")


def test_what_stands_and_what_stopped_is_told_quietly(tmp_path):
    FederationFolder(tmp_path).write(FederationSettings(1))
    record = start(tmp_path, "node-0", SLEEP)
    assert losac("deploy", "status", str(tmp_path), "--quiet").stdout == "node-0\n"
    assert json.loads(losac("deploy", "status", str(tmp_path), "--json").stdout)["processes"]["node-0"] == record.pid
    assert losac("deploy", "down", str(tmp_path), "--quiet").stdout == "node-0\n"
    assert losac("deploy", "down", str(tmp_path), "--quiet").stdout == ""


def test_files_are_told_as_json(tmp_path):
    made = losac("deploy", "keys", str(tmp_path / "keys"), "--host", "localhost", "--json")
    assert {Path(path) for path in json.loads(made.stdout)["files"]} == set((tmp_path / "keys").iterdir())
    assert made.stderr == ""
    quiet = losac("deploy", "init", str(tmp_path / "quiet-app"), "--quiet")
    assert all(Path(line).is_file() for line in quiet.stdout.splitlines())
    assert quiet.stderr == ""
    assert "is not a partition" in refused("deploy", "init", str(tmp_path / "a"), "--partition", "dirchlet:0.3")


def test_a_run_is_refused_for_no_app_and_for_unknown_settings(tmp_path):
    FederationFolder(tmp_path).write(FederationSettings(1))
    assert "is no Flower app" in refused("deploy", "run", str(tmp_path), str(tmp_path))
    assert "has no setting 'round'" in refused(
        "deploy", "run", str(tmp_path), str(new_app(tmp_path)), "--set", "round=1"
    )


def test_a_run_on_a_federation_that_is_down_says_how_to_start_it(tmp_path):
    prepare(FederationFolder(tmp_path), 1, "127.0.0.1", None)
    assert "losac deploy up" in refused("deploy", "run", str(tmp_path), str(new_app(tmp_path)))
    assert "losac deploy up" in refused("deploy", "log", str(tmp_path))


def test_what_is_prepared_stays_the_same_at_the_next_start(tmp_path):
    folder = FederationFolder(tmp_path)
    first = prepare(folder, 2, "127.0.0.1", None)
    keys = {path: path.read_bytes() for path in folder.keys.iterdir()}
    again = prepare(folder, 3, "127.0.0.1", None)
    assert (again.port, again.node_ports[:2]) == (first.port, first.node_ports)
    assert len({again.port, *again.node_ports}) == 4
    assert {path: path.read_bytes() for path in keys} == keys
    for number in range(3):
        config = tomllib.loads(folder.node_config(number).read_text())
        assert config == {"partition-id": number, "state-dir": str(folder.state(number))}
        assert folder.state(number).stat().st_mode & 0o777 == 0o700
