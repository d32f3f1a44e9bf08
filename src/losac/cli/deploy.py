"""``losac deploy``: a federation of real processes, by Flower."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.complete import algorithm_names, data_names, model_names, partition_names
from losac.cli.errors import FAILED, fail, say
from losac.cli.experiment import Experiment
from losac.cli.group import Commands
from losac.cli.options import METHOD, PROBLEM, SIMULATION, Json, option, quiet_option
from losac.cli.output import print_json, print_paths, print_table
from losac.cli.settings import parse_settings

if TYPE_CHECKING:
    from losac.deploy import LocalFederation

_COMPLETED = "finished:completed"
_SETTINGS = ("step_size", "local_steps", "blocks", "batch_size", "epochs")

app = typer.Typer(
    cls=Commands, help="Run an algorithm between real processes and devices, by Flower.", no_args_is_help=True
)
_Folder = Annotated[Path, typer.Argument(help="Folder of the federation: its keys, logs, states and results.")]
_FEDERATION = "Federation"

_INIT_EPILOG = """Examples:

losac deploy init myapp

losac deploy init myapp --algorithm scaffold:server_step=2 --data digits --clients 4"""
_UP_EPILOG = """Examples:

losac deploy up federation myapp

losac deploy up federation --nodes 5 --port 9092"""
_RUN_EPILOG = """Examples:

losac deploy run federation myapp

losac deploy run federation myapp --wait --set rounds=5 --seed 1"""
_STATUS_EPILOG = """Examples:

losac deploy status federation

losac deploy status federation --json"""
_LOG_EPILOG = """Examples:

losac deploy log federation

losac deploy log federation --quiet"""
_DOWN_EPILOG = "Example: losac deploy down federation"
_DEMO_EPILOG = """Examples:

losac deploy demo --data digits

