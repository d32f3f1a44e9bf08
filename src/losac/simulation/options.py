"""The options of a simulation as values: what to run and measure, and how to compute it.

An option is a field here and a keyword, with its help and its check. Everything that simulates takes these values
whole: :func:`losac.simulate`, :func:`losac.sweep`, :func:`losac.tune`, run folders and the command line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self, TypedDict, TypeVar, get_args

import numpy as np

from losac._checks import check_choice, check_count, check_kind, check_text, is_list, is_whole, nearest, shown
from losac._options import about
from losac._seeds import check_seed
from losac.simulation.attackers import Attackers, check_attackers
from losac.simulation.engines.intervals import MOST_ROUNDS
from losac.simulation.placement.mesh import Layout, check_layout
from losac.simulation.sampling import array_of
from losac.simulation.until import Until
from losac.task import Task, check_task

Dtype = Literal["float32", "float64"]
Gradients = Literal["auto", "formed", "factored"]
Matmul = Literal["float32", "tensorfloat32", "bfloat16"]
TableDtype = Literal["float64", "float32", "bfloat16", "float16"]
STORES = ("auto", "device", "memory")


@dataclass(frozen=True, kw_only=True, eq=False)
class RunOptions:
    """What to run, and what to measure; the fields are explained at :func:`losac.simulate`.

    >>> RunOptions(rounds=100, clients_per_round=10).eval_every
    1
    """

    rounds: int = field(metadata=about("Number of rounds."))
    clients_per_round: int | None = field(
        default=None, metadata=about("Clients per round; all by default.", recorded=True)
    )
    seed: int = field(default=0, metadata=about("Decides client sampling, local data and initial weights."))
    eval_every: int = field(default=1, metadata=about("Rounds between evaluations.", recorded=True))
    loss_every: int | None = field(
        default=None, metadata=about("Rounds between training losses.", recorded=True, min=1)
    )
    sampling: Any = field(default="uniform", metadata=about("How the clients of a round are drawn.", recorded=True))
    local_steps: Sequence[int] | None = field(default=None, metadata=about("Each client's local steps.", recorded=True))
    random_steps: str | None = field(
        default=None,
        metadata=about(
            "Least and most local steps, such as 1:10: each client draws a number in each round.", recorded=True
        ),
    )
    until: str | None = field(default=None, metadata=about("Stop once a metric is there, such as accuracy=0.9."))
    attackers: Attackers | None = field(default=None, metadata=about("Clients that lie.", recorded=True))

    def __post_init__(self) -> None:
        _set(self, "attackers", check_attackers(self.attackers))
        _set(self, "seed", check_seed(self.seed))
        if not (is_whole(self.rounds) and self.rounds == 0):  # none if a record is only continued
            check_count("rounds", self.rounds)
        check_count("eval_every", self.eval_every)
        if self.loss_every is not None:
            check_count("loss_every", self.loss_every)
        if self.until is not None:
            Until.parse(self.until)
        if self.random_steps is not None and self.local_steps is not None:
            raise ValueError("local_steps and random_steps both say how many local steps clients take; give one")
        _ = self.steps_range

    @property
    def steps_range(self) -> tuple[int, int] | None:
        """The least and the most local steps that clients draw, if they draw them."""
        text = self.random_steps
        if text is None:
            return None
        least, _, most = check_text("random_steps", text).partition(":")
        if not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most) < 2**31):
            raise ValueError(f"random_steps={text!r} must be LEAST:MOST, two whole numbers such as 1:10")
        return int(least), int(most)


@dataclass(frozen=True, kw_only=True)
class ComputeOptions:
    """How to compute a run; the fields are explained at :func:`losac.simulate`.

    >>> ComputeOptions(dtype="float64").store
    'auto'
    """

    dtype: Dtype = field(default="float32", metadata=about("Precision of all arrays.", recorded=True))
    layout: Layout | None = field(default=None, metadata=about("How clients are laid out on the hardware."))
    gradients: Gradients = field(default="auto", metadata=about("Whether gradients are kept as products."))
    table_dtype: TableDtype | None = field(default=None, metadata=about("Precision of LoSAC's table.", recorded=True))
    matmul: Matmul | None = field(default=None, metadata=about("Precision of matrix products.", recorded=True))
    store: str | Path = field(default="auto", metadata=about("Where clients' states live: a word or a folder."))

    def __post_init__(self) -> None:
        check_layout(self.layout)
        if self.gradients not in get_args(Gradients):
            raise ValueError(f"gradients={self.gradients!r} must be 'auto', 'formed' or 'factored'")
        if self.table_dtype is not None:
            check_choice("table_dtype", self.table_dtype, get_args(TableDtype))
        if str(self.dtype) not in get_args(Dtype):
            raise ValueError(f"dtype={self.dtype!r} must be 'float32' or 'float64'")
        _set(self, "dtype", str(self.dtype))
        if self.matmul is not None:
            check_choice("matmul", self.matmul, get_args(Matmul))
        _ = self.folder

    @property
    def folder(self) -> Path | None:
        """The folder that ``store`` names; None for a word."""
        store = self.store
        if isinstance(store, str) and store in STORES:
            return None
        if isinstance(store, str | Path) and str(store).strip() and Path(store).is_dir():
            return Path(store)
        hint = nearest(store, STORES) if isinstance(store, str) else ""
        raise ValueError(f"store={store!r} must be 'auto', 'device', 'memory' or a folder that exists{hint}")


class SweepRunKeywords(TypedDict, total=False):
    """The fields of :class:`RunOptions` that many runs at once share."""

    rounds: int
    clients_per_round: int | None
    eval_every: int
    loss_every: int | None
    sampling: Any
    local_steps: Sequence[int] | None
    random_steps: str | None
    attackers: Attackers | None


class RunKeywords(SweepRunKeywords, total=False):
    """The fields of :class:`RunOptions` as keywords."""

    seed: int
    until: str | None


class SweepComputeKeywords(TypedDict, total=False):
    """The fields of :class:`ComputeOptions` that many runs at once share."""

    dtype: Dtype
    gradients: Gradients
    table_dtype: TableDtype | None
    matmul: Matmul | None


class ComputeKeywords(SweepComputeKeywords, total=False):
    """The fields of :class:`ComputeOptions` as keywords."""

    layout: Layout | None
    store: str | Path


class SimulateKeywords(RunKeywords, ComputeKeywords, total=False):
    """The options of :func:`losac.simulate` as keywords."""


class SweepKeywords(SweepRunKeywords, SweepComputeKeywords, total=False):
    """The options of :func:`losac.sweep` as keywords."""


@dataclass(frozen=True, eq=False)
class SimulationOptions:
    """The options of runs of one task, checked against it: what engines are made with.

    ``sampled`` is S, the number of clients per round; ``local_steps`` [N] are the clients' own numbers of steps.
    """

    run: RunOptions
    compute: ComputeOptions
    sampled: int
    local_steps: np.ndarray | None = None

    @classmethod
    def of(
        cls, task: Task, run: RunOptions | None = None, compute: ComputeOptions | None = None, **keywords: Any
    ) -> Self:
        """Check options against a task, given as values, as keywords or both."""
        n = check_task(task).data.num_clients
        run, compute = read_options(cls.of, run, compute, keywords)
        sampled = n if run.clients_per_round is None else run.clients_per_round
        if not is_whole(sampled) or not 1 <= sampled <= n:
            whole = "" if is_whole(sampled) else "be a whole number and "
            raise ValueError(
                f"clients_per_round={shown(sampled)} must {whole}lie between 1 and the number of clients, {n}"
            )
        if run.until is not None:
            Until.parse(run.until).check(task)
        own = run.local_steps
        steps = None if own is None else array_of(own) if is_list(own) else np.asarray(own, object)
        if steps is not None and (steps.shape != (n,) or not np.issubdtype(steps.dtype, np.integer) or steps.min() < 1):
            raise ValueError(f"local_steps must hold one whole number of at least 1 for each of the {n} clients")
        return cls(run, compute, int(sampled), steps)

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.run.seed

    @property
    def dtype(self) -> np.dtype:
        """The dtype of all arrays."""
        return np.dtype(self.compute.dtype)

    @property
    def loss_every(self) -> int:
        """The training loss is evaluated in rounds divisible by this."""
        return 1 if self.run.loss_every is None else min(int(self.run.loss_every), MOST_ROUNDS)

    def with_compute(self, **changes: Any) -> Self:
        """Return the options with some compute options replaced."""
        return replace(self, compute=replace(self.compute, **changes))

    def conditions(self) -> dict[str, Any]:
        """Return the options that decide the numbers of a run, for its record; None is left out there."""
        parts = self.run, self.compute
        found = {f.name: getattr(part, f.name) for part in parts for f in fields(part) if f.metadata["recorded"]}
        every = None if self.loss_every == 1 else self.loss_every
        return found | {"clients_per_round": self.sampled, "local_steps": self.local_steps, "loss_every": every}


def read_options(
    function: Callable[..., Any],
    run: RunOptions | None,
    compute: ComputeOptions | None,
    keywords: Mapping[str, Any],
    without: Collection[str] = (),
) -> tuple[RunOptions, ComputeOptions]:
    """Return the options that a function was given as values, as keywords, or both: keywords win.

    Args:
      function: the function with these options, for errors.
      run, compute: the values; None: the defaults.
      keywords: fields of both.
      without: the fields that the function does not take.
    """
    if run is not None:
        check_kind("run", run, RunOptions, "such as losac.simulation.RunOptions(rounds=100)")
    if compute is not None:
        check_kind("compute", compute, ComputeOptions, "such as losac.simulation.ComputeOptions(dtype='float64')")
    for name in without:
        for value, kind in ((run, RunOptions), (compute, ComputeOptions)):
            if value is not None and name in names(kind) and getattr(value, name) != defaults(kind)[name]:
                raise ValueError(
                    f"{function.__name__} takes no {name}, and the options given set it; leave it out of them"
                )
    check_keywords(function, keywords, [*names(RunOptions, without), *names(ComputeOptions, without)])
    mine = {name: keywords[name] for name in names(RunOptions) if name in keywords}
    if run is None and "rounds" not in mine:
        raise TypeError(f"{function.__name__}() missing 1 required keyword-only argument: 'rounds'")
    run = RunOptions(**mine) if run is None else replace(run, **mine)
    how = {name: keywords[name] for name in names(ComputeOptions) if name in keywords}
    return run, replace(ComputeOptions() if compute is None else compute, **how)


def check_keywords(function: Callable[..., Any], keywords: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse a keyword that a function does not have; the error names the nearest that it has."""
    for name in keywords:
        if name not in known:
            hint = nearest(name, [*known, *inspect.signature(function).parameters])
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")


def names(kind: type, without: Collection[str] = ()) -> list[str]:
    """Return the names of the fields of options."""
    return [f.name for f in fields(kind) if f.name not in without]


def defaults(kind: type) -> dict[str, Any]:
    """Return the defaults of the fields of options that have one."""
    return {f.name: f.default for f in fields(kind) if f.default is not MISSING}


F = TypeVar("F", bound=Callable[..., Any])


def takes_options(*kinds: type, without: Collection[str] = ()) -> Callable[[F], F]:
    """Let the signature of a function that reads ``**options`` show them, for ``help`` and editors."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        more = [
            _parameter(f) for kind in kinds for f in fields(kind) if f.name not in {*without, *(p.name for p in own)}
        ]
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return decorate


def _parameter(f: Field[Any]) -> inspect.Parameter:
    default = inspect.Parameter.empty if f.default is MISSING else f.default
    return inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=f.type)


def _set(options: Any, name: str, value: Any) -> None:
    object.__setattr__(options, name, value)
