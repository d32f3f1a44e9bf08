"""Where the clients' states live: on the device, in the machine's memory, or in files."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax

from losac._settings import nearest
from losac.algorithms.contract import Algorithm
from losac.simulation import setup
from losac.simulation.arrays import anybody
from losac.simulation.engine import Engine
from losac.simulation.members import SHARE_OF_MEMORY, free_memory
from losac.simulation.paged import Paged, pageable
from losac.simulation.start import initial_state
from losac.simulation.state import Problem, Shape
from losac.task import Task

WORDS = ("auto", "device", "memory")
GB = 1e9


class Sizes(NamedTuple):
    """The bytes of all clients' states, of those that a run can touch, and of the data."""

    all: float
    touched: float
    data: float


def make_engine(
    task: Task,
    algorithm: Algorithm,
    plan: setup.Plan,
    seed: int,
    state: Any,
    store: str | Path,
    rounds: int,
    keep_state: bool,
) -> Engine | Paged:
    """Return the engine for ``store=…``: a word of :data:`WORDS`, or the folder of the files."""
    folder = read_store(store)
    setup.check(task, algorithm, plan.sampled)
    if store == "device" or (store == "auto" and not pageable(algorithm)):
        return Engine(task, algorithm, plan, seed, state)
    shape = setup.shapes(task, algorithm, plan)
    sizes = measure(task, algorithm, shape, plan, rounds, state is not None)
    if store == "auto" and shape.layout.devices * (sizes.all + sizes.data) <= SHARE_OF_MEMORY * free_memory():
        return Engine(task, algorithm, plan, seed, state)
    if not pageable(algorithm):
        raise ValueError(
            f"{algorithm.label} asks all clients in one of its phases, so that their states must be on the device: "
            f"store={str(store)!r} cannot be used; use store='device'"
        )
    memory = SHARE_OF_MEMORY * host_memory()
    if keep_state and sizes.all > memory:
        raise ValueError(
            f"keep_state=True would bring the states of all {task.data.num_clients} clients into memory, "
            f"{sizes.all / GB:.1f} GB; leave it out, or keep fewer"
        )
    if store == "auto" and sizes.touched > memory:
        folder = Path(tempfile.gettempdir())
        logging.getLogger("losac").warning(
            "the states of the clients that take part may reach %.1f GB, more than memory has room for: they go to "
            "files in %s, which vanish after the run; store=FOLDER chooses another place",
            sizes.touched / GB,
            folder,
        )
    if folder is not None and sizes.touched > shutil.disk_usage(folder).free:
        raise ValueError(
            f"the clients' states may reach {sizes.touched / GB:.1f} GB, but {folder} has only "
            f"{shutil.disk_usage(folder).free / GB:.1f} GB free: choose a folder on a larger disk by store=FOLDER"
        )
    return Paged(task, algorithm, plan, seed, state, folder=folder)


def read_store(store: str | Path) -> Path | None:
    """Return the folder that ``store`` names, None for a word; refuse what is neither."""
    if isinstance(store, str) and store in WORDS:
        return None
    if isinstance(store, str | Path) and Path(store).is_dir():
        return Path(store)
    hint = nearest(store, list(WORDS)) if isinstance(store, str) else ""
    raise ValueError(f"store={store!r} must be 'auto', 'device', 'memory' or a folder that exists{hint}")


def measure(task: Task, algorithm: Algorithm, shape: Shape, plan: setup.Plan, rounds: int, given: bool) -> Sizes:
    """Return how large the states become; ``given``: the run starts from those of all clients."""
    data, n = task.data, task.data.num_clients
    one = anybody(task, shape.client.most_rows, len(algorithm.phases()), plan.dtype)
    algorithm, regularizer = setup.cast_numbers((algorithm, task.regularizer), plan.dtype)
    problem = Problem(algorithm, regularizer, one, one.weight, None, one.weight)
    made = jax.eval_shape(partial(initial_state, shape, places=1), problem, *setup.start(task, 0, plan.dtype))
    row = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(made.store))
    touched = n if given else min(n, rounds * plan.sampled)
    return Sizes(float(n * row), float(touched * row), float(data.x.nbytes + data.y.nbytes))


def host_memory() -> float:
    """Return the bytes of the machine's memory that are free or can be freed."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
