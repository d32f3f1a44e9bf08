"""Evaluation over training data on the host, which goes to the device a few chunks at a time."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import numpy as np
from numpy.typing import DTypeLike

from losac.simulation.placement.mesh import to_device
from losac.simulation.program import rounds as program
from losac.simulation.program.arrays import cast, chunk_rows, pad
from losac.simulation.program.cache import tracked
from losac.simulation.program.drawing import Rows
from losac.simulation.program.state import ProgramInputs, ProgramShape, RunState
from losac.task import Task
from losac.trees import Array

SLAB_BYTES = 2**25
"""For the training data on the device at a time."""

_evaluate = tracked(static=1)(program.evaluate)


class Evaluation:
    """The metrics of a state, in the chunks and the order of the program that has all data on the device.

    A loss that couples its rows is evaluated on all of them at once: these must fit on the device.
    """

    def __init__(self, task: Task, shape: ProgramShape, problem: ProgramInputs, dtype: DTypeLike) -> None:
        self.task, self.shape, self.dtype = task, shape, dtype
        on_train = shape.metrics if task.test is None else ()
        self._train_shape = shape._replace(metrics=on_train, loss_every=1, composite=False)
        self._test_shape = shape._replace(loss_every=1, composite=False)
        self._blank = to_device(problem._replace(test=None), shape.layout)
        self._tested = to_device(problem, shape.layout)
        x, p = task.data.x, task.client_weights
        coupled = shape.client.objective.whole
        self.chunk = len(x) if coupled else chunk_rows(x)
        devices = shape.layout.devices
        number = 1 if coupled else -(-len(x) // (self.chunk * devices)) * devices
        bytes_of_chunk = self.chunk * max(1, int(np.prod(x.shape[1:]))) * np.dtype(dtype).itemsize
        self.slab = min(number, max(1, SLAB_BYTES // (bytes_of_chunk * devices)) * devices)
        self.slabs = -(-number // self.slab)
        self.mass = float((p * task.data.sizes).sum() if task.reduction == "sum" else p.sum())

    def __call__(self, state: RunState) -> dict[str, Array]:
        """Return the values of the metrics, as the program's own evaluation names them."""
        now = int(state.round)
        due = now % self.shape.loss_every == 0 or int(state.broken) >= 0
        values: dict[str, Array] = {"loss": np.asarray(np.nan, self.dtype)}
        if due or self._train_shape.metrics:
            values |= self._over_training_data(state)
            values["loss"] = values["loss"] if due else np.asarray(np.nan, self.dtype)
        if self.shape.composite:
            x = self._blank.algorithm.at(now).model(state.server)
            values["objective"] = values["loss"] * self._blank.scale + self._blank.regularizer.value(x)
        if self.task.test is not None:
            values |= {k: v for k, v in _evaluate(self._test_shape, self._tested, state).items() if k != "loss"}
        return {name: np.asarray(values[name]) for name in sorted(values)}

    def _over_training_data(self, state: RunState) -> dict[str, Array]:
        totals: dict[str, Array] = {}
        for rows, weights in self._slabs():
            resident = self._blank.resident._replace(rows=rows)
            part = _evaluate(self._train_shape, self._blank._replace(resident=resident, train=weights), state)
            jax.block_until_ready(totals)  # of the slab before: two are held at a time
            totals = {name: totals[name] + value for name, value in part.items()} if totals else part
        return totals

    def _slabs(self) -> Iterator[tuple[Rows, Array]]:
        data, rows = self.task.data, self.slab * self.chunk
        blank = self._blank.resident.rows
        for k in range(self.slabs):
            first, last = k * rows, min((k + 1) * rows, len(data))
            x, y = (pad(cast(a[first:last], self.dtype), rows) for a in (data.x, data.y))
            weights = np.zeros(rows)
            weights[: last - first] = self._weights(first, last)
            put = to_device((x, y, weights.reshape(-1, self.chunk).astype(self.dtype)), self.shape.layout)
            yield blank._replace(x=put[0], y=put[1]), put[2]

    def _weights(self, first: int, last: int) -> np.ndarray:
        """Return the weights of some training rows, which sum to one over all."""
        offsets, p = self.task.data.offsets, self.task.client_weights
        low, high = np.searchsorted(offsets, first, side="right") - 1, np.searchsorted(offsets, last, side="left")
        counts = np.diff(np.clip(offsets[low : high + 1], first, last)).astype(np.int64)
        share = p[low:high] if self.task.reduction == "sum" else p[low:high] / self.task.data.sizes[low:high]
        return np.repeat(share, counts) / self.mass
