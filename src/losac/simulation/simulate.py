"""``losac.simulate``: one run of one algorithm on one task, recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from losac._checks import check_count
from losac._devices import prepare_jax
from losac.algorithms.contract import Algorithm
from losac.history.callbacks import Callback
from losac.history.conditions import conditions
from losac.history.history import NOT_KEPT, History
from losac.history.recorder import Recorder
from losac.simulation.engines.residence import make_engine
from losac.simulation.engines.resident import precision
from losac.simulation.follow import check_observers, follow, header
from losac.simulation.options import (
    ComputeOptions,
    RunOptions,
    SimulateKeywords,
    SimulationOptions,
    read_options,
    takes_options,
)
from losac.task import Task


@takes_options(RunOptions, ComputeOptions)
def simulate(
    task: Task,
    algorithm: Algorithm,
    run: RunOptions | None = None,
    compute: ComputeOptions | None = None,
    *,
    state: Any = None,
    keep_state: bool = False,
    progress: Callable[[History], None] | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Unpack[SimulateKeywords],
) -> History:
    """Simulate a federation.

    Args:
      task: the problem.
      algorithm: from :mod:`losac.algorithms`.
      run, compute: the options as values, which can be passed on whole (:class:`losac.simulation.RunOptions`,
        :class:`losac.simulation.ComputeOptions`); keywords replace their fields.
      state: where to continue from: the ``state`` of an earlier run with the same seed continues it bit for bit; the
        earlier history itself, if it has its state, continues its record too. A state says what it belongs to:
        changes that would lead to a wrong point are refused by name, harmless ones (η, T, the seed, the
        layout, the store …) are not; :func:`losac.adapt` converts a state if that is exact.
      keep_state: keep the final state in the history (LoSAC's is M·d numbers per client).
      progress: called with the history so far about once a second.
      callbacks: receive the start, what is measured and the end (:class:`~losac.Callback`).
      options: the fields of ``run`` and ``compute`` as keywords, all but ``rounds`` with a default:

        - ``rounds``: how many rounds to run (from the given state, if there is one).
        - ``clients_per_round``: S; all clients by default.
        - ``seed``: decides client sampling, local data and initial weights; from 0 to 2³² − 1.
        - ``eval_every``: rounds between evaluations; the start and the last round are evaluated in any case.
        - ``loss_every``: evaluate the training loss only at rounds divisible by this; NaN at the others.
        - ``sampling``: ``"uniform"``, ``"all"``, lists of client ids (one per round), a boolean availability trace
          [rounds, N], a sampler of :mod:`losac.simulation.sampling`, or a function ``(round, rng, history) -> ids``.
        - ``local_steps``: one number of local steps per client, instead of the algorithm's own.
        - ``random_steps``: ``"1:10"``: each client draws its number of local steps in each round, uniformly between
          the two; instead of the algorithm's own.
        - ``until``: ``"accuracy=0.9"``: stop at the first evaluation where a metric is there (a loss from above).
        - ``attackers``: clients that lie, from :mod:`losac.simulation.attackers` (docs/robust.md).
        - ``dtype``: of all arrays.
        - ``layout``: how the clients are laid out on the hardware; chosen by it if not given.
        - ``gradients``: ``"formed"`` forms every gradient; ``"factored"`` keeps those of dense layers as products of
          their inputs and errors, in LoSAC's table and in the local models, if the method only adds and scales
          them; ``"auto"`` does so if it is smaller. The same algorithm to rounding.
        - ``table_dtype``: the precision of LoSAC's table; gradients are rounded to it before they are used: φ stays
          the sum of the table.
        - ``matmul``: the precision of matrix products of single-precision numbers: ``"float32"``, or faster on a GPU
          and less exact ``"tensorfloat32"`` or ``"bfloat16"``; by default the hardware's own choice.
        - ``store``: where the clients' states live: ``"device"``; ``"memory"`` or a folder, from where only those of
          the next few rounds go to the device (docs/clients.md); ``"auto"``: on the device if they fit. The numbers
          are the same.

    Returns:
      The history. A run that leaves the finite numbers raises :class:`~losac.DivergedError`, which holds what was
      measured until then.

    >>> import losac
    >>> data = losac.data.load("digits", clients=10, partition="sorted")
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> algorithm = losac.algorithms.losac(step_size=1e-3, local_steps=4, blocks=5)
    >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=10)
    >>> history.rounds
    array([ 0, 10, 20])
    >>> bool(history.final("accuracy") > 0.5)
    True
    """
    prepare_jax()
    checked = SimulationOptions.of(task, *read_options(simulate, run, compute, options))
    earlier, given = given_state(state)
    if earlier is None:
        check_count("rounds", checked.run.rounds)
    check_observers(keep_state, progress, callbacks)
    with precision(checked.dtype, checked.compute.matmul):
        engine = make_engine(task, algorithm, checked, given, keep_state)
        found = conditions(task, checked.conditions())
        head = header(engine, algorithm, checked.seed, engine.problem.resident.steps, found)
        recorder = Recorder(head, int(engine.state.round), checked.run.rounds, earlier)
        return follow(engine, recorder, keep_state, progress, callbacks)


def given_state(state: Any) -> tuple[History | None, Any]:
    """Return the history to continue, if one is given, and the state to continue from."""
    earlier, state = (state, state.state) if isinstance(state, History) else (None, state)
    if state is NOT_KEPT:
        raise ValueError("the given history has no state to continue from; make it with keep_state=True")
    return earlier, state
