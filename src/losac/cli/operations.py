"""``losac deploy``: commands for a federation that runs: how it stands, stop, restart, resume, monitoring."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.errors import say
from losac.cli.group import App
from losac.cli.output import Answer, new_table, print_table
from losac.experiment.fields import SIMULATION, Option
from losac.experiment.settings import parse_settings

if TYPE_CHECKING:
    from losac.deploy import LocalFederation

FEDERATION = "Federation"
RUNNING = "the names of the processes that run"
Folder = Annotated[Path, typer.Argument(help="Folder of the federation: its keys, logs, states and results.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, as losac deploy status shows it.")]
Results = Annotated[Path, typer.Argument(help="Folder of a run's results.")]

_STATUS_EPILOG = """Examples:

losac deploy status federation

losac deploy status federation/results/1

losac deploy status federation --json"""
_RESUME_EPILOG = """Examples:

losac deploy resume federation 1234567890

losac deploy resume federation 1234567890 --set rounds=40"""
_CONFIGURE_EPILOG = """Examples:

losac deploy configure federation node-0 --set data-path=/srv/rows.npz

losac deploy configure federation node-0 --remove data-path"""
_METRICS_EPILOG = """Examples:

losac deploy metrics federation

losac deploy metrics results/1 results/2 --port 9500"""

_SERVICES_EPILOG = """Examples:

losac deploy services units --server server.example.org

losac deploy services containers --server server.example.org --kind compose"""


def register(app: App) -> None:
    """Add the commands to ``losac deploy``."""
    app.command(epilog=_STATUS_EPILOG, quiet=RUNNING)(status)
    app.command(epilog="Example: losac deploy stop federation 1234567890", quiet="the run's id")(stop)
    app.command(epilog=_RESUME_EPILOG, quiet="the new run's id")(resume)
    app.command(epilog="Example: losac deploy restart federation node-0", quiet="the name of the process")(restart)
    app.command(epilog=_CONFIGURE_EPILOG, quiet="the file of the settings")(configure)
    app.command(epilog="Example: losac deploy check federation/results/1", quiet="the file of the request")(check)
    app.command(epilog=_METRICS_EPILOG, quiet="nothing")(metrics)
    app.command(epilog=_SERVICES_EPILOG, quiet="the paths of the files")(services)


def status(
    folder: Annotated[Path, typer.Argument(help="Folder of the federation, or of a run's results.")],
) -> Answer:
    """Print how a federation stands: its processes, nodes and runs, with rounds, clients and recent refusals."""
    from losac.federation.status import read_status

    told = read_status(folder)
    if told is None:
        return state(_federation(folder))
    return Answer(told, lambda: _print_status(told), brief=[told.get("state", "")])


def stop(folder: Folder, run_id: RunId) -> Answer:
    """End a run; its checkpoint and results stay, and losac deploy resume continues it."""
    _federation(folder).stop_run(run_id)
    return Answer({"stopped": run_id}, f"run {run_id} is stopped", brief=[run_id])


def resume(
    folder: Folder,
    run_id: RunId,
    set_: Annotated[
        list[str] | None, Option(SIMULATION, "A setting to change, as NAME=VALUE; repeatable.", "--set")
    ] = None,
) -> Answer:
    """Continue a run that was stopped or broke off, from its checkpoint, with the settings it had."""
    given = {name.replace("_", "-"): value for name, value in parse_settings(set_ or [], "--set").items()}
    federation = _federation(folder)
    new = federation.resume(run_id, given)
    out = str(federation.submitted(new).out)
    return Answer({"run": new, "continues": run_id, "out": out}, f"run {new} continues {run_id}\n{out}", brief=[new])


def restart(
    folder: Folder,
    process: Annotated[str, typer.Argument(metavar="PROCESS", help="node-0, node-1, …, superlink or superexec.")],
) -> Answer:
    """Start one process again, whether it runs or not; runs go on."""
    federation = _federation(folder)
    federation.restart(process)
    pid = federation.processes()[process]
    return Answer({"process": process, "pid": pid}, f"{process} runs again, as process {pid}", brief=[process])


def configure(
    folder: Folder,
    node: Annotated[str, typer.Argument(metavar="NODE", help="node-0, node-1, …")],
    set_: Annotated[
        list[str] | None, Option(FEDERATION, "A setting of the node, as NAME=VALUE; repeatable.", "--set")
    ] = None,
    remove: Annotated[list[str] | None, Option(FEDERATION, "A setting to remove; repeatable.", default="none")] = None,
) -> Answer:
    """Print or change a node's own settings, such as the path of its data; the app finds them in node_config."""
    from losac.deploy.folder import node_number
    from losac.deploy.node_settings import change, own_settings

    federation = _federation(folder)
    if node not in federation.names[2:]:
        raise ValueError(f"no node is called {node!r}; there are {', '.join(federation.names[2:])}")
    path = federation.folder.own_settings(node_number(node))
    given = {name.replace("_", "-"): value for name, value in parse_settings(set_ or [], "--set").items()}
    found = change(path, given, remove or []) if given or remove else own_settings(path)
    text = "\n".join(f"{name} = {value}" for name, value in found.items()) or f"{node} has no settings of its own"
    hint = f"They count from the node's next start: losac deploy restart {folder} {node}" if given or remove else ""
    return Answer({"node": node, "file": str(path), "settings": found}, text, brief=[path], hint=hint)


