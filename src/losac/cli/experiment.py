"""What ``run``, ``compare`` and ``tune`` share: the options, and the data, model, task and algorithms made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from annotated_types import Ge

from losac.cli.defaults import Defaults, defaults_for
from losac.cli.settings import build_algorithms, parse_settings, split_entry

if TYPE_CHECKING:
    from losac.algorithms import Algorithm
    from losac.data import FederatedData
    from losac.task import Task

_PROBLEM, _METHOD, _RUN, _OUTPUT = "Problem", "Algorithm", "Simulation", "Output"
MODELS = ("auto", "softmax", "2nn", "cnn", "logistic", "linear")


@dataclass(frozen=True)
class Choices:
    """The values that a field may have, for files and schemas; asked for when they are needed."""

    values: Callable[[], tuple[str, ...]]


def _data_names() -> tuple[str, ...]:
    from losac.data import datasets

    return tuple(datasets())


_DATA_NAMES = Choices(_data_names)
_MODEL_NAMES = Choices(lambda: MODELS)
_REDUCTIONS = Choices(lambda: ("sum", "mean"))
_DTYPES = Choices(lambda: ("float32", "float64"))


def _option(panel: str, help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False)


Seed = Annotated[int, _option(_RUN, "Of sampling and initial weights. Default: 0.")]
Target = Annotated[
    float | None,
    _option(_RUN, "Report the first round that reaches this accuracy (or the last metric). Default: by data set."),
]


@dataclass(frozen=True)
class Experiment:
    """The options; None means the data set's default."""

    data: Annotated[
        str, _DATA_NAMES, _option(_PROBLEM, "Data set; see [bold]losac data list[/bold]. Default: digits.")
    ] = "digits"
    model: Annotated[str, _MODEL_NAMES, _option(_PROBLEM, f"{', '.join(MODELS)}. Default: by data set.")] = "auto"
    clients: Annotated[int | None, Ge(1), _option(_PROBLEM, "N, the number of clients.")] = None
    partition: Annotated[
        str | None, _option(_PROBLEM, "iid, sorted, mixture:C, dirichlet:A, shards:K or group. Default: sorted.")
    ] = None
    reduction: Annotated[
        str,
        _REDUCTIONS,
        _option(_PROBLEM, "A client's loss: sum over its rows (the paper) or mean."),
    ] = "sum"
    data_dir: Annotated[Path | None, _option(_PROBLEM, "Folder with NAME.npz; else LOSAC_DATA_DIR or a download.")] = (
        None
    )
    step_size: Annotated[float | None, _option(_METHOD, "η.")] = None
    local_steps: Annotated[int | None, _option(_METHOD, "T, local steps per round.")] = None
    blocks: Annotated[int | None, _option(_METHOD, "M, fixed blocks of a client's data, one drawn per step.")] = None
    batch_size: Annotated[int | None, _option(_METHOD, "Shuffled mini-batches instead of blocks.")] = None
    epochs: Annotated[int | None, _option(_METHOD, "Passes over the local data, with --batch-size.")] = None
    scaling: Annotated[str | None, _option(_METHOD, "LoSAC's scaling: paper (default) or exact.")] = None
    set_: Annotated[
        list[str] | None, _option(_METHOD, "Any further setting of the algorithm, as NAME=VALUE; repeatable.", "--set")
    ] = None
    clients_per_round: Annotated[int | None, Ge(1), _option(_RUN, "S, clients sampled each round.")] = None
    rounds: Annotated[int | None, Ge(1), _option(_RUN, "Rounds to run.")] = None
    eval_every: Annotated[int | None, Ge(1), _option(_RUN, "Rounds between evaluations.")] = None
    dtype: Annotated[str, _DTYPES, _option(_RUN, "float32 (default) or float64.")] = "float32"
    out: Annotated[Path | None, _option(_OUTPUT, "Folder to save the results in. Default: only print them.")] = None
    overwrite: Annotated[bool, _option(_OUTPUT, "Replace the results in --out.", "--overwrite")] = False
    json: Annotated[bool, _option(_OUTPUT, "Print one JSON object and nothing else.", "--json")] = False
    quiet: Annotated[bool, _option(_OUTPUT, "Print the paths of the results only.", "--quiet", "-q")] = False

    @property
    def defaults(self) -> Defaults:
        """What holds where the user did not say."""
        return defaults_for(self.data)

    def resolved(self, name: str) -> Any:
        """Return an option, or the data set's default."""
        given = getattr(self, name)
        return getattr(self.defaults, name) if given is None else given

    def load_data(self, seed: int = 0) -> FederatedData:
        """Return the clients' data, partitioned by a seed."""
        from losac.data import load

        clients = self.clients if self.resolved("partition") == "group" else self.resolved("clients")
        return load(self.data, clients, self.resolved("partition"), seed=seed, data_dir=self.data_dir)

    def build_task(self, data: FederatedData) -> Task:
        """Return the problem: the model on the data."""
        from losac.cli.models import build_task

        return build_task(self.defaults.model if self.model == "auto" else self.model, data, self.reduction)

    def build_algorithms(self, entries: list[str], **usual: Any) -> list[Algorithm]:
        """Return the algorithms of entries such as ``scaffold:server_step=3``.

        A ``--set`` or ``--scaling`` reaches those of them that have the setting, and at least one must. ``usual`` are
        settings in the place of the data set's defaults.
        """
        wide, given = self._chosen()
        return build_algorithms([split_entry(entry) for entry in entries], wide, given, self.usual_settings() | usual)

    def usual_settings(self) -> dict[str, Any]:
        """Return the data set's default settings of algorithms."""
        return {name: getattr(self.defaults, name) for name in ("step_size", "local_steps", "blocks")}

    def settings_of_all(self) -> dict[str, Any]:
        """Return the settings of algorithms that the user chose by options."""
        wide, given = self._chosen()
        return given | wide

    def _chosen(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings by --set and --scaling, and those with an option of their own."""
        wide = parse_settings(self.set_ or [], "--set")
        if self.scaling is not None:
            wide["scaling"] = self.scaling
        given = {n: getattr(self, n) for n in ("step_size", "local_steps", "blocks", "batch_size", "epochs")}
        return wide, {name: value for name, value in given.items() if value is not None}

    def simulation(self, data: FederatedData) -> dict[str, Any]:
        """Return the arguments of :func:`losac.simulate` that do not depend on the algorithm."""
        sampled = self.clients_per_round or min(self.defaults.clients_per_round, data.num_clients)
        names = {name: self.resolved(name) for name in ("rounds", "eval_every")}
        return {"clients_per_round": sampled, "dtype": self.dtype, **names}

    def describe(self, data: FederatedData) -> dict[str, dict[str, Any]]:
        """Return the configuration but for the algorithm, by the sections of a file."""
        problem = {
            "data": self.data,
            "partition": self.resolved("partition"),
            "clients": data.num_clients,
            "model": self.defaults.model if self.model == "auto" else self.model,
            "reduction": self.reduction,
            "data_dir": None if self.data_dir is None else str(self.data_dir),
        }
        return {"problem": problem, "simulation": self.simulation(data)}
