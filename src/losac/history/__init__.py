"""Runs and their records."""

from losac.history.history import DivergedError, History
from losac.history.simulate import simulate
from losac.history.sweep import Sweep, sweep

__all__ = ["DivergedError", "History", "Sweep", "simulate", "sweep"]
