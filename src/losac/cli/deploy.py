"""``losac deploy``: a federation of real processes, with Flower."""

from __future__ import annotations

import shlex
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac._claim import holds_anything
from losac._own import is_own
from losac._seeds import MOST
from losac._units import tidy
from losac.cli.errors import FAILED, say
from losac.cli.group import App
from losac.cli.operations import FEDERATION, RUNNING, Folder, Results, register, state
from losac.cli.options import Printing
from losac.cli.output import Answer
from losac.experiment.fields import PROBLEM, SIMULATION, Option
from losac.experiment.options import MADE, AlgorithmEntry, Data, Experiment, Partition
from losac.experiment.settings import parse_settings, split_entry

if TYPE_CHECKING:
    from losac.deploy import LocalFederation

_COMPLETED = "finished:completed"
_SERVER_KEYS = ("ca.crt", "ca.key", "server.crt", "server.key", "executor.secret")
_SETTINGS = ("step_size", "local_steps", "blocks", "batch_size", "epochs")

app = App(help="Run an algorithm between real processes and devices, with Flower.")

_INIT_EPILOG = """Examples:

losac deploy init myapp

losac deploy init myapp --algorithm scaffold:server_step=2 --data digits --clients 4"""
_UP_EPILOG = """Examples:

losac deploy up federation myapp

losac deploy up federation --nodes 5 --port 9092"""
_RUN_EPILOG = """Examples:

losac deploy run federation myapp

losac deploy run federation myapp --wait --set rounds=5 --seed 1"""
_LOG_EPILOG = """Examples:

losac deploy log federation

losac deploy log federation --quiet"""
_DOWN_EPILOG = "Example: losac deploy down federation"
_DEMO_EPILOG = """Examples:

losac deploy demo --data digits

losac deploy demo demo --rounds 20"""
_KEYS_EPILOG = """Examples:

losac deploy keys keys --host server.example.org

losac deploy keys keys --host server.example.org --renew"""
_KEY_EPILOG = """Examples:

losac deploy key node-0

losac deploy key node-0 --renew"""
_FREE_EPILOG = """Examples:

losac deploy free federation/results/1 client-0

losac deploy free federation/results/1 client-0 --rebind"""
_ROTATE_EPILOG = "Example: losac deploy rotate federation"
_PIN_EPILOG = """Examples:

losac deploy pin apps.txt myapp

losac deploy pin apps.txt --remove 33b5a59362ad"""
_ADMIT_EPILOG = """Examples:

losac deploy admit keys/submitters.json anna --address 127.0.0.1:8001 --home anna

losac deploy admit keys/submitters.json anna --remove"""


