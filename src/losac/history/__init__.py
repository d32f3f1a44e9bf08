"""The records of runs, and the callbacks that receive them."""

from losac.history.callbacks import Callback, Moment, Start
from losac.history.history import DivergedError, History

__all__ = ["Callback", "DivergedError", "History", "Moment", "Start"]
