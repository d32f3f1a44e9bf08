"""``losac deploy``: a federation of real processes, by Flower."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.errors import fail, one_line_errors, say
from losac.cli.experiment import Experiment
from losac.cli.output import print_paths, to_json, wide_console
from losac.cli.settings import parse_settings

if TYPE_CHECKING:
    from losac.deploy import LocalFederation

FAILED, COMPLETED = 1, "finished:completed"
_SETTINGS = ("step_size", "local_steps", "blocks", "batch_size", "epochs")

app = typer.Typer(help="Run an algorithm between real processes and devices, by Flower.", no_args_is_help=True)
_Folder = Annotated[Path, typer.Argument(help="Folder of the federation: its keys, logs, states and results.")]
_App = Annotated[Path, typer.Argument(help="Folder of the app; see losac deploy init.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@app.command(epilog="Example: losac deploy init myapp --algorithm losac --data digits --clients 4")
def init(
    folder: Annotated[Path, typer.Argument(help="New or empty folder; its name becomes the app's.")],
    algorithm: Annotated[str, typer.Option(help="Algorithm, as losac or fedavg:step_size=1e-4.")] = "losac",
    data: Annotated[str, typer.Option(help="Data set; see losac data list.")] = "digits",
    model: Annotated[str, typer.Option(help="softmax, 2nn, logistic or linear; auto is by data set.")] = "auto",
    partition: Annotated[str | None, typer.Option(help="As for losac run.", show_default="by data set")] = None,
    clients: Annotated[int, typer.Option(help="N, the number of clients.", min=1)] = 4,
    clients_per_round: Annotated[int | None, typer.Option(help="S.", min=1, show_default="half of them")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds of a run.", min=1)] = 20,
    json: _Json = False,
) -> None:
    """Write a Flower app to start from."""
    with one_line_errors():
        from losac.data import datasets
        from losac.data.names import look_up
        from losac.deploy.app import write_app

        look_up(data, datasets(), "data set")
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
            typer.echo(to_json({"files": [str(path) for path in files]}))
            return
        print_paths(files, hint=False)
        say(f"Next: losac deploy up federation {folder}")


@app.command(epilog="Example: losac deploy up federation myapp --nodes 4")
def up(
    folder: _Folder,
    application: Annotated[Path | None, typer.Argument(metavar="[APP]", help="App that says how many nodes.")] = None,
    nodes: Annotated[
        int | None, typer.Option(help="SuperNodes.", min=1, show_default="as before, or the app's")
    ] = None,
    port: Annotated[int | None, typer.Option(help="The SuperLink's.", show_default="a free one")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that processes have to get ready.")] = 60,
    json: _Json = False,
) -> None:
    """Start a SuperLink with TLS, a SuperExec and SuperNodes, and return when all are online."""
    with one_line_errors():
        if nodes is None and application is not None:
            nodes = _app_config(application).get("clients")
        federation = _federation(folder, nodes, port=port, detached=True, timeout=timeout)
        if not json:
            say(f"Starting {federation.nodes} nodes …")
        federation.start()
        _tell(federation, json=json)


@app.command(epilog="Example: losac deploy run federation myapp --wait --set rounds=5")
def run(
    folder: _Folder,
    application: Annotated[Path, typer.Argument(metavar="APP", help="Folder of the app.")],
    wait: Annotated[bool, typer.Option("--wait", help="Return when the run is finished.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.")] = 3600,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the app, as NAME=VALUE; repeatable.")
    ] = None,
    json: _Json = False,
) -> None:
    """Submit a run of an app to a federation that is up; its results are put into a folder of their own."""
    with one_line_errors():
        federation = _federation(folder)
        given = {name.replace("_", "-"): value for name, value in parse_settings(set_ or [], "--set").items()}
        ours = {"clients": federation.nodes, "out": str(federation.folder.fresh_results())}
        known = _app_config(application)
        config = {name: value for name, value in ours.items() if name in known} | given
        told: dict[str, Any] = {"run": federation.submit(application, config), "out": config.get("out")}
        if not json:
            typer.echo(f"run {told['run']}\n{told['out']}")
        if wait:
            answer = federation.wait(told["run"], timeout)
            told |= {"status": answer["status"], "details": answer["status-details"]}
        if json:
            typer.echo(to_json(told))
        elif wait:
            typer.echo(told["status"])
        if wait and told["status"] != COMPLETED:
            why = f"{told['status']}: {told['details']}; see losac deploy log {folder} {told['run']}"
            fail(f"run {told['run']} is {why}", FAILED)


@app.command()
def status(folder: _Folder, json: _Json = False) -> None:
    """Print which processes run, which nodes are online, and how the runs stand."""
    with one_line_errors():
        _tell(_federation(folder), json=json)


@app.command(epilog="Example: losac deploy log federation")
def log(
    folder: _Folder,
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="The run's id.", show_default="the last")
    ] = None,
) -> None:
    """Print what the server of a run wrote."""
    with one_line_errors():
        federation = _federation(folder)
        if run_id is None and not (runs := federation.runs()):
            raise ValueError(f"{folder} has no run yet; submit one with: losac deploy run {folder} APP")
        typer.echo(federation.log(run_id or max(runs, key=lambda each: each["pending-at"])["run-id"]))


@app.command()
def down(folder: _Folder, json: _Json = False) -> None:
    """Stop all processes of a federation; its keys, states and results stay."""
    with one_line_errors():
        ran = _federation(folder).stop()
        typer.echo(to_json({"stopped": ran}) if json else f"stopped: {', '.join(ran) or 'nothing ran'}")


@app.command(epilog="Example: losac deploy demo --data digits")
def demo(
    folder: Annotated[Path | None, typer.Argument(help="New or empty folder.", show_default="a temporary one")] = None,
    data: Annotated[str, typer.Option(help="mnist, or the embedded digits; auto takes mnist where it is.")] = "auto",
    rounds: Annotated[int, typer.Option(help="Rounds.", min=4)] = 12,
    json: _Json = False,
) -> None:
    """Train LoSAC between four nodes while a node, the SuperLink and the server are killed, and check the end."""
    with one_line_errors():
        _federation(Path("federation"))  # says what to install where Flower is missing
        from losac.deploy.demo import SETTINGS, demo

        where = Path(tempfile.mkdtemp(prefix="losac-federation-")) if folder is None else folder.resolve()
        if data == "auto":
            data = "mnist" if _is_here("mnist") else "digits"
        elif data not in SETTINGS:
            raise ValueError(f"data={data!r} must be one of {', '.join(SETTINGS)}")
        outcome = demo(where, data, rounds, (lambda line: None) if json else say)
        if json:
            typer.echo(to_json(outcome._asdict() | {"folder": str(where)}))
            return
        typer.echo(
            f"accuracy {outcome.accuracy:.4f}, the simulator's with the same clients {outcome.simulated:.4f}\n"
            f"largest difference of the models {outcome.difference:.1e} of the largest parameter\n"
            f"the server's sum and what the clients hold differ by {outcome.invariant:.1e}\n"
            f"{outcome.seconds_per_round:.1f} s per round; everything is in {where}"
        )


@app.command(epilog="Example: losac deploy keys keys --host server.example.org --nodes 4")
def keys(
    folder: Annotated[Path, typer.Argument(help="Folder for the keys.")],
    host: Annotated[list[str], typer.Option(help="Name or IP address of the server; repeatable.")],
    nodes: Annotated[int, typer.Option(help="Clients that need a key.", min=1)],
) -> None:
    """Make certificates for a server and a key for every client, for a federation of several machines."""
    with one_line_errors():
        from losac.deploy.certificates import certificate_authority, node_key, server_certificate
        from losac.deploy.folder import node_name

        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty; give another folder, nothing is overwritten")
        authority = certificate_authority(folder)
        files = [*authority, *server_certificate(folder, host, authority)]
        for number in range(nodes):
            files += node_key(folder, node_name(number))
        print_paths(files, hint=False)


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


def _tell(federation: LocalFederation, *, json: bool) -> None:
    """Print the state of a federation."""
    processes = federation.processes()
    alive = processes["superlink"] is not None
    online = federation.online() if alive else {}
    runs = federation.runs() if alive else []
    if json:
        told = {"folder": str(federation.folder.root), "address": federation.address, "processes": processes}
        typer.echo(to_json({**told, "online": online, "runs": runs}))
        return
    from rich import box
    from rich.table import Table

    table = Table("process", "pid", "state", box=box.SIMPLE_HEAD)
    for name, pid in processes.items():
        state = "[red]does not run[/red]" if pid is None else "runs"
        if name in online and pid is not None:
            state = "[green]online[/green]" if online[name] else "[yellow]offline[/yellow]"
        table.add_row(name, "" if pid is None else str(pid), state)
    wide_console().print(table)
    if runs:
        table = Table("run", "app", "state", "seconds", box=box.SIMPLE_HEAD)
        for each in runs:
            table.add_row(each["run-id"], each["fab-name"], each["status"], f"{float(each['elapsed']):.0f}")
        wide_console().print(table)
    if alive:
        typer.echo(f"SuperLink: {federation.address}, logs: {federation.folder.logs}")
