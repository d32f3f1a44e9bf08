"""``losac bench``: the field's benchmarks by name, and how far our numbers are from the published ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.errors import DIVERGED, INTERRUPTED
from losac.cli.folder import purpose, results_folder
from losac.cli.group import App
from losac.cli.options import Out, Overwrite, Printing, Resume, parse_seeds, seeds_option
from losac.cli.output import NOTHING_SAVED, Answer, new_table, print_table, slug
from losac.cli.progress import progress
from losac.cli.where import RunJob, Where, collect
from losac.experiment.fields import SIMULATION, Option

if TYPE_CHECKING:
    from losac.bench import Benchmark, BenchmarkRow
    from losac.history import History

_LIST_EPILOG = """Examples:

losac bench list

losac bench list --json"""
_RUN_EPILOG = """Examples:

losac bench run fedavg_mnist_2nn --rows "B = 10" --out bench

losac bench run niid_mnist --seeds 0,1,2 --out bench

losac bench run fedprox_synthetic --rounds 20

losac bench run scaffold_emnist --on ray --address auto --out bench"""
_RUNS = "runs"

app = App(help="Run the field's benchmarks, and compare with the published numbers.")


@app.command("list", epilog=_LIST_EPILOG, quiet="the names")
def list_() -> Answer:
    """List the benchmarks: what each measures, and its rows."""
    from losac.bench import names, read_setting

    settings = [read_setting(name) for name in names()]

    def text() -> None:
        table = new_table("name", "what it is", "rows", "published", "from")
        for each in settings:
            cited = sum(row.published is not None for row in each.rows)
            table.add_row(
                f"[bold]{each.name}[/bold] v{each.version}", each.title, f"{len(each.rows)}", f"{cited}", each.paper
            )
        print_table(table)

    data = [
        {"name": each.name, "version": each.version, "title": each.title, "paper": each.paper,
         "differences": each.differences, "rows": [row.name for row in each.rows]}
        for each in settings
    ]  # fmt: skip
    return Answer(data, text, brief=[each.name for each in settings])


@app.command("run", epilog=_RUN_EPILOG, quiet="the paths of the results")
def run(
    name: Annotated[str, typer.Argument(help="Benchmark; see losac bench list.")],
    rows: Annotated[
        str | None, Option(SIMULATION, "Only the rows with this text in their names.", default="all")
    ] = None,
    rounds: Annotated[int | None, Option(SIMULATION, "Fewer rounds than the benchmark has.", min=1)] = None,
    seeds: Annotated[str, seeds_option(SIMULATION)] = "0",
    data_dir: Annotated[
        Path | None, Option(SIMULATION, "Folder with the data; else LOSAC_DATA_DIR or the cache.")
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
    *,
    where: Where,
    printing: Printing,
) -> Answer:
    """Run a benchmark, and print the published numbers beside ours; with --out, --resume continues what was stopped."""
    from losac.bench import read_setting

    setting = read_setting(name)
    chosen = [row for row in setting.rows if rows is None or rows in row.name]
    if not chosen:
        raise ValueError(
            f"no row of {name} has {rows!r} in its name; they are {'; '.join(r.name for r in setting.rows)}"
        )
    if resume and out is None:
        raise ValueError("--resume needs the folder of the runs: --out DIR")
    given = {"data_dir": data_dir, "rounds": rounds}
    found: dict[str, list[History]] = {}
    stopped = False
    wanted, workers = parse_seeds(seeds), where.workers()
    add = "add" if resume else purpose(overwrite=overwrite)
    with results_folder(out, add) as claim:
        if claim is not None and not resume:
            claim.clear()
        pairs = [(row, seed) for row in chosen for seed in wanted]
        plans = (_plan(row, seed, given, None if claim is None else claim.folder / _RUNS) for row, seed in pairs)
        if workers.here:
            try:
                for (row, _), plan in zip(pairs, plans):
                    found.setdefault(row.name, []).append(_run(plan, printing.verbose))
            except KeyboardInterrupt:
                stopped = True
        else:
            ended, stopped = collect(plans, len(pairs), workers, claim, shown=printing.verbose)
            for row, seed in pairs:
                found.setdefault(row.name, []).extend(filter(None, [ended.get(_name(row, seed))]))
    return _answer(setting, chosen, found, out, stopped)


def _name(row: BenchmarkRow, seed: int) -> str:
    return f"{row.name}, seed {seed}"


def _plan(row: BenchmarkRow, seed: int, given: Mapping[str, Any], runs: Path | None) -> RunJob:
    """Return the run of a row, with its data."""
    from losac.cli.run import sections
    from losac.experiment.options import Experiment

    said = {**row.problem, **row.simulation, **{k: v for k, v in given.items() if v is not None}}
    experiment = Experiment(**said)
    (method,) = experiment.build_algorithms([row.algorithm])
    data = experiment.load_data()
    options = experiment.simulation(data) | {"seed": seed}
    folder = None if runs is None else runs / f"{slug(row.name)}-seed{seed}"
    told = sections(experiment, data, method, seed, None)
    return RunJob(_name(row, seed), experiment.build_task(data), method, options, told, folder)


def _run(plan: RunJob, shown: bool) -> History:
    """Run it here."""
    import losac

    with progress(1, plan.options["rounds"], shown=shown) as begin:
        kept: dict[str, Any] = {"progress": begin(plan.name), **plan.options}
        try:
            if plan.folder is None:
                return losac.simulate(plan.task, plan.method, **kept)
            return losac.runs.record(plan.task, plan.method, plan.folder, resume=True, experiment=plan.sections, **kept)
        except losac.DivergedError as error:
            return error.history


def _measured(setting: Benchmark, history: History) -> float | None:
    """Return what a run says about its row; None if it never reached the target."""
    if setting.measure == "rounds":
        assert setting.target is not None
        reached = history.rounds_to(setting.metric, setting.target)
        return None if reached is None else float(reached)
    values = history.metric(setting.metric)
    return float(values.max() if setting.measure == "best" else values[-1])


def _answer(
    setting: Benchmark, rows: list[BenchmarkRow], found: Mapping[str, list[History]], out: Path | None, stopped: bool
) -> Answer:
    import numpy as np

    records: list[dict[str, Any]] = []
    for row in rows:
        values = [_measured(setting, history) for history in found.get(row.name, [])]
        reached = [value for value in values if value is not None]
        ours = float(np.mean(reached)) if reached and len(reached) == len(values) else None
        distance = None if ours is None or row.published is None else ours - row.published
        seconds = sum(float(history.seconds[-1]) for history in found.get(row.name, []))
        told = {"row": row.name, "published": row.published, "ours": ours, "distance": distance}
        records.append({**told, "values": values, "seconds": seconds})

    def text() -> None:
        word = f"rounds to {setting.target:g}" if setting.measure == "rounds" else f"{setting.measure} {setting.metric}"
        table = new_table("row", f"published {word}", "ours", "distance", "seeds", "seconds")
        for each in records:
            shown = [_shown(setting, each[key]) for key in ("published", "ours", "distance")]
            table.add_row(str(each["row"]), *shown, f"{len(each['values'])}", f"{each['seconds']:.0f}")
        print_table(table)
        typer.echo(f"{setting.title}, version {setting.version}. {setting.paper}. {setting.differences}")

    diverged = sum(h.diverged is not None for each in found.values() for h in each)
    complaints = [f"losac: {diverged} runs diverged"] if diverged else []
    if stopped:
        complaints.append("losac: interrupted" + (f"; continue with --out {out} --resume" if out else ""))
    data = {"benchmark": setting.name, "version": setting.version, "metric": setting.metric, "target": setting.target,
            "rows": records}  # fmt: skip
    files = [] if out is None else [out / _RUNS]
    code = INTERRUPTED if stopped else DIVERGED if diverged and diverged == sum(map(len, found.values())) else 0
    return Answer(data, text, paths=files, hint="" if out else NOTHING_SAVED, complaints=complaints, code=code)


def _shown(setting: Benchmark, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if setting.measure == "rounds" else f"{100 * value:.1f} %"