@app.command(epilog=_INIT_EPILOG, quiet="the paths of the files")
def init(
    folder: Annotated[Path, typer.Argument(help="New or empty folder; its name becomes the app's.")],
    data: Data = "digits",
    model: Annotated[
        str,
        Option(
            PROBLEM,
            "softmax, 2nn, logistic or linear, or your own as FILE.py:NAME; auto is by data set.",
            complete="model_names",
        ),
    ] = "auto",
    partition: Partition = None,
    clients: Annotated[
        int | None, Option(PROBLEM, "N, the number of clients.", default="4, or as many as your data have", min=1)
    ] = None,
    algorithm: AlgorithmEntry = "losac",
    clients_per_round: Annotated[
        int | None, Option(SIMULATION, "S, clients sampled each round.", default="half of them", min=1)
    ] = None,
    rounds: Annotated[int, Option(SIMULATION, "Rounds of a run.", min=1)] = 20,
) -> Answer:
    """Write a Flower app to start from."""
    from losac.data import datasets
    from losac.data.names import look_up
    from losac.data.partition import parse
    from losac.deploy.app import write_app

    experiment = Experiment(data=data, model=model, partition=partition, clients=clients)
    if experiment.is_of_user and not is_own(data):
        raise ValueError(
            f"--data {data}: an app holds no data; give a data set by name, or your function that reads the file as "
            "FILE.py:NAME"
        )
    if not is_own(data):
        look_up(data, datasets(), "data set")
    if partition is not None and not is_own(partition):
        parse(partition)
    calls, known, clients = _own_parts(experiment)
    if clients_per_round is not None and clients_per_round > clients:
        raise ValueError(f"--clients-per-round {clients_per_round} is more than the {clients} clients")
    (method,) = experiment.build_algorithms([algorithm])
    name, given = split_entry(algorithm)
    settings = method.settings()
    chosen = {key: settings[key] for key in (*_SETTINGS, *given) if settings.get(key) is not None}
    usual = None if is_own(data) or data in MADE else experiment.defaults.clients
    if usual and "step_size" not in given:  # the default is for other numbers of rows per client
        share = min(1.0, clients / usual)
        chosen["step_size"] = tidy(share * chosen["step_size"], 3)
    files = write_app(
        folder,
        algorithm=name,
        settings=chosen,
        data=data,
        model=known,
        partition=None if data in MADE or is_own(data) else experiment.resolved("partition"),
        clients=clients,
        clients_per_round=clients_per_round or max(clients // 2, 1),
        rounds=rounds,
        calls=calls,
    )
    return _files(files, f"Next: losac deploy up federation {shlex.quote(str(folder))}")


def _own_parts(experiment: Experiment) -> tuple[dict[str, str], str, int]:
    """Return how an app calls users' data and model, the model's name, and the number of clients; try both once."""
    from losac.deploy.own_code import data_call, model_call

    name, clients, calls = experiment.model_name, experiment.clients or 4, {}
    if is_own(experiment.data) or is_own(name):
        data = (experiment if is_own(experiment.data) else replace(experiment, clients=clients)).load_data()
        clients = data.num_clients
        if is_own(experiment.data):
            calls[experiment.data] = data_call(experiment.data, experiment.clients)
        if is_own(name):
            calls[name] = model_call(name, data)
        elif name == "auto":
            name = "linear" if data.num_classes is None else "softmax"
    return calls, name, clients


@app.command(epilog=_UP_EPILOG, quiet=RUNNING)
def up(
    folder: Folder,
    application: Annotated[Path | None, typer.Argument(metavar="[APP]", help="App with the number of nodes.")] = None,
    nodes: Annotated[
        int | None, Option(FEDERATION, "Number of SuperNodes.", default="as before, or the app's", min=1)
    ] = None,
    port: Annotated[
        int | None, Option(FEDERATION, "Port of the SuperLink.", max=65535, default="a free one", min=1)
    ] = None,
    timeout: Annotated[float, Option(FEDERATION, "Seconds for processes to get ready.", min=0)] = 60,
    *,
    printing: Printing,
) -> Answer:
    """Start a SuperLink with TLS, a SuperExec and SuperNodes, and return when all are online."""
    if nodes is None and application is not None:
        nodes = _app_config(application).get("clients")
    from losac.deploy.folder import FederationFolder

    if nodes is None and FederationFolder(folder).read() is None:
        raise ValueError(f"{folder} is new: give its number of nodes, as --nodes 4, or the folder of an app")
    federation = _federation(folder, nodes, port=port, detached=True, timeout=timeout)
    if printing.verbose:
        say(f"Starting {federation.nodes} nodes …")
    federation.start()
    return state(federation)


@app.command(epilog=_RUN_EPILOG, quiet="the folder of the results")
def run(
    folder: Folder,
    application: Annotated[Path, typer.Argument(metavar="APP", help="Folder of the app.")],
    set_: Annotated[
        list[str] | None, Option(SIMULATION, "A setting of the app, as NAME=VALUE; repeatable.", "--set")
    ] = None,
    seed: Annotated[
        int | None,
        Option(SIMULATION, "Seed of all draws; short for --set seed=N.", min=0, max=MOST, default="the app's"),
    ] = None,
    wait: Annotated[bool, Option(FEDERATION, "Return when the run is finished.", "--wait")] = False,
    timeout: Annotated[float, Option(FEDERATION, "Seconds to wait at most.", min=0)] = 3600,
    *,
    printing: Printing,
) -> Answer:
    """Submit a run of an app to a running federation; its results go into a new folder."""
    federation = _federation(folder)
    given = {name.replace("_", "-"): value for name, value in parse_settings(set_ or [], "--set").items()}
    if seed is not None:
        given["seed"] = seed
    ours = {"clients": federation.nodes, "out": str(federation.folder.fresh_results())}
    known = _app_config(application)
    config = {name: value for name, value in ours.items() if name in known} | given
    told: dict[str, Any] = {"run": federation.submit(application, config), "out": config.get("out")}
    if not printing.json:  # at once: the rest may take long
        typer.echo(told["out"] if printing.quiet else f"run {told['run']}\n{told['out']}")
    if not wait:
        return Answer(told, brief=[])
    ended = federation.wait(told["run"], timeout)
    told |= {"status": ended["status"], "details": ended["status-details"]}
    complaints = []
    if told["status"] != _COMPLETED:
        why = f"{told['status']}: {told['details']}; see losac deploy log {folder} {told['run']}"
        complaints.append(" ".join(f"losac: run {told['run']} is {why}".split()))
    return Answer(told, told["status"], brief=[], complaints=complaints, code=FAILED if complaints else 0)


@app.command(epilog=_LOG_EPILOG, quiet="the last line")
def log(
    folder: Folder,
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run's id.", show_default="the last")
    ] = None,
) -> Answer:
    """Print what the server of a run wrote."""
    federation = _federation(folder)
    if run_id is None and not (runs := federation.runs()):
        raise ValueError(f"{folder} has no run yet; submit one with: losac deploy run {folder} APP")
    chosen = run_id or max(runs, key=lambda each: each["pending-at"])["run-id"]
    text = federation.log(chosen)
    return Answer({"run": chosen, "log": text}, lambda: typer.echo(text), brief=[(text.splitlines() or [""])[-1]])


