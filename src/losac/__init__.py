"""losac: federated optimisation, compared honestly.

The names below are loaded when first used, so ``import losac`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = (
    "adapters",
    "algorithms",
    "attacks",
    "data",
    "evaluation",
    "jobs",
    "losses",
    "metrics",
    "models",
    "privacy",
    "prox",
    "report",
    "runs",
    "schedules",
    "simulation",
    "sklearn",
    "testing",
    "torch",
    "tracking",
    "tuning",
)
_NAMES = {
    "FederatedData": "losac.data",
    "Task": "losac.task",
    "classification": "losac.task",
    "regression": "losac.task",
    "multilabel": "losac.task",
    "simulate": "losac.simulation",
    "adapt": "losac.simulation",
    "estimate": "losac.simulation",
    "sweep": "losac.simulation",
    "History": "losac.history",
    "Sweep": "losac.simulation",
    "Callback": "losac.history",
    "Live": "losac.history",
    "DivergedError": "losac.history",
    "evaluate": "losac.evaluation",
    "hold_out": "losac.evaluation",
    "personalize": "losac.evaluation",
    "PerClient": "losac.evaluation",
    "Personalized": "losac.evaluation",
    "tune": "losac.tuning",
    "Tuning": "losac.tuning",
    "distributed": "losac._devices",
}

__all__ = ["__version__", *_MODULES, *_NAMES]

if TYPE_CHECKING:
    from losac import adapters as adapters
    from losac import algorithms as algorithms
    from losac import attacks as attacks
    from losac import data as data
    from losac import evaluation as evaluation
    from losac import jobs as jobs
    from losac import losses as losses
    from losac import metrics as metrics
    from losac import models as models
    from losac import privacy as privacy
    from losac import prox as prox
    from losac import report as report
    from losac import runs as runs
    from losac import schedules as schedules
    from losac import simulation as simulation
    from losac import sklearn as sklearn
    from losac import testing as testing
    from losac import torch as torch
    from losac import tracking as tracking
    from losac import tuning as tuning
    from losac._devices import distributed as distributed
    from losac.data import FederatedData as FederatedData
    from losac.evaluation import PerClient as PerClient
    from losac.evaluation import Personalized as Personalized
    from losac.evaluation.evaluate import evaluate as evaluate
    from losac.evaluation.personalize import personalize as personalize
    from losac.evaluation.rows import hold_out as hold_out
    from losac.history import Callback as Callback
    from losac.history import DivergedError as DivergedError
    from losac.history import History as History
    from losac.history import Live as Live
    from losac.simulation.adapt import adapt as adapt
    from losac.simulation.estimate import estimate as estimate
    from losac.simulation.simulate import simulate as simulate
    from losac.simulation.sweep import Sweep as Sweep
    from losac.simulation.sweep import sweep as sweep
    from losac.task import Task as Task
    from losac.task import classification as classification
    from losac.task import multilabel as multilabel
    from losac.task import regression as regression
    from losac.tuning.result import Tuning as Tuning
    from losac.tuning.tune import tune as tune


def __getattr__(name: str) -> Any:
    if name not in _MODULES and name not in _NAMES:
        raise AttributeError(f"module 'losac' has no attribute {name!r}")
    if name not in ("data", "FederatedData"):
        from losac._devices import prepare_jax

        prepare_jax()
    return import_module(f"losac.{name}") if name in _MODULES else getattr(import_module(_NAMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
