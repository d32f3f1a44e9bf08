"""The options that ``run``, ``compare`` and ``tune`` share, and the data, model, task and algorithms made from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from losac._own import PATTERN, is_own
from losac._seeds import MOST
from losac.experiment.fields import METHOD, PROBLEM, SIMULATION, Option
from losac.experiment.settings import build_algorithms, parse_settings, split_entry
from losac.experiment.words import words

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.data import FederatedData
    from losac.task import Task

BY_DATA = "by data set"
MODELS = (
    "auto", "softmax", "2nn", "logistic", "linear", "cnn", "lenet", "fedavg_cnn", "resnet8", "resnet18", "resnet20",
    "resnet8_batch", "resnet18_batch", "resnet20_batch", "gru", "lstm", "transformer", "causal_transformer",
)  # fmt: skip
MADE = ("quadratic", "lowrank", "logistic", "synthetic")
"""Data sets that are generated from a seed, client by client."""


@dataclass(frozen=True)
class Defaults:
    """Defaults; these are the paper's (N = 100, S = 10, T = 2, M = 5, η = 1e-4)."""

    model: str = "2nn"
    clients: int | None = 100
    clients_per_round: int = 10
    partition: str | None = "sorted"
    step_size: float = 1e-4
    local_steps: int = 2
    blocks: int = 5
    rounds: int = 500
    eval_every: int = 5
    target: float | None = 0.85


_PAPER = Defaults()
_LINEAR = replace(_PAPER, model="logistic", rounds=200)
_NATURAL = replace(_PAPER, clients=None, partition="group", target=None)
_OWN_DATA = Defaults("auto", None, 10, None, 1e-3, target=None, rounds=200)
_MADE = replace(_PAPER, partition="iid", target=None, rounds=200, local_steps=5, eval_every=2)
_KNOWN = {
    "digits": Defaults("softmax", 20, 5, "sorted", 1e-3, 10, 5, 200, 2, 0.9),
    "a9a": replace(_PAPER, model="logistic", rounds=200, target=0.8),
    "w8a": replace(_PAPER, model="logistic", rounds=200, target=0.97),
    "quadratic": replace(_MADE, model="linear", clients=10, clients_per_round=5, blocks=2, step_size=5e-3),
    "lowrank": replace(_MADE, model="linear", step_size=1e-6),
    **{name: replace(_PAPER, target=None) for name in ("fashion_mnist", "emnist")},
    **{name: replace(_PAPER, model="cnn", target=None) for name in ("cifar10", "cifar100")},
    **{
        name: replace(_LINEAR, target=None)
        for name in ("a1a", "australian", "covtype", "ijcnn1", "mushrooms", "phishing", "w1a")
    },
    "femnist": replace(_NATURAL, model="cnn"),
    "shakespeare": replace(_NATURAL, model="gru"),
    "stackoverflow": replace(_NATURAL, model="gru"),
    "synthetic": replace(_MADE, model="softmax", clients=30, step_size=1e-2, local_steps=20),
    "logistic": replace(_MADE, model="softmax", clients=20, clients_per_round=5, step_size=1e-3, target=0.6),
}


def _data_sets() -> tuple[str, ...]:
    from losac.data import datasets

    return tuple(datasets())


FILE = r".*[/.\\].*"
"""How the path of a file or a folder looks; one without a dot or a slash is written ./NAME."""
Data = Annotated[
    str,
    Option(
        PROBLEM,
        "Data set (see losac data list), a file or folder of yours, or your function as FILE.py:NAME.",
        choices=_data_sets,
        pattern=f"^(?:{PATTERN}|{FILE})$",
        complete="data_names",
    ),
]
Model = Annotated[
    str,
    Option(
        PROBLEM,
        f"{', '.join(MODELS)}, or your own as FILE.py:NAME; auto is by data set.",
        choices=lambda: MODELS,
        pattern=f"^{PATTERN}$",
        complete="model_names",
    ),
]
Label = Annotated[str | None, Option(PROBLEM, "Column to predict, of a file of yours.", default="y")]
Client = Annotated[str | None, Option(PROBLEM, "Column with the client of each row; else the rows are shared out.")]
Clients = Annotated[int | None, Option(PROBLEM, "N, the number of clients.", min=1, default=BY_DATA)]
Partition = Annotated[
    str | None,
    Option(
        PROBLEM,
        "iid, sorted, mixture:C, dirichlet:A, shards:K, group, or your own as FILE.py:NAME.",
        default=BY_DATA,
        complete="partition_names",
    ),
]
Reduction = Annotated[
    str,
    Option(PROBLEM, "A client's loss: sum over its rows (the paper) or mean.", choices=lambda: ("sum", "mean")),
]
DataDir = Annotated[Path | None, Option(PROBLEM, "Folder with NAME.npz; else LOSAC_DATA_DIR, the cache or a download.")]
AlgorithmEntry = Annotated[
    str,
    Option(
        METHOD,
        "Algorithm, like losac or scaffold:server_step=3, or your own as FILE.py:NAME.",
        complete="algorithm_names",
    ),
]
Seed = Annotated[int, Option(SIMULATION, "Seed of sampling and initial weights.", min=0, max=MOST)]
Target = Annotated[
    float | None,
    Option(SIMULATION, "Report the first round that reaches this accuracy (or the last metric).", default=BY_DATA),
]


