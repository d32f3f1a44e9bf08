"""``losac attack``: what an honest-but-curious server learns of its clients' data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.complete import (
    algorithm_names,
    attack_names,
    bare_algorithm_names,
    data_names,
    model_names,
    partition_names,
)
from losac.cli.errors import say
from losac.cli.experiment import Experiment
from losac.cli.group import Commands
from losac.cli.options import METHOD, OUTPUT, PROBLEM, DataDir, Json, option, quiet_option
from losac.cli.output import check_folder, fresh_folder, print_json, print_paths, print_table, save_config, to_json
from losac.cli.seeds import parse_seeds, seeds_option
from losac.cli.settings import find_algorithm

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.attacks import Audit, Data, Leak

_RUN_EPILOG = """Examples:

losac attack run --algorithm dsgd

losac attack run --algorithm losac --model 2nn --local-steps 5 --blocks 1 --samples 4 --unrolled 2 --out leak

losac attack run --algorithm fedavg --clip 0.1 --noise 0.05"""
_ALGEBRA_EPILOG = """Examples:

losac attack algebra

losac attack algebra losac scaffold --blocks 1,4 --local-steps 1,2,5

losac attack algebra --markdown docs/leakage_algebra.md"""
_REPORT_EPILOG = """Examples:

losac attack report --quick

losac attack report --out leakage --jobs 8

