"""Follows an engine through its rounds, whatever it computes with: records, reports, stops where asked to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from losac.algorithms.contract import Algorithm
from losac.history.callbacks import Callback
from losac.history.history import DivergedError, History
from losac.history.recorder import Recorder
from losac.history.telling import told
from losac.simulation.engine import Measured
from losac.simulation.sampling import Sampler, make_sampler
from losac.trees import Tree


class Runs(Protocol):
    """What is asked of an engine."""

    def run(self, sampler: Sampler, stops: Sequence[int], live: bool, history: Callable[[], Any]) -> Iterator[Measured]:
        """Run to each of the rounds in ``stops`` and evaluate there."""

    def model(self) -> tuple[Tree, Tree]:
        """Return the parameters and the model's state."""

    def kept(self) -> Any:
        """Return the state to go on from."""


class Going(NamedTuple):
    """How to go through the rounds, as given to :func:`losac.simulate`."""

    sampling: Any
    rounds: int
    eval_every: int
    keep_state: bool
    progress: Callable[[History], None] | None
    callbacks: Sequence[Callback]


def follow(engine: Runs, recorder: Recorder, going: Going) -> History:
    """Run an engine from the recorder's last round on, and return the history."""
    head, start, rounds = recorder.header, recorder.last, going.rounds
    sampler = make_sampler(going.sampling, len(head.sizes), head.sampled, head.algorithm.partial)
    live = callable(going.sampling) and not hasattr(going.sampling, "__dataclass_fields__")
    stops = evaluation_rounds(start, rounds, 1 if live else going.eval_every)
    if recorder.rounds:
        stops = stops[1:] if rounds else []
    with told(going.callbacks, recorder, start, start + rounds) as tell:
        for measured in engine.run(sampler, stops, live, recorder.history):
            recorder.add(measured)
            if recorder.diverged is not None:
                raise DivergedError(explain_divergence(head.algorithm, recorder), recorder.history())
            if going.progress is not None:
                going.progress(recorder.history())
            if tell(engine.kept):
                break
        history = recorder.history(*engine.model(), engine.kept() if going.keep_state else None)
        tell.finished(history)
    return history


def evaluation_rounds(start: int, rounds: int, every: int) -> list[int]:
    """Return the rounds to evaluate at: the start, the multiples of ``every`` after it, and the last."""
    end = start + rounds
    return [start, *(r for r in range(start + 1, end) if r % every == 0), end]


def explain_divergence(algorithm: Algorithm, recorder: Recorder) -> str:
    """Return the message of a divergence: where, with which step, and what to try."""
    step = algorithm.step_size
    shown = "its schedule of step sizes" if callable(step) else f"step_size={float(step):g}"
    advice = "smaller steps" if callable(step) else f"step_size={float(step) / 4:.2g}"
    return (
        f"{algorithm.label} with {shown} diverged at round {recorder.diverged}: its loss or parameters are no longer "
        f"finite; try {advice}, or several with losac.sweep. What was measured until then is in the error's .history"
    )
