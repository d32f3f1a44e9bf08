"""Runs and their records."""

from losac.history.history import DivergedError, History
from losac.history.simulate import simulate

__all__ = ["DivergedError", "History", "simulate"]