A run that was interrupted goes on where it stopped when the same command is given again. The numbers are those of
losac reproduce fig6 leakage privacy."""
_ATTACK, _DEFENCE = "Attack", "Defence"
_NO_ATTACK = "class mean"
_CLEAR, _BETTER = 30.0, 3.0
"""Decibels from which rows are told apart with ease, and by which an attack must beat the class mean to count."""

app = typer.Typer(cls=Commands, help="Measure what a curious server learns of its clients' data.", no_args_is_help=True)


@app.command("run", epilog=_RUN_EPILOG)
def run(
    data: Annotated[
        str, option(PROBLEM, "Data set with labels; see losac data list.", autocompletion=data_names)
    ] = "digits",
    model: Annotated[
        str, option(PROBLEM, "softmax, 2nn, cnn or logistic; auto is by data set.", autocompletion=model_names)
    ] = "auto",
    clients: Annotated[int, option(PROBLEM, "N, the number of clients.", min=1)] = 4,
    samples: Annotated[int, option(PROBLEM, "n_i, the rows of each client; all others are public.", min=1)] = 8,
    partition: Annotated[
        str, option(PROBLEM, "iid, sorted, mixture:C, dirichlet:A, shards:K or group.", autocompletion=partition_names)
    ] = "iid",
    data_dir: DataDir = None,
    algorithm: Annotated[
        str, option(METHOD, "Algorithm, as losac or scaffold:server_step=3.", autocompletion=algorithm_names)
    ] = "losac",
    step_size: Annotated[float | None, option(METHOD, "η, the step size.", show_default="by data set")] = None,
    local_steps: Annotated[
        int | None, option(METHOD, "T, local steps per round.", min=1, show_default="5, or the method's own")
    ] = None,
    blocks: Annotated[
        int | None, option(METHOD, "M, fixed blocks of a client's data.", min=1, show_default="1")
    ] = None,
    scaling: Annotated[str | None, option(METHOD, "LoSAC's scaling: paper or exact.", show_default="paper")] = None,
    set_: Annotated[
        list[str] | None, option(METHOD, "Any further setting, as NAME=VALUE; repeatable.", "--set")
    ] = None,
    clients_per_round: Annotated[
        int | None, option(METHOD, "S, clients sampled each round.", min=1, show_default="all")
    ] = None,
    rounds: Annotated[int, option(_ATTACK, "Rounds that the server watches.", min=1)] = 5,
    victims: Annotated[int, option(_ATTACK, "Clients to attack.", min=1)] = 2,
    attacks: Annotated[
        str,
        option(
            _ATTACK,
            "On the server's best estimates: dlg, dlg-adam, idlg, inverting, paper, rowspace.",
            autocompletion=attack_names,
        ),
    ] = "inverting,rowspace",
    printed: Annotated[
        str,
        option(
            _ATTACK, "The same names, on what the paper's attacker takes for the gradient.", autocompletion=attack_names
        ),
    ] = "paper,inverting",
    unrolled: Annotated[int, option(_ATTACK, "First rounds to differentiate through.", min=0)] = 0,
    restarts: Annotated[int, option(_ATTACK, "Starts of every attack; the best counts.", min=1)] = 1,
    steps: Annotated[int | None, option(_ATTACK, "Steps of every attack.", min=1, show_default="its own")] = None,
    clip: Annotated[
        str | None, option(_DEFENCE, "Largest norm of an upload, or one for each of its parts: 0.1,1.")
    ] = None,
    noise: Annotated[float, option(_DEFENCE, "Noise multiplier at the clients, with --clip.", min=0)] = 0.0,
    delta: Annotated[float, option(_DEFENCE, "δ of the (ε, δ) that is printed.")] = 1e-5,
    seed: Annotated[int, option(_ATTACK, "Of data, weights, draws and starts.", min=0)] = 0,
    out: Annotated[
        Path | None, option(OUTPUT, "Folder for audit.json, config.json and pictures.png.", show_default="no files")
    ] = None,
    overwrite: Annotated[bool, option(OUTPUT, "Replace the results in --out.", "--overwrite")] = False,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the verdict, or the paths of files,")] = False,
) -> None:
    """Run a small federation, attack what its server sees, and compare with the clients' real rows."""
    check_folder(out, overwrite=overwrite)
    experiment = Experiment(
        data=data, model=model, clients=clients, data_dir=data_dir, step_size=step_size, local_steps=local_steps,
        blocks=blocks, scaling=scaling, set_=set_, partition=None if _is_made(data) else partition,
    )  # fmt: skip
    (method,) = experiment.build_algorithms([algorithm], local_steps=5, blocks=1)
    method = _defended(method, clip, noise)
    from losac.attacks import Plan, audit, cut

    plan = Plan(_names(attacks, "--attacks"), _names(printed, "--printed"), unrolled, rounds, 2, restarts, steps)
    if victims > clients:
        raise ValueError(f"--victims {victims} are more than the {clients} clients; give at most {clients}")
    if (method.draw.blocks or 1) > samples:
        raise ValueError(f"--blocks {blocks} are more than the {samples} rows of a client; raise --samples")
    ground = cut(experiment.load_data(seed), samples, seed)
    spent = _epsilon(method, rounds, clients, clients_per_round, delta)
    if not (json or quiet):
        say(f"Attacking {victims} of {clients} clients …")
    found = audit(
        experiment.build_task(ground.clients), method, ground.data, plan, clients=range(victims),
        class_means=ground.class_means, clients_per_round=clients_per_round, seed=seed,
    )  # fmt: skip
    told = {
        "data": data, "model": experiment.defaults.model if model == "auto" else model, "clients": clients,
        "samples": samples, "partition": partition, "algorithm": method.label, "settings": method.settings(),
        "clients_per_round": clients_per_round or clients, "seed": seed, "victims": victims, "plan": plan._asdict(),
    }  # fmt: skip
    result = _record(found) | {"epsilon": spent, "delta": delta if spent is not None else None}
    result["verdict"] = verdict(found)
    files = _save(found, ground.data, result, told, out) if out else []
    if json:
        print_json({"config": told, "result": result, "files": [str(path) for path in files]})
        return
    if not quiet:
        _tell(found, method, spent, delta)
    if not (quiet and files):
        typer.echo(result["verdict"])
    print_paths(files, hint=False)


