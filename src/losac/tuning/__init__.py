"""The search for good settings, judged on rows that are not trained on."""

from losac.tuning.result import Tuning
from losac.tuning.space import Range, choice, log_range, uniform
from losac.tuning.spaces import default_space
from losac.tuning.steps import curvature, suggest
from losac.tuning.trials import AllDivergedError, Trial
from losac.tuning.tune import tune

__all__ = [
    "AllDivergedError",
    "Range",
    "Trial",
    "Tuning",
    "choice",
    "curvature",
    "default_space",
    "log_range",
    "suggest",
    "tune",
    "uniform",
]
