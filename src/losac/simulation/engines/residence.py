"""Where the clients' states are kept: on the device, in the machine's memory, or in files."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from losac.algorithms.contract import Algorithm
from losac.simulation.engines.paged import PagedEngine, pageable
from losac.simulation.engines.resident import ResidentEngine
from losac.simulation.options import SimulationOptions
from losac.simulation.placement.mesh import SHARE_OF_MEMORY, free_memory
from losac.simulation.program import setup
from losac.simulation.program.state import ProgramShape
from losac.task import Task

GB = 1e9


class StoreSizes(NamedTuple):
    """The bytes of all clients' states, of those that a run can touch, and of the data."""

    all: float
    touched: float
    data: float


def make_engine(
    task: Task,
    algorithm: Algorithm,
    options: SimulationOptions,
    state: Any,
    keep_state: bool,
) -> ResidentEngine | PagedEngine:
    """Return the engine for ``store=…`` among the options, with the state to continue from."""
    store, folder = options.compute.store, options.compute.folder
    shape = setup.checked_shape(task, algorithm, options)
    if store == "device" or (store == "auto" and not pageable(algorithm)):
        return ResidentEngine(task, algorithm, options, state, shape)
    sizes = measure(task, algorithm, shape, options, state is not None)
    if store == "auto" and shape.layout.devices * (sizes.all + sizes.data) <= SHARE_OF_MEMORY * free_memory():
        return ResidentEngine(task, algorithm, options, state, shape)
    if not pageable(algorithm):
        raise ValueError(
            f"{algorithm.label} asks all clients in one of its phases, so their states must be on the device: "
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
    return PagedEngine(task, algorithm, options, state, shape, folder=folder)


def measure(
    task: Task, algorithm: Algorithm, shape: ProgramShape, options: SimulationOptions, given: bool
) -> StoreSizes:
    """Return how large the states become; ``given``: the run starts with the states of all clients."""
    data, n = task.data, task.data.num_clients
    row = setup.state_sizes(task, algorithm, shape, options).row
    touched = n if given else min(n, options.run.rounds * options.sampled)
    return StoreSizes(float(n * row), float(touched * row), float(data.x.nbytes + data.y.nbytes))


def host_memory() -> float:
    """Return the bytes of the machine's memory that are free or can be freed."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