@app.command(epilog=_DOWN_EPILOG, quiet="the names of what was stopped")
def down(folder: Folder) -> Answer:
    """Stop all processes of a federation; its keys, states and results stay."""
    ran = _federation(folder).stop()
    return Answer({"stopped": ran}, f"stopped: {', '.join(ran) or 'nothing ran'}", brief=ran)


@app.command(epilog=_DEMO_EPILOG, quiet="the folder")
def demo(
    folder: Annotated[Path | None, typer.Argument(help="New or empty folder.", show_default="a temporary one")] = None,
    data: Annotated[str, Option(PROBLEM, "mnist, or the embedded digits; auto takes mnist if available.")] = "auto",
    rounds: Annotated[int, Option(SIMULATION, "Rounds to run.", min=4)] = 12,
    *,
    printing: Printing,
) -> Answer:
    """Train LoSAC between four nodes while a node, the SuperLink and the server are killed, and check the end."""
    from losac.deploy.demo import SETTINGS, demo

    if folder is not None and holds_anything(folder):
        raise ValueError(f"{folder} is not empty; give a new or an empty folder")
    where = Path(tempfile.mkdtemp(prefix="losac-federation-")) if folder is None else folder.resolve()
    if data == "auto":
        data = "mnist" if _is_here("mnist") else "digits"
    elif data not in SETTINGS:
        raise ValueError(f"--data {data!r} must be auto or one of {', '.join(SETTINGS)}")
    outcome = demo(where, data, rounds, say if printing.verbose else lambda line: None)
    text = (
        f"accuracy {outcome.accuracy:.4f}, the simulator's with the same clients {outcome.simulated:.4f}\n"
        f"largest difference of the models {outcome.difference:.1e} of the largest parameter\n"
        f"the server's sum and what the clients hold differ by {outcome.invariant:.1e}\n"
        f"{outcome.seconds_per_round:.1f} s per round; everything is in {where}"
    )
    return Answer(outcome._asdict() | {"folder": str(where)}, text, brief=[where])


@app.command(epilog=_KEYS_EPILOG, quiet="the paths of the files")
def keys(
    folder: Annotated[Path, typer.Argument(help="Folder for the keys.")],
    host: Annotated[list[str], Option(FEDERATION, "Name or IP address of the server; repeatable.")],
    renew: Annotated[
        bool, Option(FEDERATION, "Set the files that are there aside, and make new ones.", "--renew")
    ] = False,
) -> Answer:
    """Make the certificates and the executor's secret of a server, for a federation of several machines."""
    from losac.deploy.certificates import (
        certificate_authority,
        check_hosts,
        executor_secret,
        server_certificate,
        set_aside,
    )

    check_hosts(host)
    if folder.is_file():
        raise ValueError(f"{folder} is a file; give a folder")
    if folder.exists() and any(folder.iterdir()):
        if not renew:
            raise ValueError(f"{folder} is not empty; give another folder, or --renew to replace its keys")
        set_aside(*(folder / name for name in _SERVER_KEYS))
    authority = certificate_authority(folder)
    files = [*authority, *server_certificate(folder, host, authority), executor_secret(folder)]
    return _files(files, "Only ca.crt leaves this machine: every node needs a copy of it.")


@app.command(epilog=_KEY_EPILOG, quiet="the paths of the files")
def key(
    file: Annotated[Path, typer.Argument(help="File for the private key; the public one becomes FILE.pub.")],
    renew: Annotated[
        bool, Option(FEDERATION, "Set the key that is there aside, and make a new one.", "--renew")
    ] = False,
    state: Annotated[
        Path | None, Option(FEDERATION, "The node's state-dir, which the new key takes over.", default="none")
    ] = None,
) -> Answer:
    """Make a node's key, on the node: the private one never leaves it."""
    from losac.deploy.certificates import node_key, set_aside
    from losac.federation.owner import release, vaults

    public = file.with_name(f"{file.name}.pub")
    if state is not None and not vaults(state):
        raise ValueError(f"{state} holds no client's state that a key could take over; give the node's state-dir")
    if renew:
        set_aside(file, public)
    files = node_key(file.parent, file.name)
    if state is not None:
        release(state)
    return _files(list(files), f"The server registers it: flwr supernode register {public.name}")


