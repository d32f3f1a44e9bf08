"""Nobody enters who should not: the SuperLink's two addresses, its submitters, its executor, and the nodes' apps."""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message, RecordDict
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from commands import losac, refused
from losac.deploy import pins, startup, submitters
from losac.deploy.app import write_app
from losac.deploy.certificates import NodeKey, node_key
from losac.deploy.folder import CLI, SUPERLINK, FederationFolder
from losac.deploy.processes import read_records, terminate
from losac.deploy.runs import register


def new_app(folder: Path, name: str = "some-app", rounds: int = 2) -> Path:
    write_app(
        folder / name, algorithm="fedavg", settings={"step_size": 1e-4}, data="digits", model="softmax",
        partition="sorted", clients=2, clients_per_round=2, rounds=rounds,
    )  # fmt: skip
    return folder / name


class Reached:
    """A running SuperLink as a stranger sees it who has nothing but the authority's certificate."""

    def __init__(self, folder: FederationFolder) -> None:
        self.folder, self.settings = folder, folder.settings()
        self.client = httpx.Client(verify=ssl.create_default_context(cafile=folder.authority.certificate))

    def post(self, port: int, path: str, request: Any, token: str = "") -> httpx.Response:
        from flwr.supercore.version import package_name, package_version

        headers = {"content-type": "application/protobuf", "flwr-package-version": package_version}
        headers |= {"flwr-package-name": package_name, "flwr-component-name": "SuperNode"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        return self.client.post(f"https://127.0.0.1:{port}{path}", content=request.SerializeToString(), headers=headers)


@pytest.fixture(scope="module")
def superlink(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A SuperLink alone, as ``losac deploy up`` starts it."""
    folder = FederationFolder(tmp_path_factory.mktemp("guarded"))
    startup.prepare(folder, 1, "127.0.0.1", None)
    startup.launch(folder, SUPERLINK, {})
    try:
        startup.await_healthy(folder, SUPERLINK, 120)
        reached = Reached(folder)
        yield reached
        reached.client.close()
    finally:
        terminate(list(read_records(folder.pids).values()), patience=5)


def test_a_stranger_with_the_certificate_submits_nothing(superlink):
    port = superlink.settings.port
    for request, path in ((StartRunRequest(), "start-run"), (ListRunsRequest(), "list-runs")):
        for token in ("", "guessed"):
            assert superlink.post(port, f"/v1/control/{path}", request, token).status_code == 401


def test_a_submitter_is_let_in_by_name_until_revoked(superlink):
    file, port = superlink.folder.guards.submitters, superlink.settings.port
    token = submitters.admit(file, "anna")
    assert superlink.post(port, "/v1/control/list-runs", ListRunsRequest(), token).status_code == 200
    done = losac("deploy", "admit", str(file), "anna", "--remove")
    assert done.exit_code == 0, done.output
    assert superlink.post(port, "/v1/control/list-runs", ListRunsRequest(), token).status_code == 401
    assert set(submitters.submitters(file)) == {"owner"}


def test_an_executor_without_the_secret_gets_no_work(superlink):
    """A rogue one took the server's role and received uploads."""
    answer = superlink.post(superlink.settings.port, "/v1/runtime/acquire-task", AcquireTaskRequest())
    assert answer.status_code == 401


def test_clients_have_an_address_of_their_own_which_serves_nothing_else(superlink):
    fleet = superlink.settings.fleet_port
    for path in ("/v1/control/start-run", "/v1/runtime/acquire-task", "/docs", "/v1/fleet/../control/start-run"):
        assert superlink.post(fleet, path, StartRunRequest()).status_code == 404
    assert superlink.client.get(f"https://127.0.0.1:{fleet}/health").status_code == 200
    assert superlink.post(fleet, "/v1/fleet/pull-messages", PullMessagesRequest()).status_code == 401


def head_alone(superlink: Reached, length: int, headers: Mapping[str, str]) -> str:
    """Announce a body to the clients' address and send none of it; return the first line of the answer."""
    context = ssl.create_default_context(cafile=superlink.folder.authority.certificate)
    told = {"host": "a", "content-type": "application/protobuf", "content-length": str(length), **headers}
    lines = ["POST /v1/fleet/push-object HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
    with (
        socket.create_connection(("127.0.0.1", superlink.settings.fleet_port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
    ):
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        return connection.recv(4096).split(b"\r\n")[0].decode()


def test_nothing_is_read_from_a_stranger_and_no_endless_request_from_anyone(superlink):
    """Flower reads a whole request before it asks who sends it: a stranger could fill the server's memory."""
    stranger, node = (node_key(superlink.folder.root / "more", name) for name in ("stranger", "node"))
    register(superlink.folder.home(CLI), node.public)
    assert "401" in head_alone(superlink, 2**40, {})
    assert "401" in head_alone(superlink, 2**40, signed_by(stranger))
    assert "413" in head_alone(superlink, 2**40, signed_by(node))
    answer = superlink.client.post(
        f"https://127.0.0.1:{superlink.settings.fleet_port}/v1/fleet/pull-messages",
        content=PullMessagesRequest().SerializeToString(),
        headers={"content-type": "application/protobuf", **signed_by(node)},
    )
    assert answer.status_code != 413, "what is small is Flower's to judge"


def signed_by(key: NodeKey) -> dict[str, str]:
    """Return the headers of a request by which Flower knows a node."""
    private = load_ssh_private_key(key.private.read_bytes(), None)
    when = now().isoformat()
    return {
        TIMESTAMP_HEADER: when,
        FLEET_HTTP_PUBLIC_KEY_HEADER: b64encode(public_key_to_bytes(private.public_key())).decode(),
        FLEET_HTTP_SIGNATURE_HEADER: b64encode(sign_message(private, when.encode())).decode(),
    }


def test_an_app_that_is_not_pinned_is_refused_by_the_server_even_from_its_owner(superlink, tmp_path):
    from losac.deploy.runs import submit

    app, home = new_app(tmp_path, "foreign-app"), superlink.folder.home(CLI)
    with pytest.raises(Exception, match="is not pinned at this server"):
        submit(home, app, {})
    pins.pin(superlink.folder.guards.apps, app)
    assert submit(home, app, {}).isdecimal()


def test_all_that_a_superlink_writes_is_its_owners_alone(superlink):
    files = list(superlink.folder.root.rglob("*"))
    assert superlink.folder.database in files
    assert [path for path in files if path.stat().st_mode & 0o077] == []


# --- the node


class Node:
    """Flower's SuperNode while it takes one message, with memory for disks and a made-up SuperLink."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.program = import_module("flwr.supernode.start_client_internal")
        for name in ("_pull_and_store_message", "_verify_fab"):
            monkeypatch.setattr(self.program, name, getattr(self.program, name))

    def take(self, content: bytes, config: Any = None) -> Any:
        """Let the node receive a message of a run of this app; return the error that it answers with, or None."""
        from flwr.supercore.fab import Fab
        from flwr.supercore.object_store import ObjectStoreFactory
        from flwr.supercore.run import Run
        from flwr.supercore.task_identity import TaskIdentity
        from flwr.supernode.nodestate import NodeStateFactory

        TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
        objects = ObjectStoreFactory()
        state = NodeStateFactory(objects).state()
        state.set_node_id(7)
        message = Message(RecordDict(), 7, "query")
        message.metadata.__dict__["_message_id"], message.metadata.__dict__["_run_id"] = "m" * 64, 1
        answered: list[Any] = []
        insert = self.program._insert_message
        self.program._insert_message = lambda reply, *rest: answered.append(reply)
        try:
            self.program._pull_and_store_message(
                state=state, object_store=objects.store(), node_config={}, receive=lambda: (message, None),
                get_run=lambda run: Run.create_empty(run), get_fab=lambda digest, run: Fab(digest, content, {}),
                pull_object=None, confirm_message_received=None, trusted_entities=config,
            )  # fmt: skip
        except Exception:  # the made-up SuperLink has no objects: the app was taken
            assert state.get_run(1) is not None
        finally:
            self.program._insert_message = insert
        return answered[0].error if answered else None


def test_a_node_runs_what_its_own_machine_has_pinned_and_nothing_else(tmp_path, monkeypatch, caplog):
    """Whatever the server says: a foreign app ran at all nodes and returned a row of their data."""
    from losac.deploy.supernode import only_pinned

    apps, node = tmp_path / "apps.txt", Node(monkeypatch)
    good, foreign = (pins.packed(new_app(tmp_path, name)) for name in ("good-app", "foreign-app"))
    only_pinned(node.program, apps)
    assert node.take(good).code, "nothing is pinned, nothing runs"
    pins.pin(apps, tmp_path / "good-app")
    assert node.take(good) is None
    assert node.take(foreign).code
    assert f"app {pins.content_digest(foreign)} is not pinned" in caplog.text
    assert node.take(good + b"\0").code, "not a byte may differ"
    assert node.take(good, {"fpk_someone": "ssh-ed25519 …"}).code, "signatures that the node asks for are still due"
    pins.unpin(apps, pins.content_digest(good)[:12])
    assert node.take(good).code


def test_apps_are_pinned_by_command(tmp_path):
    app, apps = new_app(tmp_path), tmp_path / "apps.txt"
    digest = losac("deploy", "pin", str(apps), str(app), "--quiet").stdout.strip()
    assert digest == pins.app_digest(app)
    assert list(pins.pinned(apps)) == [digest]
    assert apps.stat().st_mode & 0o777 == 0o600
    assert "give the folder of an app" in refused("deploy", "pin", str(apps))
    assert "0 apps in" in refused("deploy", "pin", str(apps), "--remove", "ffff")
    assert losac("deploy", "pin", str(apps), "--remove", digest[:8]).exit_code == 0
    assert pins.pinned(apps) == {}
    apps.write_text("some-app\n")
    assert "line 1: 'some-app' is not the digest of an app" in refused("deploy", "pin", str(apps), str(app))


def test_an_app_takes_no_token_of_its_folder_along(tmp_path):
    """Flower packs every YAML and JSON file: a federation below the app's folder sent its tokens to all nodes."""
    app = new_app(tmp_path)
    before = pins.app_digest(app)
    submitters.write_credentials(app / "federation" / "cli", "127.0.0.1:1", "token")
    assert pins.app_digest(app) == before
    settings = (app / "pyproject.toml").read_text().splitlines()
    (app / "pyproject.toml").write_text("\n".join(line for line in settings if not line.startswith("fab-include")))
    with pytest.raises(ValueError, match=r"would send federation/cli/credentials\.yaml to every node"):
        pins.app_digest(app)


@pytest.mark.parametrize(
    "many",
    [
        lambda path: [partial(submitters.admit, path, f"p{k}") for k in range(8)],
        lambda path: [partial(pins.pin, path, new_app(path.parent, f"app{k}")) for k in range(8)],
    ],
)
def test_of_people_and_apps_let_in_at_the_same_time_none_is_lost(tmp_path, many):
    """Each read the file before the others had written it."""
    path = tmp_path / "file"
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda each: each(), many(path)))
    assert len(path.read_text().splitlines()) == len(found) + 2 * path.read_text().startswith("{")


def test_comments_among_pinned_apps_stay(tmp_path):
    app, apps = new_app(tmp_path), tmp_path / "apps.txt"
    apps.write_text("# reviewed by anna\n" + "a" * 64 + "  old # until June\n")
    digest = pins.pin(apps, app)
    pins.unpin(apps, "aaaa")
    assert apps.read_text() == f"# reviewed by anna\n{digest}  some-app\n"


def test_whoever_cannot_be_handed_a_token_keeps_the_one_before(tmp_path):
    """The old token was void and the new one nowhere."""
    file, home = tmp_path / "submitters.json", tmp_path / "anna"
    token = submitters.admit(file, "anna")
    home.write_text("a file")
    for address in ("127.0.0.1:8001", "server", "server:0", "https://server:1"):
        refused("deploy", "admit", str(file), "anna", "--address", address, "--home", str(home))
    assert submitters.who(file, token) == "anna"
    assert "takes neither --address nor --home" in refused(
        "deploy", "admit", str(file), "anna", "--remove", "--home", str(home)
    )
    assert submitters.who(file, token) == "anna"


def test_credentials_for_other_servers_stay(tmp_path):
    """``flwr`` keeps those of all addresses in one file."""
    path = submitters.write_credentials(tmp_path, "one:1", "first")
    path.write_text(path.read_text().replace("{", "{ # of flwr\n", 1))
    submitters.write_credentials(tmp_path, "two:2", "second")
    assert len({line.split(".oidc")[0] for line in path.read_text().splitlines() if "oidc-access" in line}) == 2
    path.write_text("- a list")
    with pytest.raises(ValueError, match="is not a file of flwr's credentials"):
        submitters.write_credentials(tmp_path, "two:2", "second")
    assert path.read_text() == "- a list"


def test_submitters_are_admitted_by_command(tmp_path):
    file, home = tmp_path / "submitters.json", tmp_path / "anna"
    assert "--address HOST:PORT" in refused("deploy", "admit", str(file), "anna")
    assert "'a b' is not the name" in refused(
        "deploy", "admit", str(file), "a b", "--address", "127.0.0.1:1", "--home", str(home)
    )
    done = losac("deploy", "admit", str(file), "anna", "--address", "127.0.0.1:1", "--home", str(home))
    assert done.exit_code == 0, done.output
    assert {path.stat().st_mode & 0o777 for path in (file, home / "credentials.yaml")} == {0o600}
    assert "has no submitter 'ana'; it has anna" in refused("deploy", "admit", str(file), "ana", "--remove")
