"""The options of :func:`losac.torch.simulate` besides what to run: the module's problem, and how to compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from losac._checks import check_flag
from losac._options import about
from losac.prox import Regularizer
from losac.simulation.options import Dtype, RunKeywords
from losac.task import Examples, Reduction, Weights

Function = Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class TorchOptions:
    """How to compute with PyTorch; the fields are explained at :func:`losac.torch.simulate`.

    >>> TorchOptions(dtype="float64").vectorize is None
    True
    """

    dtype: Dtype | None = field(default=None, metadata=about("Precision; by default the module's."))
    device: Any = field(default=None, metadata=about("Device; by default the module's."))
    vectorize: bool | None = field(default=None, metadata=about("Whether the clients of a round work at once."))

    def __post_init__(self) -> None:
        if self.dtype not in (None, *get_args(Dtype)):
            raise ValueError(f"dtype={self.dtype!r} must be 'float32' or 'float64'")
        if self.vectorize is not None:
            check_flag("vectorize", self.vectorize)


@dataclass(frozen=True, kw_only=True, eq=False)
class TorchProblem:
    """The problem around a module: the fields are those of :class:`losac.Task`, with metrics of outputs."""

    metrics: Mapping[str, Function] | None = None
    reduction: Reduction = "sum"
    regularizer: Regularizer | None = None
    weights: Weights = "uniform"
    test: Examples | str | None = "data"


class TorchKeywords(RunKeywords, total=False):
    """The options of :func:`losac.torch.simulate` as keywords."""

    dtype: Dtype | None
    device: Any
    vectorize: bool | None
    metrics: Mapping[str, Function] | None
    reduction: Reduction
    regularizer: Regularizer | None
    weights: Weights
    test: Examples | str | None