@dataclass(frozen=True)
class ProblemOptions:
    """What is solved; None means the data set's default, here and below."""

    data: Data = "digits"
    model: Model = "auto"
    clients: Clients = None
    partition: Partition = None
    reduction: Reduction = "sum"
    weights: Annotated[
        str,
        Option(
            PROBLEM, "The clients' weights: uniform (the paper) or samples.", choices=lambda: ("uniform", "samples")
        ),
    ] = "uniform"
    data_dir: DataDir = None
    label: Label = None
    client: Client = None
    features: Annotated[
        list[str] | None, Option(PROBLEM, "Input column of a file of yours; repeatable.", default="all others")
    ] = None
    test: Annotated[
        str | None, Option(PROBLEM, "Share of each client's rows to hold out, or another file to test on.")
    ] = None
    data_options: Annotated[
        list[str] | None,
        Option(PROBLEM, "Option of the data set as NAME=VALUE, such as split=letters of emnist; repeatable."),
    ] = None
    metrics: Annotated[
        list[str] | None,
        Option(PROBLEM, "Further metric: one of losac.metrics, or your own as FILE.py:NAME; repeatable."),
    ] = None
    augment: Annotated[
        str | None, Option(PROBLEM, "Change pictures at random in training: flip, crop:PIXELS or flip,crop:4.")
    ] = None
    precision: Annotated[
        str | None,
        Option(PROBLEM, "Compute the model with numbers of 16 bits.", choices=lambda: ("bfloat16", "float16")),
    ] = None
    weight_decay: Annotated[float, Option(PROBLEM, "λ of λ/2‖x‖², added to the mean loss.", min=0)] = 0.0
    regularizer: Annotated[
        str | None, Option(PROBLEM, "Ψ by its name in losac.prox and its numbers, such as l1:0.01 or l2:0.1.")
    ] = None

    @property
    def defaults(self) -> Defaults:
        """Defaults of the data set."""
        return _OWN_DATA if self.is_of_user else _KNOWN.get(self.data, _PAPER)

    @property
    def is_of_user(self) -> bool:
        """Whether the data are the user's own: a file, a folder or a function."""
        return is_own(self.data) or re.fullmatch(FILE, self.data) is not None

    @property
    def model_name(self) -> str:
        """The model, by default that of the data set."""
        return self.defaults.model if self.model == "auto" else self.model

    def resolved(self, name: str) -> Any:
        """Return an option, or the data set's default."""
        given = getattr(self, name)
        return getattr(self.defaults, name) if given is None else given

    def load_data(self, seed: int = 0) -> FederatedData:
        """Return the clients' data, partitioned by a seed."""
        from losac.experiment.problem import load_data

        return load_data(self, seed)

    def build_task(self, data: FederatedData) -> Task:
        """Return the problem: the model on the data."""
        from losac.experiment.problem import build_task

        return build_task(self, data)