losac deploy demo demo --rounds 20"""
_KEYS_EPILOG = "Example: losac deploy keys keys --host server.example.org --nodes 4"


@app.command(epilog=_INIT_EPILOG)
def init(
    folder: Annotated[Path, typer.Argument(help="New or empty folder; its name becomes the app's.")],
    data: Annotated[str, option(PROBLEM, "Data set; see losac data list.", autocompletion=data_names)] = "digits",
    model: Annotated[
        str, option(PROBLEM, "softmax, 2nn, logistic or linear; auto is by data set.", autocompletion=model_names)
    ] = "auto",
    partition: Annotated[
        str | None,
        option(
            PROBLEM,
            "iid, sorted, mixture:C, dirichlet:A, shards:K or group.",
            show_default="by data set",
            autocompletion=partition_names,
        ),
    ] = None,
    clients: Annotated[int, option(PROBLEM, "N, the number of clients.", min=1)] = 4,
    algorithm: Annotated[
        str, option(METHOD, "Algorithm, as losac or fedavg:step_size=1e-4.", autocompletion=algorithm_names)
    ] = "losac",
    clients_per_round: Annotated[
        int | None, option(SIMULATION, "S, clients sampled each round.", min=1, show_default="half of them")
    ] = None,
    rounds: Annotated[int, option(SIMULATION, "Rounds of a run.", min=1)] = 20,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the paths of the files")] = False,
) -> None:
    """Write a Flower app to start from."""
    from losac.data import datasets
    from losac.data.names import look_up
    from losac.data.partition import parse
    from losac.deploy.app import write_app

    look_up(data, datasets(), "data set")
    if partition is not None:
        parse(partition)
    experiment = Experiment(data=data, partition=partition)
    (method,) = experiment.build_algorithms([algorithm])
    name = algorithm.partition(":")[0]
    given = parse_settings([part for part in algorithm.partition(":")[2].split(",") if part], algorithm)
    settings = method.settings()
    chosen = {key: settings[key] for key in (*_SETTINGS, *given) if settings.get(key) is not None}
    is_made = data in ("quadratic", "lowrank", "logistic")
    if not is_made and "step_size" not in given:  # the default is for other numbers of rows per client
        share = min(1.0, clients / experiment.resolved("clients"))
        chosen["step_size"] = float(f"{share * chosen['step_size']:.3g}")
    files = write_app(
        folder,
        algorithm=name,
        settings=chosen,
        data=data,
        model=experiment.defaults.model if model == "auto" else model,
        partition=None if is_made else experiment.resolved("partition"),
        clients=clients,
        clients_per_round=clients_per_round or max(clients // 2, 1),
        rounds=rounds,
    )
    if json:
        print_json({"files": [str(path) for path in files]})
        return
    print_paths(files, hint=False)
    if not quiet:
        say(f"Next: losac deploy up federation {shlex.quote(str(folder))}")


@app.command(epilog=_UP_EPILOG)
def up(
    folder: _Folder,
    application: Annotated[Path | None, typer.Argument(metavar="[APP]", help="App that says how many nodes.")] = None,
    nodes: Annotated[
        int | None, option(_FEDERATION, "Number of SuperNodes.", min=1, show_default="as before, or the app's")
    ] = None,
    port: Annotated[int | None, option(_FEDERATION, "Port of the SuperLink.", show_default="a free one")] = None,
    timeout: Annotated[float, option(_FEDERATION, "Seconds that processes have to get ready.")] = 60,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the names of the processes that run")] = False,
) -> None:
    """Start a SuperLink with TLS, a SuperExec and SuperNodes, and return when all are online."""
    if nodes is None and application is not None:
        nodes = _app_config(application).get("clients")
    from losac.deploy.folder import Folder

    if nodes is None and Folder(folder).read() is None:
        raise ValueError(f"{folder} is new: give its number of nodes, as --nodes 4, or the folder of an app")
    federation = _federation(folder, nodes, port=port, detached=True, timeout=timeout)
    if not (json or quiet):
        say(f"Starting {federation.nodes} nodes …")
    federation.start()
    _tell(federation, json=json, quiet=quiet)


@app.command(epilog=_RUN_EPILOG)
def run(
    folder: _Folder,
    application: Annotated[Path, typer.Argument(metavar="APP", help="Folder of the app.")],
    set_: Annotated[
        list[str] | None, option(SIMULATION, "A setting of the app, as NAME=VALUE; repeatable.", "--set")
    ] = None,
    seed: Annotated[
        int | None, option(SIMULATION, "Of all draws; short for --set seed=N.", min=0, show_default="the app's")
    ] = None,
    wait: Annotated[bool, option(_FEDERATION, "Return when the run is finished.", "--wait")] = False,
    timeout: Annotated[float, option(_FEDERATION, "Seconds to wait at most.")] = 3600,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the folder of the results")] = False,
) -> None:
    """Submit a run of an app to a federation that is up; its results are put into a folder of their own."""
    federation = _federation(folder)
    given = {name.replace("_", "-"): value for name, value in parse_settings(set_ or [], "--set").items()}
    if seed is not None:
        given["seed"] = seed
    ours = {"clients": federation.nodes, "out": str(federation.folder.fresh_results())}
    known = _app_config(application)
    config = {name: value for name, value in ours.items() if name in known} | given
    told: dict[str, Any] = {"run": federation.submit(application, config), "out": config.get("out")}
    if quiet:
        typer.echo(told["out"])
    elif not json:
        typer.echo(f"run {told['run']}\n{told['out']}")
    if wait:
        answer = federation.wait(told["run"], timeout)
        told |= {"status": answer["status"], "details": answer["status-details"]}
    if json:
        print_json(told)
    elif wait and not quiet:
        typer.echo(told["status"])
    if wait and told["status"] != _COMPLETED:
        why = f"{told['status']}: {told['details']}; see losac deploy log {folder} {told['run']}"
        fail(f"run {told['run']} is {why}", FAILED)


@app.command(epilog=_STATUS_EPILOG)
def status(
    folder: _Folder,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the names of the processes that run")] = False,
) -> None:
    """Print which processes run, which nodes are online, and how the runs stand."""
    _tell(_federation(folder), json=json, quiet=quiet)


@app.command(epilog=_LOG_EPILOG)
def log(
    folder: _Folder,
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run's id.", show_default="the last")
    ] = None,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the last line")] = False,
) -> None:
    """Print what the server of a run wrote."""
    federation = _federation(folder)
    if run_id is None and not (runs := federation.runs()):
        raise ValueError(f"{folder} has no run yet; submit one with: losac deploy run {folder} APP")
    chosen = run_id or max(runs, key=lambda each: each["pending-at"])["run-id"]
    text = federation.log(chosen)
    if json:
        print_json({"run": chosen, "log": text})
        return
    typer.echo((text.splitlines() or [""])[-1] if quiet else text)


@app.command(epilog=_DOWN_EPILOG)
def down(
    folder: _Folder,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the names of what was stopped")] = False,
) -> None:
    """Stop all processes of a federation; its keys, states and results stay."""
    ran = _federation(folder).stop()
    if json:
        print_json({"stopped": ran})
    elif quiet:
        for name in ran:
            typer.echo(name)
    else:
        typer.echo(f"stopped: {', '.join(ran) or 'nothing ran'}")


@app.command(epilog=_DEMO_EPILOG)
def demo(
    folder: Annotated[Path | None, typer.Argument(help="New or empty folder.", show_default="a temporary one")] = None,
    data: Annotated[str, option(PROBLEM, "mnist, or the embedded digits; auto takes mnist where it is.")] = "auto",
    rounds: Annotated[int, option(SIMULATION, "Rounds to run.", min=4)] = 12,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the folder")] = False,
) -> None:
    """Train LoSAC between four nodes while a node, the SuperLink and the server are killed, and check the end."""
    from losac.deploy.demo import SETTINGS, demo

    where = Path(tempfile.mkdtemp(prefix="losac-federation-")) if folder is None else folder.resolve()
    if data == "auto":
        data = "mnist" if _is_here("mnist") else "digits"
    elif data not in SETTINGS:
        raise ValueError(f"--data {data!r} must be auto or one of {', '.join(SETTINGS)}")
    outcome = demo(where, data, rounds, (lambda line: None) if json or quiet else say)
    if json:
        print_json(outcome._asdict() | {"folder": str(where)})
        return
    if quiet:
        typer.echo(str(where))
        return
    typer.echo(
        f"accuracy {outcome.accuracy:.4f}, the simulator's with the same clients {outcome.simulated:.4f}\n"
        f"largest difference of the models {outcome.difference:.1e} of the largest parameter\n"
        f"the server's sum and what the clients hold differ by {outcome.invariant:.1e}\n"
        f"{outcome.seconds_per_round:.1f} s per round; everything is in {where}"
    )


@app.command(epilog=_KEYS_EPILOG)
def keys(
    folder: Annotated[Path, typer.Argument(help="Folder for the keys.")],
    host: Annotated[list[str], option(_FEDERATION, "Name or IP address of the server; repeatable.")],
    nodes: Annotated[int, option(_FEDERATION, "Clients that need a key.", min=1)],
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the paths of the files")] = False,
) -> None:
    """Make certificates for a server and a key for every client, for a federation of several machines."""
    from losac.deploy.certificates import certificate_authority, node_key, server_certificate
    from losac.deploy.folder import node_name

    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty; give another folder, nothing is overwritten")
    authority = certificate_authority(folder)
    files = [*authority, *server_certificate(folder, host, authority)]
    for number in range(nodes):
        files += node_key(folder, node_name(number))
    if json:
        print_json({"files": [str(path) for path in files]})
        return
    print_paths(files, hint=False)
    if not quiet:
        say("Keep every .key and node-N private: a node needs its own and ca.crt only.")


def _is_here(data: str) -> bool:
    """Whether a real data set lies on this machine."""
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


def _tell(federation: LocalFederation, *, json: bool, quiet: bool) -> None:
    """Print the state of a federation."""
    processes = federation.processes()
    alive = processes["superlink"] is not None
    online = federation.online() if alive else {}
    runs = federation.runs() if alive else []
    if json:
        told = {"folder": str(federation.folder.root), "address": federation.address, "processes": processes}
        print_json({**told, "online": online, "runs": runs})
        return
    if quiet:
        for name in (name for name, pid in processes.items() if pid is not None):
            typer.echo(name)
        return
    from rich import box
    from rich.table import Table

    table = Table("process", "pid", "state", box=box.SIMPLE_HEAD)
    for name, pid in processes.items():
        state = "[red]does not run[/red]" if pid is None else "runs"
        if name in online and pid is not None:
            state = "[green]online[/green]" if online[name] else "[yellow]offline[/yellow]"
        table.add_row(name, "" if pid is None else str(pid), state)
    print_table(table)
    if runs:
        table = Table("run", "app", "state", "seconds", box=box.SIMPLE_HEAD)
        for each in runs:
            table.add_row(each["run-id"], each["fab-name"], each["status"], f"{float(each['elapsed']):.0f}")
        print_table(table)
    if alive:
        typer.echo(f"SuperLink: {federation.address}, logs: {federation.folder.logs}")
