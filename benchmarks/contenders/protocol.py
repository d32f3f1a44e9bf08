"""What every contender does: read the job, get ready, then run rounds when asked and wait in between.

A contender is started with the path of a job. It says one line of JSON when it has run the rounds of the check and is
ready; it answers ``run K`` with the seconds that K more rounds took, and ``end`` with its peak memory. It computes only
between a question and its answer.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np


class Job:
    """A job as :mod:`export` wrote it: its settings as attributes, the data, the first weights and the plan."""

    def __init__(self, path: str, in_memory: bool = True) -> None:
        self.path = path
        vars(self).update(json.loads(Path(path).read_text()))
        x, y, self.offsets = (np.load(f"{self.files}/{a}.npy", mmap_mode="r") for a in ("x", "y", "offsets"))
        self.x, self.y = (np.array(x), np.array(y)) if in_memory else (x, y)
        plan = dict(np.load(self.plan))
        self.schedule = plan["clients"]
        self.blocks_drawn = plan.get("blocks")
        self.orders = plan.get("orders")
        self.weights = [plan[k] for k in sorted(plan) if k.startswith("w")]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the job says nothing of {name}")

    def clients_of(self, round_index: int) -> np.ndarray:
        """Return the clients of a round."""
        return self.schedule[round_index % len(self.schedule)]

    def rows_of(self, round_index: int, slot: int, step: int) -> Any:
        """Return which rows a local step uses: a slice, or indices where batches are shuffled."""
        r = round_index % len(self.schedule)
        first = int(self.offsets[self.schedule[r, slot]])
        if self.blocks_drawn is not None:
            start = first + int(self.blocks_drawn[r, slot, step]) * self.batch
            return slice(start, start + self.batch)
        return first + self.orders[r, slot, step * self.batch : (step + 1) * self.batch]

    def planned_rows(self, round_index: int, slot: int) -> np.ndarray:
        """Return the rows of all local steps of a client, in their order."""
        index = np.arange(len(self.x))
        return np.concatenate([index[self.rows_of(round_index, slot, t)] for t in range(self.steps)])

    def judged(self) -> np.ndarray:
        """Return the rows on which the loss is compared: all, or every 50th where the model takes long."""
        return np.arange(0, len(self.x), 50 if self.model in ("cnn", "cnn5") else 1)


class Runner(Protocol):
    """What a contender must be able to do; ``plan`` says how much of the plan it follows in the check."""

    plan: str  # "clients and batches", "clients" or "its own"
    about: str  # what a reader must know, or nothing

    def check(self, rounds: int) -> float:
        """Run the first rounds, as planned where possible; return the training loss after them."""

    def run(self, rounds: int) -> float:
        """Run more rounds; return the seconds they took."""


def serve(build: Callable[[Job], Runner], in_memory: bool = True) -> None:
    """Speak the protocol on standard input and output; what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    began = time.perf_counter()
    job = Job(sys.argv[1], in_memory)
    runner = build(job)
    loss = runner.check(job.check)
    ready = {"loss": loss, "plan": runner.plan, "about": runner.about, "ready_seconds": time.perf_counter() - began}
    print(json.dumps(ready), file=answers)
    for line in sys.stdin:
        if line.startswith("run "):
            print(json.dumps({"seconds": runner.run(int(line.split()[1]))}), file=answers)
        else:
            peak = getattr(runner, "peak", lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)()
            print(json.dumps({"peak_mb": peak} | getattr(runner, "more", dict)()), file=answers)
            return