@app.command(epilog=_FREE_EPILOG, quiet="the file of the request")
def free(
    results: Results,
    client: Annotated[str, typer.Argument(help="Name of the client, as the log has it.")],
    rebind: Annotated[
        bool, Option(FEDERATION, "Keep the place and what it contributed: its node has a new key.", "--rebind")
    ] = False,
) -> Answer:
    """Free a client's place before the next round, or let the client come with another key."""
    from losac.federation.requests import ask

    path = ask(results, "rebind" if rebind else "free", client)
    return Answer({"request": str(path)}, f"{path}: the server takes it before its next round", brief=[path])


@app.command(epilog=_ROTATE_EPILOG, quiet="the folder")
def rotate(folder: Folder) -> Answer:
    """Renew all keys, certificates, secrets and tokens of a federation that is down, from its next start."""
    aside = _federation(folder).rotate()
    text = f"{len(aside)} files are set aside; the next losac deploy up {folder} makes new ones"
    return Answer({"aside": [str(path) for path in aside]}, text, brief=[str(folder)])


@app.command(epilog=_PIN_EPILOG, quiet="the digest")
def pin(
    apps: Annotated[Path, typer.Argument(help="File of the apps that may run on this machine.")],
    application: Annotated[Path | None, typer.Argument(metavar="[APP]", help="Folder of the app.")] = None,
    remove: Annotated[
        str | None, Option(FEDERATION, "Digest of an app that may no longer run, or how it begins.", default="none")
    ] = None,
) -> Answer:
    """Let this machine's node, or server, run an app; nothing else runs there."""
    from losac.deploy import pins

    if application is None and remove is not None:
        digest, word = pins.unpin(apps, remove), "no longer runs here"
    elif application is not None and remove is None:
        _app_config(application)
        digest, word = pins.pin(apps, application), "may run here"
    else:
        raise ValueError("give the folder of an app, or --remove with the digest of one")
    return Answer({"digest": digest}, f"{digest} {word}", brief=[digest])


@app.command(epilog=_ADMIT_EPILOG, quiet="the name")
def admit(
    file: Annotated[Path, typer.Argument(help="The server's file of who may submit.")],
    name: Annotated[str, typer.Argument(help="Name of a person or machine.")],
    address: Annotated[
        str | None, Option(FEDERATION, "HOST:PORT at which this person reaches the SuperLink.", default="none")
    ] = None,
    home: Annotated[
        Path | None, Option(FEDERATION, "Folder for the credentials, the person's FLWR_HOME.", default="none")
    ] = None,
    remove: Annotated[bool, Option(FEDERATION, "Revoke: the person may no longer submit.", "--remove")] = False,
) -> Answer:
    """Let somebody submit runs to a server, or revoke it; both count at once."""
    from losac.deploy import submitters

    if remove:
        if address is not None or home is not None:
            raise ValueError("--remove takes neither --address nor --home: it leaves the person's credentials, void")
        submitters.revoke(file, name)
        return Answer({"revoked": name}, f"{name} may no longer submit", brief=[name])
    if address is None or home is None:
        raise ValueError(
            f"say where {name} reaches the server and where its token goes: --address HOST:PORT --home DIR"
        )
    submitters.check_address(address)
    submitters.admit(file, name, partial(submitters.write_credentials, home, address))
    credentials = home / submitters.CREDENTIALS
    told = {"admitted": name, "credentials": str(credentials)}
    return Answer(told, f"{name} may submit; the token is in {credentials}", brief=[name])


def _files(files: list[Path], hint: str) -> Answer:
    return Answer({"files": [str(path) for path in files]}, paths=files, hint=hint)


def _is_here(data: str) -> bool:
    """Whether a real data set is on this machine."""
    from losac.data.sources import SOURCES
    from losac.data.store import find_arrays

    try:
        find_arrays(SOURCES[data], download=False)
    except (OSError, ValueError):
        return False
    return True


def _federation(folder: Path, nodes: int | None = None, **options: Any) -> LocalFederation:
    """Return a folder's federation."""
    from losac.deploy import LocalFederation

    return LocalFederation(folder, nodes, **options)


def _app_config(application: Path) -> dict[str, Any]:
    from losac.deploy.runs import app_config

    return app_config(application)


register(app)