def check(results: Results) -> Answer:
    """Ask the server of a run to compare its sums with what the clients hold; losac deploy status shows the result."""
    from losac.federation.requests import ask_check

    path = ask_check(results)
    text = f"the server compares after its present round; see losac deploy status {results}"
    return Answer({"request": str(path)}, text, brief=[path])


def metrics(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Federations, or folders of results.")],
    port: Annotated[int, Option(FEDERATION, "Port to listen at.", min=1, max=65535)] = 9464,
    host: Annotated[
        str, Option(FEDERATION, "Address to listen at; other than 127.0.0.1, others can read it without a password.")
    ] = "127.0.0.1",
) -> Answer:
    """Serve the state of runs to Prometheus, at /metrics on this machine; Ctrl-C ends it."""
    from losac.deploy.metrics import serve

    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} is not a folder; give that of a federation, or of results")
    server, thread = serve(folders, host, port)
    say(f"losac: metrics are at http://{host}:{port}/metrics (Ctrl-C ends this)")
    try:
        thread.join()
    except KeyboardInterrupt:
        server.shutdown()
    return Answer({"host": host, "port": port}, brief=[])


def services(
    folder: Annotated[Path, typer.Argument(help="Folder for the files.")],
    server: Annotated[str, Option(FEDERATION, "Name or IP address at which clients reach the server.")],
    kind: Annotated[str, Option(FEDERATION, "systemd or compose.")] = "systemd",
    fleet_port: Annotated[int, Option(FEDERATION, "Port for clients.", min=1, max=65535)] = 8000,
    home: Annotated[Path, Option(FEDERATION, "Where units find keys and states.")] = Path("/var/lib/losac"),
    programs: Annotated[
        Path | None, Option(FEDERATION, "Where units find python and losac.", default="as for this command")
    ] = None,
    user: Annotated[str, Option(FEDERATION, "Who units run as.")] = "losac",
) -> Answer:
    """Write systemd units, or a Dockerfile and compose files, for a server and its clients."""
    import sys

    from losac._checks import check_choice
    from losac.deploy.services import Place, write_containers, write_units

    check_choice("--kind", kind, ("systemd", "compose"))
    place = Place(home, programs or Path(sys.executable).parent, server, fleet_port)
    files = write_units(folder, place, user) if kind == "systemd" else write_containers(folder, place)
    hint = "docs/flower.md says what belongs beside them: keys, the pinned apps, who may submit."
    return Answer({"files": [str(path) for path in files]}, paths=files, hint=hint)


