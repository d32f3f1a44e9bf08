"""The problem that the options name: data, model, metrics, regulariser, and the sampler of clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from losac import metrics, prox
from losac._checks import nearest, shown
from losac._own import call_own, is_own, load_own, taken
from losac.data import FederatedData, load, read
from losac.experiment.settings import parse_settings
from losac.experiment.words import words
from losac.task import Task

if TYPE_CHECKING:
    from losac.experiment.options import ProblemOptions

_OF_FILES = ("label", "client", "features", "test")
_OF_SETS = ("data_dir", "data_options")
"""Options that say how a file is read."""
METRICS = ("auc", "balanced_accuracy", "brier", "log_loss", "macro_f1")
"""The scores of losac.metrics that a name is enough for."""


def load_data(options: ProblemOptions, seed: int) -> FederatedData:
    """Return the clients' data: a data set by name, a file or folder, or what a user's function returns."""
    if is_own(options.data):
        _refuse(options, (*_OF_FILES, "data_options"), "is a function of yours")
        return _of_function(options, seed)
    if options.is_of_user:
        return _of_file(options, seed)
    _refuse(options, _OF_FILES, "is not a file of yours")
    partition = _partition(options.resolved("partition"))
    clients = options.clients if partition == "group" else options.resolved("clients")
    own = parse_settings(options.data_options or [], "--data-options")
    for name in ("seed", "clients", "partition", "data_dir", "download"):
        if name in own:
            raise ValueError(f"--data-options {name}={own[name]} is no option of a data set; leave it out")
    return load(options.data, clients, partition, seed=seed, data_dir=options.data_dir, **own)


def build_task(options: ProblemOptions, data: FederatedData) -> Task:
    """Return the task of the model on the data, with the metrics and the regulariser that the options name."""
    from losac.experiment.models import model_on, wrapped

    model, make = model_on(options.model_name, data)
    model = wrapped(model, data, options.augment, options.precision)
    regularizer = None if options.regularizer is None else _regularizer(options.regularizer)
    return make(
        model,
        data,
        metrics={_name(text): _metric(text) for text in options.metrics or ()},
        reduction=options.reduction,
        weights=options.weights,
        regularizer=regularizer,
        weight_decay=options.weight_decay,
    )


def load_sampler(text: str, clients: int, sampled: int) -> Callable[..., Any]:
    """Return a user's sampler; a class is made with ``clients`` and ``sampled``, if it names them."""
    found = load_own(text)
    return call_own(text, found, {"clients": clients, "sampled": sampled}) if isinstance(found, type) else found


def _of_function(options: ProblemOptions, seed: int) -> FederatedData:
    found = load_own(options.data)
    if callable(found):
        given = {"clients": options.clients, "partition": _partition(options.partition), "data_dir": options.data_dir}
        offered = {name: value for name, value in given.items() if value is not None}
        offered["seed"] = seed
        unwanted = set(offered) - {"seed", *taken(options.data, found, offered)}
        for name in sorted(unwanted):
            raise ValueError(f"{name}={shown(offered[name])}, but {options.data} takes no {name!r}; leave it out")
        found = call_own(options.data, found, offered)
    if not isinstance(found, FederatedData):
        raise ValueError(
            f"{options.data} must be a losac.FederatedData, or a function that returns one, not {type(found).__name__}"
        )
    return found


def _of_file(options: ProblemOptions, seed: int) -> FederatedData:
    _refuse(options, _OF_SETS, "is a file of yours")
    held = {} if options.partition is None else {"partition": _partition(options.partition)}
    return read(
        Path(options.data),
        target=options.label,
        client=options.client,
        clients=options.clients,
        features=options.features,
        test=_share_or_file(options.test),
        seed=seed,
        **held,
    )


def _share_or_file(text: str | None) -> float | Path | None:
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return Path(text)


def _partition(text: str | None) -> Any:
    """Return a partition as ``load`` takes it: a text, or a user's function."""
    if text is None or not is_own(text) or text.partition(":")[0] in words()["partitions"]:
        return text
    return load_own(text)


def _refuse(options: ProblemOptions, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if getattr(options, name) is not None:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} {getattr(options, name)}, but {options.data} {why}; leave it out")


def _name(text: str) -> str:
    return text.rpartition(":")[2]


def _metric(text: str) -> Callable[..., Any]:
    if text in METRICS:
        return getattr(metrics, text)
    if not is_own(text):
        raise ValueError(
            f"unknown metric {text!r}{nearest(text, METRICS)}; known are {', '.join(METRICS)}, and your own as "
            "FILE.py:NAME"
        )
    return load_own(text)


def _regularizer(text: str) -> prox.Regularizer:
    name, *numbers = text.split(":")
    known = [word for word in prox.__all__ if word not in ("Regularizer", "zero")]
    if name not in known:
        raise ValueError(f"unknown regularizer {name!r}{nearest(name, known)}; known are {', '.join(known)}")
    try:
        return getattr(prox, name)(*map(float, numbers))
    except (TypeError, ValueError) as error:
        raise ValueError(f"regularizer {text!r} is not NAME:NUMBER, as in losac.prox: {error}") from None
