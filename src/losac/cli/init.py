"""``losac init``: an experiment's file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.errors import fail, one_line_errors, say
from losac.cli.experiment import Experiment

if TYPE_CHECKING:
    from losac.report.profile import Parameter

EPILOG = """Examples:

losac init experiment.toml

losac init mnist.toml --data mnist --algorithm scaffold"""

_HEAD = """\
# An experiment of losac. Run it:     losac run {path} --out runs/first
# Look at it:                         losac report runs/first
# Every field is also an option, which wins over the file:  losac run {path} --rounds 50
# A line that begins with # keeps its default.
"""


def init(
    path: Annotated[Path, typer.Argument(help="The file to write.")] = Path("experiment.toml"),
    data: Annotated[str, typer.Option(help="Data set; see losac data list.")] = "digits",
    algorithm: Annotated[str, typer.Option(help="Algorithm; see losac algorithms.")] = "losac",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the path only.")] = False,
) -> None:
    """Write a commented experiment that runs as it is."""
    with one_line_errors():
        if path.exists() and not overwrite:
            fail(f"{path} is there already; give another name, or --overwrite", 2)
        text = experiment_text(path, data, algorithm)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        typer.echo(str(path))
        if not quiet:
            say(f"Run it with: losac run {path} --out runs/{path.stem}")


def experiment_text(path: Path, data: str, algorithm: str) -> str:
    """Return the file: every field with its meaning, set where the data set or the method has a value for it."""
    from losac._settings import nearest
    from losac.cli.sections import PROBLEM, SIMULATION, field_names, help_of
    from losac.data import datasets

    if data not in datasets():
        raise ValueError(
            f"unknown data set {data!r}{nearest(data, list(datasets()))}; known are {', '.join(datasets())}"
        )
    experiment = Experiment(data=data)
    (method,) = experiment.build_algorithms([algorithm])
    own = {"seed": 0, "target": experiment.defaults.target, "model": experiment.defaults.model}
    lines = [_HEAD.format(path=path)]
    for section in (PROBLEM, SIMULATION):
        lines.append(f"\n[{section}]")
        for name in field_names(section):
            value = own[name] if name in own else _resolved(experiment, name)
            lines.append(_field(name, value, help_of(name)))
        if section == PROBLEM:
            lines += ["\n[algorithm]", f'name = "{method.label}"  # see losac algorithms {method.label}']
            lines += [_setting(p, method.settings()) for p in _parameters(method.label)]
    return "\n".join(lines) + "\n"


def _parameters(label: str) -> list[Parameter]:
    from losac.report.profile import describe

    return [p for p in describe(label).parameters if p.name != "uploads"]


def _resolved(experiment: Experiment, name: str) -> Any:
    return experiment.resolved(name) if hasattr(experiment.defaults, name) else getattr(experiment, name)


def _setting(parameter: Parameter, settings: dict[str, Any]) -> str:
    from losac.cli.algorithms import plain_text
    from losac.cli.sections import ALGORITHM, field_names, help_of

    words = help_of(parameter.name) if parameter.name in field_names(ALGORITHM) else plain_text(parameter.meaning)
    return _field(parameter.name, settings[parameter.name], words)


def _field(name: str, value: Any, words: str) -> str:
    import tomli_w

    words = f"  # {' '.join(words.split())}" if words else ""
    if value is None:
        return f"# {name} = …{words}"
    return tomli_w.dumps({name: value}).strip() + words