def state(federation: LocalFederation) -> Answer:
    """Return the state of a federation."""
    from losac.deploy.submissions import submissions
    from losac.federation.status import read_status

    processes = federation.processes()
    alive = processes["superlink"] is not None
    online = federation.online() if alive else {}
    runs = federation.runs() if alive else []
    told = {"folder": str(federation.folder.root), "address": federation.address, "processes": processes}
    known = submissions(federation.folder.submissions)
    latest = {each.out: run for run, each in known.items() if each.out is not None}  # a resumed run writes on there
    found = {run: read_status(out) for out, run in latest.items()}
    stands = {run: each for run, each in found.items() if each is not None}

    def text() -> None:
        table = new_table("process", "pid", "state")
        for name, pid in processes.items():
            now = "[red]does not run[/red]" if pid is None else "runs"
            if name in online and pid is not None:
                now = "[green]online[/green]" if online[name] else "[yellow]offline[/yellow]"
            table.add_row(name, "" if pid is None else str(pid), now)
        print_table(table)
        if runs:
            table = new_table("run", "app", "state", "seconds", "round", "answered", "invariant", "refused")
            for each in runs:
                about = stands.get(each["run-id"], {})
                seconds = f"{float(each['elapsed']):.0f}"
                table.add_row(each["run-id"], each["fab-name"], each["status"], seconds, *_short(about))
            print_table(table)
        newest = next((each["run-id"] for each in runs if each["run-id"] in stands), None)
        if newest is not None and stands[newest]["refusals"]:
            typer.echo(f"refused lately in run {newest}:")
            _print_refusals(stands[newest])
        if alive:
            typer.echo(f"SuperLink: {federation.address}, logs: {federation.folder.logs}")

    for each in runs:
        each["stands"] = stands.get(each["run-id"])
    running = [name for name, pid in processes.items() if pid is not None]
    return Answer({**told, "online": online, "runs": runs}, text, brief=running)


def _short(told: Mapping[str, Any]) -> list[str]:
    """Return the columns of a run's status: its round, who answered, the invariant, and how much was refused."""
    if "round" not in told:
        return ["", "", "", ""]
    answered = f"{len(told.get('answered', []))} of {len(told['asked'])}" if told.get("asked") else ""
    return [f"{told['round']} of {told['rounds']}", answered, _invariant(told), str(told.get("refused", 0))]


def _invariant(told: Mapping[str, Any]) -> str:
    measured = told.get("invariant")
    if measured is None:
        return "not measured"
    error = measured["relative_error"]
    return f"{'not all answered' if error is None else f'{error:.1e}'} (round {measured['round']})"


def _print_status(told: Mapping[str, Any]) -> None:
    """Print how one run stands."""
    ago = max(time.time() - told["written"], 0)
    round_ = f"round {told['round']} of {told['rounds']}" if "round" in told else "no round yet"
    typer.echo(f"{told['algorithm']}: {told['state']}, {round_}, as of {ago:.0f} s ago")
    if "attempts" in told:
        typer.echo(f"attempts {told['attempts']}, of which void {told['void']}; invariant: {_invariant(told)}")
        typer.echo(", ".join(f"{name} {value:.4g}" for name, value in told["metrics"].items() if value is not None))
        table = new_table("client", "place", "rows", "present", "last answered in round", "losac")
        for name, about in told["members"].items():
            last = "never" if about["answered"] is None else str(about["answered"])
            present = "yes" if about["present"] else "no"
            table.add_row(name, str(about["place"]), str(about["rows"]), present, last, about["losac"])
        print_table(table)
    if told.get("last_void"):
        typer.echo(f"the last attempt does not count: {told['last_void']}")
    typer.echo(f"refused: {told['refused']}")
    _print_refusals(told)


def _print_refusals(told: Mapping[str, Any], most: int = 5) -> None:
    for each in list(told["refusals"])[-most:]:
        times = f" ({each['times']} times)" if each["times"] > 1 else ""
        where = f"round {each['round']}: " if "round" in each else ""
        typer.echo(f"  {each['time']} {where}{each['why']}{times}")


def _federation(folder: Path) -> LocalFederation:
    from losac.deploy import LocalFederation

    return LocalFederation(folder)
