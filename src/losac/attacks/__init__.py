"""What a server learns about its clients' data: what it sees, and attacks on that.

:func:`watch` a federation; :func:`system_of` and :func:`solve` say which gradients the messages determine;
:func:`run` and :func:`run_unrolled` look for the rows behind them; :func:`audit` does all of it and compares with the
real data; :func:`what_leaks` counts it for every method.
"""

from losac.attacks.algebra import Estimate, NonlinearMethodError, NotLinearError, System, Unknown, solve, system_of
from losac.attacks.attack import ATTACKS, Attack, Data, Recovered, run
from losac.attacks.audit import Audit, Plan, audit, telescoping_error
from losac.attacks.evidence import (
    Evidence,
    Gradient,
    as_printed,
    best_of,
    noise_in,
    recovered_labels,
    span_of,
    stack,
    telescoped,
)
from losac.attacks.layers import dense_layers, labels_in, quotients, row_space
from losac.attacks.measures import Likeness, decibels, label_accuracy, likeness, relative_error, span_angle
from losac.attacks.public import Ground, cut
from losac.attacks.replay import replay, row_gradient, true_gradients, visits_of
from losac.attacks.transcript import Exchange, Transcript, watch
from losac.attacks.unrolled import run_unrolled
from losac.attacks.what_leaks import Leak, as_markdown, what_leaks

__all__ = [
    "ATTACKS",
    "Attack",
    "Audit",
    "Data",
    "Estimate",
    "Evidence",
    "Exchange",
    "Gradient",
    "Ground",
    "Leak",
    "Likeness",
    "NonlinearMethodError",
    "NotLinearError",
    "Plan",
    "Recovered",
    "System",
    "Transcript",
    "Unknown",
    "as_markdown",
    "as_printed",
    "audit",
    "best_of",
    "cut",
    "decibels",
    "dense_layers",
    "label_accuracy",
    "labels_in",
    "likeness",
    "noise_in",
    "quotients",
    "recovered_labels",
    "relative_error",
    "replay",
    "row_gradient",
    "row_space",
    "run",
    "run_unrolled",
    "solve",
    "span_angle",
    "span_of",
    "stack",
    "system_of",
    "telescoped",
    "telescoping_error",
    "true_gradients",
    "visits_of",
    "watch",
    "what_leaks",
]
