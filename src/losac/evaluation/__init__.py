"""Metrics of a model at every client, before and after fine-tuning on the client's own rows."""

from losac.evaluation.evaluate import evaluate
from losac.evaluation.per_client import PerClient, Personalized, jain
from losac.evaluation.personalize import personalize
from losac.evaluation.rows import hold_out

__all__ = ["PerClient", "Personalized", "evaluate", "hold_out", "jain", "personalize"]
