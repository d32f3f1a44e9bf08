"""What a model is worth to every client, and what a few steps of its own make of it."""

from losac.evaluation.evaluate import evaluate
from losac.evaluation.per_client import PerClient, Personalized, jain
from losac.evaluation.personalize import personalize
from losac.evaluation.rows import hold_out

__all__ = ["PerClient", "Personalized", "evaluate", "hold_out", "jain", "personalize"]