@dataclass(frozen=True)
class Method(ProblemOptions):
    """The problem, and the settings of algorithms."""

    step_size: Annotated[
        float | str | None,
        Option(METHOD, "η, the step size, or a schedule such as cosine:0.1:500.", default=BY_DATA),
    ] = None
    local_steps: Annotated[int | None, Option(METHOD, "T, local steps per round.", min=1, default=BY_DATA)] = None
    blocks: Annotated[
        int | None, Option(METHOD, "M, fixed blocks of a client's data, one drawn per step.", min=1, default=BY_DATA)
    ] = None
    batch_size: Annotated[int | None, Option(METHOD, "Shuffled mini-batches instead of blocks.", min=1)] = None
    epochs: Annotated[int | None, Option(METHOD, "Passes over the local data, with --batch-size.", min=1)] = None
    scaling: Annotated[str | None, Option(METHOD, "LoSAC's scaling: paper or exact.", default="paper")] = None
    set_: Annotated[
        list[str] | None, Option(METHOD, "Any further setting of the algorithm, as NAME=VALUE; repeatable.", "--set")
    ] = None

    def build_algorithms(self, entries: list[str], **usual: Any) -> list[Algorithm]:
        """Return the algorithms of entries such as ``scaffold:server_step=3``.

        A ``--set`` or ``--scaling`` applies to those that have the setting, at least one. ``usual`` are settings that
        replace the data set's defaults.
        """
        wide, given = self.chosen()
        return build_algorithms([split_entry(entry) for entry in entries], wide, given, self.usual_settings() | usual)

    def usual_settings(self) -> dict[str, Any]:
        """Return the data set's default settings of algorithms."""
        return {name: getattr(self.defaults, name) for name in ("step_size", "local_steps", "blocks")}

    def chosen(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings by --set and --scaling, and those with their own option."""
        wide = parse_settings(self.set_ or [], "--set")
        if self.scaling is not None:
            wide["scaling"] = self.scaling
        given = {name: getattr(self, name) for name in ("step_size", "local_steps", "blocks", "batch_size", "epochs")}
        return wide, {name: value for name, value in given.items() if value is not None}


F = TypeVar("F", bound=type)
_TYPES = {"bool": bool, "int": int, "float": float, "str": str, "list": str}


def with_options(rows: Iterable[Mapping[str, Any]], section: str = SIMULATION) -> Callable[[F], F]:
    """Add an option for each row of :func:`losac.experiment.generate.option_rows` to a class.

    Its default is None, which leaves the option out, unless the row has a value. A list is text with commas.
    """

    def decorate(kind: F) -> F:
        for row in rows:
            choices, value = tuple(row.get("choices", ())), row.get("value")
            default = ",".join(row["value"]) if row["type"] == "list" else value
            shown = {name: row[name] for name in ("min", "max", "default", "complete") if name in row}
            option = Option(section, row["help"], choices=partial(tuple, choices) if choices else None, **shown)
            of = _TYPES[row["type"]]
            kind.__annotations__[row["name"]] = Annotated[of | None if value is None else of, option]
            setattr(kind, row["name"], default)
        return kind

    return decorate


@dataclass(frozen=True)
@with_options(words().get("options", ()))
class Simulation:
    """How long a simulation is, with how many clients, and how it computes: options of :func:`losac.simulate`.

    The fields of the library's own options that are not here are added, so all of them can be given.
    """

    clients_per_round: Annotated[
        int | None, Option(SIMULATION, "S, clients sampled each round.", min=1, default=BY_DATA)
    ] = None
    rounds: Annotated[int | None, Option(SIMULATION, "Rounds to run.", min=1, default=BY_DATA)] = None
    eval_every: Annotated[int | None, Option(SIMULATION, "Rounds between evaluations.", min=1, default=BY_DATA)] = None
    sampling: Annotated[
        str | None,
        Option(SIMULATION, "How the clients of a round are drawn: uniform, all, or your own as FILE.py:NAME."),
    ] = None
    dtype: Annotated[str, Option(SIMULATION, "float32 or float64.", choices=lambda: ("float32", "float64"))] = "float32"


@dataclass(frozen=True)
class Experiment(Simulation, Method):
    """The options of one simulation, or of several of the same problem."""

    def simulation(self, data: FederatedData) -> dict[str, Any]:
        """Return the arguments of :func:`losac.simulate` that do not depend on the algorithm."""
        from losac.experiment.problem import load_sampler

        said = self._said(data)
        if is_own(self.sampling):
            said["sampling"] = load_sampler(str(self.sampling), data.num_clients, said["clients_per_round"])
        return said

    def describe(self, data: FederatedData) -> dict[str, dict[str, Any]]:
        """Return the configuration but for the algorithm, by the sections of a file."""
        problem = {f.name: getattr(self, f.name) for f in fields(ProblemOptions)}
        problem |= {"partition": self.resolved("partition"), "clients": data.num_clients, "model": self.model_name}
        problem["data_dir"] = None if self.data_dir is None else str(self.data_dir)
        problem["weight_decay"] = self.weight_decay or None
        problem["weights"] = None if self.weights == "uniform" else self.weights
        if self.is_of_user and self.clients is None:
            problem["clients"] = None  # as many as the data say
        return {"problem": problem, "simulation": self._said(data)}

    def _said(self, data: FederatedData) -> dict[str, Any]:
        """Return the options of the simulation that were given or have a default, in plain values."""
        said = {f.name: getattr(self, f.name) for f in fields(Simulation)}
        usual = {name: getattr(self.defaults, name) for name in said if hasattr(self.defaults, name)}
        usual["clients_per_round"] = min(self.defaults.clients_per_round, data.num_clients)
        chosen = {name: usual.get(name) if value is None else value for name, value in said.items()}
        return {name: value for name, value in chosen.items() if value is not None}


_ADDED = {row["name"] for row in words().get("options", ())}
OWN = {"seed", "target", *(f.name for f in fields(Experiment))} - _ADDED
"""The fields that are written out above."""