@app.command("algebra", epilog=_ALGEBRA_EPILOG)
def algebra(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ALGORITHM]...",
            help="Algorithms to count for.",
            show_default="all",
            autocompletion=bare_algorithm_names,
        ),
    ] = None,
    blocks: Annotated[str, option(METHOD, "Values of M, separated by commas.")] = "1,5",
    local_steps: Annotated[str, option(METHOD, "Values of T, separated by commas.")] = "1,5",
    rounds: Annotated[int, option(_ATTACK, "Rounds that the server watches.", min=1)] = 5,
    markdown: Annotated[Path | None, option(OUTPUT, "Page to write.", show_default="no file")] = None,
    json: Json = False,
    quiet: Annotated[
        bool, quiet_option("the names of methods that give a gradient away, or the path of the page,")
    ] = False,
) -> None:
    """Count, from the code of each method, which gradients of a client its messages give away exactly."""
    for name in names or []:
        find_algorithm(name)
    if markdown is not None and not markdown.parent.is_dir():
        raise ValueError(f"--markdown {markdown}: there is no folder {markdown.parent}; make it first")
    from losac.algorithms import ALGORITHMS
    from losac.attacks import what_leaks

    chosen = dict.fromkeys(names or ALGORITHMS)
    counts = {"blocks": _numbers(blocks, "--blocks"), "local_steps": _numbers(local_steps, "--local-steps")}
    leaks = list(what_leaks(chosen, rounds=rounds, **counts))
    if markdown is not None:
        command = [
            "losac attack algebra",
            *(names or []),
            f"--blocks {blocks} --local-steps {local_steps} --rounds {rounds}",
        ]
        markdown.write_text(_page(leaks, rounds, " ".join(command)), encoding="utf-8")
    if json:
        print_json([leak._asdict() for leak in leaks])
        return
    if not quiet:
        _print_leaks(leaks, rounds)
    elif markdown is None:
        for name in dict.fromkeys(leak.algorithm for leak in leaks if leak.exact):
            typer.echo(name)
    print_paths([markdown] if markdown else [], hint=False)


