"""An experiment's file to start from: every field with its meaning and its default."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from losac._own import is_own, load_own, name_of
from losac.experiment.options import Experiment
from losac.experiment.settings import OBJECTS

if TYPE_CHECKING:
    from losac.report.describe import Parameter

_HEAD = """\
# An experiment of losac. Run it:     losac run {path} --out runs/first
# Look at it:                         losac report runs/first
# Every field is also an option, which wins over the file:  losac run {path} --rounds 50
# A line that begins with # keeps its default.
"""


def experiment_text(path: Path, data: str, algorithm: str) -> str:
    """Return the file: every field with its meaning, set if the data set or the method has a value for it."""
    from losac.experiment.schema import PROBLEM, SIMULATION, field_names, help_of
    from losac.report.describe import describe

    experiment = Experiment(data=data)
    _check_data(experiment)
    (method,) = experiment.build_algorithms([algorithm])
    name = name_of(type(method), method.label)
    own = {"seed": 0, "target": experiment.defaults.target, "model": experiment.defaults.model}
    lines = [_HEAD.format(path=path)]
    for section in (PROBLEM, SIMULATION):
        lines.append(f"\n[{section}]")
        for field in field_names(section):
            value = own[field] if field in own else _resolved(experiment, field)
            lines.append(_field(field, value, help_of(field)))
        if section == PROBLEM:
            lines += ["\n[algorithm]", f'name = "{name}"  # see losac algorithms {name}']
            words = [each for each in describe(type(method)).parameters if each.name not in OBJECTS]
            lines += [_setting(each, method.settings()) for each in words]
    return "\n".join(lines) + "\n"


def _check_data(experiment: Experiment) -> None:
    """Refuse data that are not there: a data set without this name, a missing file or function."""
    from losac.data import datasets
    from losac.data.names import look_up

    if is_own(experiment.data):
        load_own(experiment.data)
    elif not experiment.is_of_user:
        look_up(experiment.data, datasets(), "data set")
    elif not Path(experiment.data).exists():
        raise ValueError(f"{experiment.data} is not there; give the path of a file or a folder from the current one")


def _resolved(experiment: Experiment, name: str) -> Any:
    if experiment.is_of_user and name == "clients_per_round":
        return None  # up to ten, of as many as the data have
    return experiment.resolved(name) if hasattr(experiment.defaults, name) else getattr(experiment, name)


def _setting(parameter: Parameter, settings: dict[str, Any]) -> str:
    from losac.experiment.schema import ALGORITHM, field_names, help_of
    from losac.report.markup import plain_text

    words = help_of(parameter.name) if parameter.name in field_names(ALGORITHM) else plain_text(parameter.meaning)
    return _field(parameter.name, settings[parameter.name], words)


def _field(name: str, value: Any, words: str) -> str:
    import tomli_w

    words = f"  # {' '.join(words.split())}" if words else ""
    if value is None:
        return f"# {name} = …{words}"
    return tomli_w.dumps({name: value}).strip() + words
