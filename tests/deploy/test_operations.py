"""A federation that is operated: node settings, runs that are stopped and resumed, metrics, units and containers."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("flwr")

from commands import losac, refused
from losac.deploy import DeployError, LocalFederation, services
from losac.deploy.folder import FederationFolder, FederationSettings
from losac.deploy.startup import prepare, write_node_config
from losac.deploy.submissions import Submission, remember, submissions
from losac.federation import durable
from losac.federation.status import Refusals, Reporter


def test_a_nodes_own_settings_survive_up_and_reach_its_app(tmp_path):
    folder = FederationFolder(tmp_path)
    prepare(folder, 2, "127.0.0.1", None)
    set_ = losac("deploy", "configure", str(tmp_path), "node-1", "--set", "data-path=/srv/a b.npz", "--set", "gpu=true")
    assert set_.exit_code == 0, set_.output
    assert "losac deploy restart" in set_.stderr
    prepare(folder, 2, "127.0.0.1", None)
    config = tomllib.loads(folder.node_config(1).read_text())
    assert config == {
        "data-path": "/srv/a b.npz", "gpu": True, "partition-id": 1, "state-dir": str(folder.state(1)),
    }  # fmt: skip
    assert "data-path" not in folder.node_config(0).read_text()
    assert losac("deploy", "configure", str(tmp_path), "node-1", "--remove", "gpu").exit_code == 0
    told = json.loads(losac("deploy", "configure", str(tmp_path), "node-1", "--json").stdout)
    assert told["settings"] == {"data-path": "/srv/a b.npz"}
    assert folder.own_settings(1).stat().st_mode & 0o777 == 0o600


def test_settings_that_a_node_cannot_have_are_refused(tmp_path):
    folder = FederationFolder(tmp_path)
    prepare(folder, 1, "127.0.0.1", None)
    configure = ("deploy", "configure", str(tmp_path))
    assert "no node is called 'node-1'; there are node-0" in refused(*configure, "node-1")
    assert "partition-id follows from the node's place" in refused(*configure, "node-0", "--set", "partition-id=3")
    assert "has no setting 'gpu'; it has none" in refused(*configure, "node-0", "--remove", "gpu")
    folder.own_settings(0).parent.mkdir()
    folder.own_settings(0).write_text("a = [1]\n")
    with pytest.raises(ValueError, match=r"node-0\.toml: a: \[1\] cannot be configured in Flower"):
        write_node_config(folder, 0)
    folder.own_settings(0).write_text("a = \n")
    assert "cannot be read" in refused(*configure, "node-0")


def test_runs_are_resumed_with_what_they_were_submitted_with(tmp_path, monkeypatch):
    folder, out = FederationFolder(tmp_path), tmp_path / "results" / "1"
    folder.write(FederationSettings(1))
    federation = LocalFederation(tmp_path)
    remember(folder.submissions, "7", Submission(tmp_path / "app", {"out": str(out), "rounds": 3}))
    state, sent = {"status": "running"}, []
    monkeypatch.setattr(LocalFederation, "status", lambda self, run: state)
    monkeypatch.setattr(LocalFederation, "submit", lambda self, app, config: sent.append((app, config)) or "8")
    with pytest.raises(DeployError, match="run 7 is running; stop it first: losac deploy stop"):
        federation.resume("7")
    state["status"] = "finished:stopped"
    with pytest.raises(DeployError, match="left no checkpoint to continue from; submit it again"):
        federation.resume("7")
    with pytest.raises(DeployError, match="does not run: it is finished:stopped"):
        federation.stop_run("7")
    with pytest.raises(ValueError, match=r"no run '9' was submitted from .* there are 7"):
        federation.resume("9")
    durable.write(out / "checkpoint", durable.Record({}, {}))
    with durable.locked(out), pytest.raises(DeployError, match="another run writes to"):
        federation.resume("7")
    assert federation.resume("7", {"rounds": 9}) == "8"
    assert sent == [(tmp_path / "app", {"out": str(out), "rounds": 9})]
    folder.submissions.write_text("{}}")
    with pytest.raises(ValueError, match="is damaged"):
        submissions(folder.submissions)


def report(out: Path, **told: object) -> None:
    reporter = Reporter(out, {"algorithm": "fedavg", "rounds": 9, "places": 2})
    reporter.refusals = Refusals()
    about = {"place": 0, "rows": 3, "present": True, "answered": 4, "losac": "0.1.0"}
    reporter.write(
        round=5, attempts=6, void=1, asked=["a", "b"], answered=["a"], metrics={"accuracy": 0.5, "loss": float("nan")},
        costs={"bytes_up": 10, "seconds": 2.5}, members={"a": about}, state="running", **told,
    )  # fmt: skip


def test_prometheus_reads_the_state_of_all_runs_on_this_machine_alone(tmp_path):
    pytest.importorskip("prometheus_client")
    from losac.deploy.metrics import serve

    for number in (1, 2):
        (tmp_path / "results" / str(number)).mkdir(parents=True)
        report(tmp_path / "results" / str(number), invariant={"round": 5, "relative_error": 1e-7})
    server, thread = serve([tmp_path], "127.0.0.1", 0)
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        with pytest.raises(ValueError, match="is in use"):
            serve([tmp_path], "127.0.0.1", server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert server.server_address[0] == "127.0.0.1"
    run = f'run="{tmp_path / "results" / "1"}"'
    for line in (
        f"losac_round{{{run}}} 5.0", f"losac_void_total{{{run}}} 1.0", f"losac_answered{{{run}}} 1.0",
        f"losac_bytes_up_total{{{run}}} 10.0", f'losac_client_round{{client="a",{run}}} 4.0',
        f'losac_metric{{name="accuracy",{run}}} 0.5', f"losac_invariant_error{{{run}}} 1e-07",
        f"losac_running{{{run}}} 1.0",
    ):  # fmt: skip
        assert line in text.splitlines()
    assert 'name="loss"' not in text
    assert "is not a folder" in refused("deploy", "metrics", str(tmp_path / "nowhere"))


def test_units_start_the_guarded_programs_and_nothing_else(tmp_path):
    done = losac(
        "deploy", "services", str(tmp_path), "--server", "server.example.org", "--programs", "/opt/losac/bin", "--json"
    )
    assert done.exit_code == 0, done.output
    files = {Path(path).name: Path(path).read_text() for path in json.loads(done.stdout)["files"]}
    starts = {
        name: shlex.split(line.removeprefix("ExecStart="))
        for name, text in files.items()
        for line in text.splitlines()
        if line.startswith("ExecStart=")
    }
    place = services.Place(Path("/var/lib/losac"), Path("/opt/losac/bin"), "server.example.org", 8000)
    assert starts == {
        "losac-superlink.service": place.superlink(), "losac-superexec.service": place.superexec(),
        "losac-supernode.service": place.supernode(), "losac-metrics.service": place.metrics(),
    }  # fmt: skip
    assert "--submitters" in place.superlink()
    assert "server.example.org:8000" in place.supernode()
    assert all("UMask=0077" in files[name] and "NoNewPrivileges=yes" in files[name] for name in starts)
    assert tomllib.loads(files["node-config.toml"])["state-dir"] == "/var/lib/losac/state"
    assert "is not overwritten" in refused("deploy", "services", str(tmp_path), "--server", "a")


def test_systemd_accepts_the_units(tmp_path):
    """Unknown keys and values, and programs that are not there; nothing is started."""
    if (verifier := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze on this machine")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("python", "losac", "flower-superexec"):
        (programs / name).symlink_to(sys.executable)
    done = losac("deploy", "services", str(tmp_path), "--server", "a.example.org", "--programs", str(programs))
    assert done.exit_code == 0, done.output

    def verified() -> str:
        command = [verifier, "verify", "--man=no", *map(str, sorted(tmp_path.glob("*.service")))]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stderr

    assert verified() == ""
    unit = tmp_path / "losac-superlink.service"
    unit.write_text(unit.read_text().replace("PrivateTmp=yes", "PrivateTemp=yes"))
    assert "Unknown key" in verified()


def test_compose_files_keep_to_the_specification(tmp_path):
    import yaml

    done = losac("deploy", "services", str(tmp_path), "--server", "10.0.0.1", "--kind", "compose")
    assert done.exit_code == 0, done.output
    schema = json.loads((Path(__file__).parent / "compose_schema.json").read_text())
    for name in ("compose.server.yaml", "compose.node.yaml"):
        content = yaml.safe_load((tmp_path / name).read_text())
        jsonschema.validate(content, schema)
    with pytest.raises(jsonschema.ValidationError, match="'volume' was unexpected"):
        jsonschema.validate({"services": {"a": {"image": "losac", "volume": []}}}, schema)


def test_containers_publish_the_clients_port_alone(tmp_path):
    import yaml

    done = losac("deploy", "services", str(tmp_path), "--server", "10.0.0.1", "--kind", "compose", "--fleet-port", "9")
    assert done.exit_code == 0, done.output
    server = yaml.safe_load((tmp_path / "compose.server.yaml").read_text())["services"]
    node = yaml.safe_load((tmp_path / "compose.node.yaml").read_text())["services"]["supernode"]
    assert server["superlink"]["ports"] == ["9:9"]
    assert all("ports" not in each for each in (server["superexec"], node))
    assert server["superexec"]["network_mode"] == "service:superlink"
    assert "10.0.0.1:9" in node["command"]
    assert all(each["read_only"] and each["cap_drop"] == ["ALL"] for each in (*server.values(), node))
    assert "LOSAC" in (tmp_path / "Dockerfile").read_text()
    assert "must be one of 'systemd', 'compose'" in refused(
        "deploy", "services", str(tmp_path / "a"), "--server", "a", "--kind", "docker"
    )