@app.command("report", epilog=_REPORT_EPILOG)
def report(
    quick: Annotated[bool, option(OUTPUT, "Fewer settings, seeds and steps, marked as such.", "--quick")] = False,
    seeds: Annotated[str, seeds_option(_ATTACK)] = "0,1,2",
    out: Annotated[
        Path | None, option(OUTPUT, "Folder for the results.", show_default="leakage, or leakage-quick")
    ] = None,
    workers: Annotated[
        int | None, option(OUTPUT, "Processes to share the work.", "--jobs", min=1, show_default="one per core")
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the path of the page")] = False,
) -> None:
    """Write one page: the paper's attack, the strong ones, and what defences cost and buy."""
    from losac.cli.reproduce import conclude_all
    from losac.reproduce import STUDIES, Options

    options = Options(tuple(parse_seeds(seeds)), quick)
    folder = out or Path("leakage-quick" if quick else "leakage")
    made_by = f"losac attack report --seeds {seeds}{' --quick' if quick else ''}"
    conclude_all(
        [STUDIES[name] for name in ("fig6", "leakage", "privacy")], options, folder, workers, data_dir,
        json=json, quiet=quiet, together=("What the messages give away, and what protects", made_by),
    )  # fmt: skip


def verdict(found: Audit) -> str:
    """Return in one or two sentences what the server learnt."""
    tried = {name: psnr for name, psnr in found.psnr.items() if name != _NO_ATTACK}
    best = max(tried, key=tried.__getitem__)
    control = found.psnr.get(_NO_ATTACK)
    known = f"The server knows {found.exact} of {found.gradients} gradients exactly." if found.gradients else ""
    beside = "" if control is None else f", and the mean of each row's class, without any attack, {control:.1f} dB"
    if tried[best] >= _CLEAR:
        said = f"It can read the clients' rows: {best!r} recovers them at {tried[best]:.1f} dB{beside}."
    elif control is None or tried[best] >= control + _BETTER:
        said = f"It learns something of the rows themselves: {best!r} recovers them at {tried[best]:.1f} dB{beside}."
    else:
        said = (
            f"None of these attacks recovers the rows: the best, {best!r}, reaches {tried[best]:.1f} dB{beside}. That "
            "is no proof that none can."
        )
    return f"{known} {said}".strip()


def _is_made(data: str) -> bool:
    return data in ("quadratic", "lowrank", "logistic")


def _names(text: str, option: str) -> tuple[str, ...]:
    """Return the names of attacks in a list; the error says which there are."""
    from losac._settings import nearest
    from losac.attacks import ATTACKS

    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if name not in ATTACKS:
            raise ValueError(
                f"{option} has no attack {name!r}{nearest(name, list(ATTACKS))}; known are {', '.join(ATTACKS)}"
            )
    return names


def _numbers(text: str, option: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} {text!r} must be whole numbers separated by commas, such as 1,5") from None


def _defended(method: Algorithm, clip: str | None, noise: float) -> Algorithm:
    """Return the method with its uploads clipped and noisy, where that is asked for."""
    if clip is None:
        if noise:
            raise ValueError(f"--noise {noise:g} is in units of --clip, which bounds the uploads; give it too")
        return method
    from losac.algorithms import gaussian

    make: Any = gaussian
    try:
        bounds = tuple(float(part) for part in clip.split(","))
    except ValueError:
        raise ValueError(
            f"--clip {clip!r} must be a number, or one for each part of an upload, such as 0.1,1"
        ) from None
    return method.replace(uploads=(make(clip=bounds if len(bounds) > 1 else bounds[0], noise_multiplier=noise),))


def _epsilon(method: Algorithm, rounds: int, clients: int, sampled: int | None, delta: float) -> float | None:
    """Return ε towards the server; None without noise, or where it cannot be computed, which is said."""
    if not any(getattr(transform, "noise_multiplier", 0) for transform in method.uploads):
        return None
    from losac.privacy import epsilon

    try:
        return epsilon(method, rounds=rounds, clients=clients, clients_per_round=sampled, delta=delta)
    except ImportError as error:
        say(f"warning: {error}")
        return None


def _record(found: Audit) -> dict[str, Any]:
    return {name: value for name, value in found._asdict().items() if name != "pictures"}


def _save(found: Audit, data: Data, result: dict[str, Any], told: dict[str, Any], out: Path) -> list[Path]:
    from losac.attacks.pictures import draw

    folder = fresh_folder(out)
    written, picture = folder / "audit.json", folder / "pictures.png"
    written.write_text(to_json(result) + "\n", encoding="utf-8")
    draw(found.pictures, data).savefig(picture, dpi=150)
    return [written, picture, save_config(told, folder / "config.json")]


def _tell(found: Audit, method: Algorithm, spent: float | None, delta: float) -> None:
    from rich import box
    from rich.table import Table

    title = f"What the server learns from {method.label}"
    table = Table(box=box.SIMPLE, title=title, title_justify="left", show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    exact = f"{found.exact} of {found.gradients}" if found.gradients else "– (the method is not linear)"
    table.add_row("gradients of a client that are known exactly", exact)
    table.add_row("  their largest relative error", _number(found.exact_error))
    table.add_row("error of the gradient at the last model that was sent", "")
    table.add_row("  as the paper's attacker takes it", _number(found.printed_error))
    table.add_row("  the server's best estimate", _number(found.error))
    table.add_row("labels recovered", "–" if found.labels is None else f"{found.labels:.0%}")
    table.add_row("angle between the rows and what is known of their span", f"{found.angle:.2g}°")
    if spent is not None:
        table.add_row(f"ε of differential privacy towards the server, δ = {delta:g}", f"{spent:.3g}")
    table.add_section()
    for name, psnr in found.psnr.items():
        told = "no attack: the mean of each row's class" if name == _NO_ATTACK else f"rows recovered, {name}"
        table.add_row(told, f"{psnr:.1f} dB, {found.recognised[name]:.0%} of rows recognised")
    print_table(table)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1e}"


def _print_leaks(leaks: list[Leak], rounds: int) -> None:
    from rich import box
    from rich.table import Table

    from losac.attacks.what_leaks import HEAD, cells

    table = Table(box=box.SIMPLE_HEAD, title=f"Gradients of one client in {rounds} rounds", title_justify="left")
    for index, word in enumerate(HEAD):
        table.add_column(word, justify="right" if index else "left")
    for leak in leaks:
        table.add_row(leak.algorithm, *cells(leak))
    print_table(table)


def _page(leaks: list[Leak], rounds: int, command: str) -> str:
    """Return a page with the table, and how to read it."""
    from losac.attacks import as_markdown

    return f"""# Which gradients the messages give away

What a client sends is, for most methods, a known part plus a linear combination of the gradients that it computed, with
coefficients that follow from the method alone. All of its uploads together are a linear system, and a gradient whose
unit vector lies in the row space of that system is known to the server *exactly*, whatever the data. The table counts
them for one client that takes part in {rounds} rounds: M is the number of its blocks, T that of its local steps (*own*:
the method has its own number). A gradient is that of some of its rows at one model; one at a model that the server
itself sent is what most attacks ask for. What is *left open* is the mean share of the other gradients, as a standard
deviation, that the system does not determine if gradients of the same rows, one step apart, agree to 98%. FedPAQ
quantises what it sends, so that its gradients are known up to that; TAMUNA sends some coordinates only, for which
there is no attack here. Counted from the code, in half a minute, by

```
{command}
```

{as_markdown(leaks)}
"""
