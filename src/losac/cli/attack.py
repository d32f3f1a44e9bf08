"""``losac attack``: what an honest-but-curious server learns about its clients' data."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac._claim import FolderClaim
from losac._files import write_whole
from losac._own import is_own, name_of
from losac._seeds import MOST
from losac.cli import completion
from losac.cli.errors import say
from losac.cli.folder import purpose, results_folder
from losac.cli.group import App, check_value, given_names
from losac.cli.options import OUTPUT, Overwrite, Printing
from losac.cli.output import Answer, check_replaceable, new_table, print_table, save_config, to_json
from losac.experiment.fields import METHOD, PROBLEM, Option
from losac.experiment.file import File, read_file
from losac.experiment.options import MADE, AlgorithmEntry, Method, Partition, with_options
from losac.experiment.settings import find_algorithm
from losac.experiment.words import words

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.attacks import Audit, Data, Leak, Plan

_RUN_EPILOG = """Examples:

losac attack run --algorithm dsgd

losac attack run experiment.toml --clients 4 --rounds 3

losac attack run --algorithm losac --model 2nn --local-steps 5 --blocks 1 --samples 4 --unrolled 2 --out leak

losac attack run --algorithm fedavg --clip 0.1 --noise 0.05"""
_ALGEBRA_EPILOG = """Examples:

losac attack algebra

losac attack algebra losac scaffold --blocks 1,4 --local-steps 1,2,5

losac attack algebra --markdown docs/leakage_algebra.md"""
_ATTACK, _DEFENCE = "Attack", "Defence"
_NO_ATTACK = "class mean"
_USUAL = {"local_steps": 5, "blocks": 1}
_CLEAR, _BETTER = 30.0, 3.0
"""Decibels that make rows easy to recognise, and decibels by which an attack must beat the class mean to count."""

app = App(help="Measure what a curious server learns about its clients' data.")


@dataclass(frozen=True)
class AttackedFederation(Method):
    """The federation that is attacked: the fields of an experiment, with defaults that suit an attack."""

    model: Annotated[
        str, Option(PROBLEM, "softmax, 2nn, cnn or logistic; auto is by data set.", complete="model_names")
    ] = "auto"
    clients: Annotated[int | None, Option(PROBLEM, "N, the number of clients.", min=1)] = 4
    samples: Annotated[int, Option(PROBLEM, "n_i, the rows of each client; all others are public.", min=1)] = 8
    partition: Partition = "iid"
    local_steps: Annotated[
        int | None, Option(METHOD, "T, local steps per round.", default="5, or the method's own", min=1)
    ] = None
    blocks: Annotated[int | None, Option(METHOD, "M, fixed blocks of a client's data.", default="1", min=1)] = None
    clients_per_round: Annotated[int | None, Option(METHOD, "S, clients sampled each round.", default="all", min=1)] = (
        None
    )


@dataclass(frozen=True)
@with_options(words().get("attack", ()), _ATTACK)
class Curious:
    """What the server watches and tries: an option for each field of :class:`losac.attacks.Plan`, and more."""

    victims: Annotated[int, Option(_ATTACK, "Clients to attack.", min=1)] = 2
    seed: Annotated[int, Option(_ATTACK, "Seed of data, weights, draws and starts.", min=0, max=MOST)] = 0


@dataclass(frozen=True)
class Defence:
    """How the clients protect their uploads."""

    clip: Annotated[str | None, Option(_DEFENCE, "Largest norm of an upload, or one for each of its parts: 0.1,1.")] = (
        None
    )
    noise: Annotated[float, Option(_DEFENCE, "Noise multiplier at the clients, with --clip.", min=0)] = 0.0
    delta: Annotated[float, Option(_DEFENCE, "δ of the (ε, δ) that is printed.", min=0, max=1)] = 1e-5


@app.command("run", epilog=_RUN_EPILOG, quiet="the verdict, or the paths of files,")
def run(
    file: Annotated[
        Path | None,
        typer.Argument(
            help="Experiment file, whose problem and algorithm are attacked; options given here win.",
            show_default=False,
        ),
    ] = None,
    *,
    federation: AttackedFederation,
    curious: Curious,
    defence: Defence,
    printing: Printing,
    context: typer.Context,
    algorithm: AlgorithmEntry = "losac",
    out: Annotated[
        Path | None, Option(OUTPUT, "Folder for audit.json, config.json and pictures.png.", default="no files")
    ] = None,
    overwrite: Overwrite = False,
) -> Answer:
    """Run a small federation, attack what its server sees, and compare with the clients' real rows."""
    with results_folder(out, purpose(overwrite=overwrite)) as claim:
        given, said = given_names(context), File() if file is None else read_file(file)
        if said.comparison:
            raise ValueError(f"{file} is of a comparison; give a file of one run")
        federation = said.fill(federation, given)
        problem = _without_idle_defaults(federation, {*given, *said.options})
        if said.algorithm is None or "algorithm" in given:
            (method,) = problem.build_algorithms([algorithm], **_USUAL)
        else:
            method = said.build_algorithm(problem, **_USUAL)
        method = _defended(method, defence)
        from losac.attacks import Plan, audit, cut

        plan = _plan(Plan, curious)
        samples, seed, sampled = federation.samples, curious.seed, federation.clients_per_round
        data = problem.load_data(seed)
        clients = data.num_clients
        if curious.victims > clients:
            raise ValueError(f"--victims {curious.victims} are more than the {clients} clients; give at most {clients}")
        if (method.draw.blocks or 1) > samples:
            raise ValueError(
                f"--blocks {method.draw.blocks} is more than the {samples} rows of each client; raise --samples"
            )
        ground = cut(data, samples, seed)
        spent = _epsilon(method, plan.rounds, clients, sampled, defence.delta)
        task = problem.build_task(ground.clients)
        if printing.verbose:
            say(f"Attacking {curious.victims} of {clients} clients …")
        found = audit(
            task, method, ground.data, plan, clients=range(curious.victims),
            class_means=ground.class_means, clients_per_round=sampled, seed=seed,
        )  # fmt: skip
        config = {
            "data": problem.data, "model": problem.model_name, "clients": clients, "samples": samples,
            "partition": federation.partition, "algorithm": name_of(type(method), method.label),
            "settings": method.settings(),
            "clients_per_round": sampled or clients, "seed": seed, "victims": curious.victims, "plan": asdict(plan),
        }  # fmt: skip
        result = {name: value for name, value in found._asdict().items() if name != "pictures"}
        result |= {"epsilon": spent, "delta": defence.delta if spent is not None else None, "verdict": verdict(found)}
        files = [] if claim is None else _save(found, ground.data, result, config, claim)

    def text() -> None:
        _tell(found, method, spent, defence.delta)
        typer.echo(result["verdict"])

    told = {"config": config, "result": result, "files": [str(path) for path in files]}
    return Answer(told, text, brief=files or [result["verdict"]], paths=files)


