"""The compiled simulator: nothing in it knows any algorithm."""

from losac.simulation.layout import Layout
from losac.simulation.sampling import Available, Fixed, Sampler, Uniform, Weighted

__all__ = ["Available", "Fixed", "Layout", "Sampler", "Uniform", "Weighted"]
