"""The search for good settings, judged on rows not used for training."""

from losac.tuning.options import SearchOptions
from losac.tuning.result import Tuning
from losac.tuning.space import Range, choice, default_space, log_range, uniform
from losac.tuning.steps import curvature, suggest
from losac.tuning.trials import AllDivergedError, Trial
from losac.tuning.tune import tune

__all__ = [
    "AllDivergedError",
    "Range",
    "SearchOptions",
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