@app.command(
    "algebra", epilog=_ALGEBRA_EPILOG, quiet="the names of methods that give a gradient away, or the path of the page,"
)
def algebra(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ALGORITHM]...",
            help="Algorithms to count for.",
            show_default="all",
            autocompletion=completion.bare_algorithm_names,
        ),
    ] = None,
    blocks: Annotated[str, Option(METHOD, "Values of M, separated by commas.")] = "1,5",
    local_steps: Annotated[str, Option(METHOD, "Values of T, separated by commas.")] = "1,5",
    rounds: Annotated[int, Option(_ATTACK, "Rounds that the server watches.", min=1)] = 5,
    markdown: Annotated[Path | None, Option(OUTPUT, "Page to write.", default="no file")] = None,
    overwrite: Overwrite = False,
) -> Answer:
    """Count, from the code of each method, which gradients of a client its messages give away exactly."""
    found = {name: find_algorithm(name) for name in names or []}
    if markdown is not None and not markdown.parent.is_dir():
        raise ValueError(f"--markdown {markdown}: there is no folder {markdown.parent}; make it first")
    if markdown is not None:
        check_replaceable(markdown, overwrite)
    from losac.algorithms import ALGORITHMS
    from losac.attacks import what_leaks

    chosen = [kind if is_own(name) else name for name, kind in (found or ALGORITHMS).items()]
    counts = {"blocks": _numbers(blocks, "--blocks"), "local_steps": _numbers(local_steps, "--local-steps")}
    leaks = list(what_leaks(chosen, rounds=rounds, **counts))
    if markdown is not None:
        options = f"--blocks {blocks} --local-steps {local_steps} --rounds {rounds}"
        write_whole(markdown, _page(leaks, rounds, " ".join(["losac attack algebra", *(names or []), options])))
    files = [markdown] if markdown else []
    return Answer(
        [leak._asdict() for leak in leaks],
        lambda: _print_leaks(leaks, rounds),
        brief=files or dict.fromkeys(leak.algorithm for leak in leaks if leak.exact),
        paths=files,
    )


