"""The simulator: runs of an algorithm on a task, compiled; nothing in it knows any algorithm."""

from losac.simulation.adapt import adapt
from losac.simulation.estimate import estimate
from losac.simulation.options import ComputeOptions, RunOptions
from losac.simulation.placement.layout import Layout
from losac.simulation.sampling import Available, Fixed, Sampler, Uniform, Weighted
from losac.simulation.simulate import simulate
from losac.simulation.sweep import Sweep, sweep

__all__ = [
    "Available",
    "ComputeOptions",
    "Fixed",
    "Layout",
    "RunOptions",
    "Sampler",
    "Sweep",
    "Uniform",
    "Weighted",
    "adapt",
    "estimate",
    "simulate",
    "sweep",
]
