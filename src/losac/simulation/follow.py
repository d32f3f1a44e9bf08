"""Follows an engine through its rounds: records, calls the callbacks, and stops when one of them asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from losac._checks import check_flag, check_function, check_list, described
from losac._settings import check_numbers
from losac.algorithms.contract import Algorithm
from losac.history.callbacks import Callback
from losac.history.history import NOT_KEPT, DivergedError, History
from losac.history.measured import Measurements
from losac.history.notify import notifying
from losac.history.recorder import Header, Recorder
from losac.simulation.engines.intervals import evaluation_rounds
from losac.simulation.options import SimulationOptions
from losac.simulation.program.costs import Costs, Meter
from losac.simulation.sampling import Sampler, make_sampler
from losac.simulation.until import Until
from losac.task import Task
from losac.trees import Tree

Conditions = Mapping[str, Any]
"""What decides the numbers of a run, by name."""


class Measurable(Protocol):
    """What the header of a record is made of."""

    task: Task
    options: SimulationOptions
    costs: tuple[Costs, ...]


class RunnableEngine(Measurable, Protocol):
    """What every engine provides."""

    def run(
        self, sampler: Sampler, stops: Sequence[int], live: bool, history: Callable[[], Any]
    ) -> Iterator[Measurements]:
        """Run to each of the rounds in ``stops`` and evaluate there."""

    def model(self) -> tuple[Tree, Tree]:
        """Return the parameters and the model's state."""

    def kept(self) -> Any:
        """Return the state to continue from."""


def check_observers(keep_state: Any, progress: Any, callbacks: Any) -> None:
    """Refuse callbacks and a progress function that cannot be called, before the run begins."""
    check_flag("keep_state", keep_state)
    if progress is not None:
        check_function("progress", progress, "(history)", 1)
    for k, callback in enumerate(check_list("callbacks", callbacks, "a list of losac.Callback")):
        if isinstance(callback, type) or not all(hasattr(callback, f"on_{w}") for w in ("start", "evaluation", "end")):
            raise TypeError(f"callbacks[{k}] must be a losac.Callback, not {described(callback)}")


def header(engine: Measurable, algorithm: Algorithm, seed: int, steps: np.ndarray, conditions: Conditions) -> Header:
    """Return the header of an engine's run, or of one member's; ``steps``: of every client in every phase."""
    drawn = engine.options.run.steps_range
    sizes, least = np.asarray(engine.task.data.sizes), None if drawn is None else drawn[0]
    meter = Meter(algorithm, seed, sizes, np.asarray(steps), engine.costs, least)
    return Header(algorithm, engine.task.name, seed, meter.price, conditions, engine.options.loss_every)


def follow(
    engine: RunnableEngine,
    recorder: Recorder,
    keep_state: bool,
    progress: Callable[[History], None] | None,
    callbacks: Sequence[Callback],
) -> History:
    """Run an engine from the recorder's last round on, and return the history."""
    head, start, options = recorder.header, recorder.last, engine.options
    run = options.run
    check_numbers(head.algorithm, start, start + run.rounds, options.dtype)
    sampler = make_sampler(run.sampling, engine.task.data.num_clients, options.sampled, head.algorithm.partial)
    live = callable(run.sampling) and not hasattr(run.sampling, "__dataclass_fields__")
    stops = evaluation_rounds(start, run.rounds, 1 if live else run.eval_every)
    goal = None if run.until is None else Until.parse(run.until)
    there = goal is not None and goal.reached(recorder.metrics)
    if recorder.rounds:
        stops = stops[1:] if run.rounds and not there else stops[:0]
    with notifying(callbacks, recorder, start, start + run.rounds) as notify:
        for measured in engine.run(sampler, stops, live, recorder.history):
            recorder.add(measured)
            if recorder.diverged is not None:
                raise DivergedError(explain_divergence(head.algorithm, recorder), recorder.history())
            if not measured.evaluated.any():
                continue
            there = goal is not None and goal.reached(recorder.metrics)
            if there:
                recorder.conditions["rounds"] = notify.last = recorder.last  # the run is complete
            if progress is not None:
                progress(recorder.history())
            if notify(engine.kept) or there:
                break
        history = recorder.history(*engine.model(), engine.kept() if keep_state else NOT_KEPT)
        notify.finished(history, early=there)
    return history


def explain_divergence(algorithm: Algorithm, recorder: Recorder) -> str:
    """Return the message of a divergence: where, with which step, and what to try."""
    if recorder.blame:
        return f"{algorithm.label} ended at round {recorder.diverged}: {recorder.blame}"
    step = algorithm.step_size
    if isinstance(step, str):
        shown, advice = f"step_size={step!r}", "a number"
    elif callable(step):
        shown, advice = "its schedule of step sizes", "smaller steps"
    else:
        shown, advice = f"step_size={float(step):g}", f"step_size={float(step) / 4:.2g}"
    return (
        f"{algorithm.label} with {shown} diverged at round {recorder.diverged}: its loss or parameters are no longer "
        f"finite; try {advice}, or several with losac.sweep. What was measured until then is in the error's .history"
    )
