"""What a client keeps once it knows how much of its upload the server used."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from losac.federation.arrays import border, dtype_of
from losac.federation.draws import local_work
from losac.federation.work import Assignment, Kept
from losac.simulation.engines.resident import precision
from losac.trees import Tree, map_trees, zeros


def settled(
    worker: Any, task: Assignment, upload: Tree, accepted: Tree, kept: Kept, local_steps: int | None = None
) -> Kept:
    """Return what a worker keeps after an assignment: as its algorithm records what was accepted of its upload."""
    dtype = dtype_of(upload)
    with precision(dtype):
        work = local_work(worker.algorithm, task, worker.rows, local_steps)
        here = work.here(lambda x, step: x, zeros)
        state, change = work.algorithm.record(here, upload, accepted, kept.state)
        kept = kept._replace(state=border(state, dtype))
        if not jax.tree.leaves(change):
            return kept
        visited = np.unique(work.course.block[: work.steps])
        table = map_trees(np.array, kept.table)
        map_trees(lambda a, c: a.__setitem__(visited, a[visited] + np.asarray(c) / len(visited)), table, change)
        return kept._replace(table=table)