def _without_idle_defaults(federation: AttackedFederation, given: Collection[str]) -> AttackedFederation:
    """Return the federation without this command's defaults of N and the partition, where the data say both."""
    if federation.data in MADE:
        return replace(federation, partition=None)
    if not is_own(federation.data) and federation.client is None:
        return federation
    idle: dict[str, Any] = dict.fromkeys({"partition", "clients"} - set(given))
    return replace(federation, **idle)


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
            "does not prove that no attack can."
        )
    return f"{known} {said}".strip()


def _plan(kind: type[Plan], curious: Curious) -> Plan:
    """Return the plan that the options make; lists are written with commas."""
    said = {field.name: getattr(curious, field.name) for field in fields(kind)}
    lists = {name: _names(said[name], f"--{name}") for name in ("attacks", "printed")}
    return kind(**{**said, **lists})


def _names(text: str, option: str) -> tuple[str, ...]:
    """Return the names of attacks in a list; the error lists those known."""
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
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} {text!r} must be whole numbers separated by commas, such as 1,5") from None
    for number in numbers:
        check_value(number, option)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{option} {text!r} names a number twice; give each once")
    if min(numbers) < 1:
        raise ValueError(f"{option} {text!r} has a number below 1; give whole numbers from 1 on")
    return numbers


def _defended(method: Algorithm, defence: Defence) -> Algorithm:
    """Return the method with its uploads clipped and noisy, if that is asked for."""
    clip, noise = defence.clip, defence.noise
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
    for bound in bounds:
        check_value(bound, "--clip")
    return method.replace(uploads=(make(clip=bounds if len(bounds) > 1 else bounds[0], noise_multiplier=noise),))


def _epsilon(method: Algorithm, rounds: int, clients: int, sampled: int | None, delta: float) -> float | None:
    """Return ε towards the server; None without noise, or with a message if it cannot be computed."""
    if not any(getattr(transform, "noise_multiplier", 0) for transform in method.uploads):
        return None
    from losac.privacy import epsilon

    try:
        return epsilon(method, rounds=rounds, clients=clients, clients_per_round=sampled, delta=delta)
    except ImportError as error:
        say(f"warning: {error}")
        return None


def _save(found: Audit, data: Data, result: dict[str, Any], told: dict[str, Any], claim: FolderClaim) -> list[Path]:
    from losac.attacks.pictures import draw

    names = ("audit.json", "pictures.png", "config.json")
    with claim.staged() as folder:
        (folder / "audit.json").write_text(to_json(result) + "\n", encoding="utf-8")
        draw(found.pictures, data).savefig(folder / "pictures.png", dpi=150)
        save_config(told, folder / "config.json")
    claim.clear(keep=names)
    return [claim.folder / name for name in names]


def _tell(found: Audit, method: Algorithm, spent: float | None, delta: float) -> None:
    from rich import box

    table = new_table(title=f"What the server learns from {method.label}", box=box.SIMPLE, show_header=False)
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
    from losac.attacks.what_leaks import HEAD, cells

    table = new_table(title=f"Gradients of one client in {rounds} rounds")
    for index, word in enumerate(HEAD):
        table.add_column(word, justify="right" if index else "left")
    for leak in leaks:
        table.add_row(leak.algorithm, *cells(leak))
    print_table(table)


def _page(leaks: list[Leak], rounds: int, command: str) -> str:
    """Return a page with the table, and how to read it."""
    from losac.attacks import as_markdown

    return f"""# Which gradients the messages give away

For every method, how many of a client's gradients a server can compute exactly from its messages. For readers of
[the page on leakage](leakage.md) who want the details. The table is counted from the code, in half a minute, by
the command below.

For most methods, what a client sends is a known part plus a linear combination of the gradients that it computed, with
coefficients that follow from the method alone. All of its uploads together are a linear system. A gradient is known to
the server *exactly*, for any data, if its unit vector lies in the row space of that system. The table counts these
gradients for one client that takes part in {rounds} rounds. M is the number of its blocks, T the number of its local
steps (*own*: the method has its own number). A gradient is that of some of the client's rows at one model; most attacks
need one at a model that the server itself sent. *Left open* is the mean share of the other gradients, as a standard
deviation, that the system does not determine if gradients of the same rows, one step apart, agree to 98%. FedPAQ,
DIANA, PP-MARINA, DASHA-PP and LoCoDL quantise what they send, so their gradients are known up to quantisation. TAMUNA
and EF21-PP send only some coordinates, and there is no attack for them here.

```
{command}
```

{as_markdown(leaks)}
"""
