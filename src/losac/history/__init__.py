"""Runs and their records."""

from losac.history.callbacks import Callback, Moment, Start
from losac.history.history import DivergedError, History
from losac.history.simulate import simulate
from losac.history.sweep import Sweep, sweep

__all__ = ["Callback", "DivergedError", "History", "Moment", "Start", "Sweep", "simulate", "sweep"]
