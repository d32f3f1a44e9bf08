"""What the messages give away: every method attacked by all that its server sees, on digits and on tabular rows.

Ten clients with 1, 8 or 60 rows each, drawn at random; all take part in every round, which is the worst case for them.
The attacker knows the method, its settings, how many rows a client has and the blocks that it draws, all of which the
server sets; of the data only the range. It does not know labels.
"""

from __future__ import annotations

import base64
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np

from losac.attacks.attack import Data
from losac.attacks.audit import Audit, Plan, audit, telescoping_error
from losac.data import FederatedData
from losac.history.simulate import Dtype
from losac.models import softmax_regression, two_nn
from losac.reproduce.parts.leakage_findings import conclude
from losac.reproduce.problems import SHAPES, algorithm, paper_data
from losac.reproduce.study import Job, Options, Study
from losac.task import Task, classification

CLIENTS, ROUNDS, STEP = 10, 10, 0.05
"""N = S, R and η·n_i."""
SIZES = (1, 8, 60)
SHOWN = 6
"""How many rows of a client are kept as pictures."""
BOXES = {"mnist": (0.0, 1.0), "har": (-1.0, 1.0)}
IMAGES = {"mnist": (28, 28)}
PRECISIONS: tuple[Dtype, ...] = ("float32", "float64")


class Method(NamedTuple):
    """A method with its T, M and other settings."""

    name: str
    steps: int
    blocks: int = 1

    def make(self, rows: int) -> Any:
        """Return the algorithm for clients with so many rows."""
        extra: dict[str, Any] = {"feddyn": {"alpha": 0.1 * rows}, "fedadmm": {"rho": 0.5 * rows}}.get(self.name, {})
        steps = {} if self.name == "dsgd" else {"local_steps": self.steps}
        return algorithm(self.name, step_size=STEP / rows, blocks=self.blocks, **steps, **extra)


METHODS = (
    Method("dsgd", 1), *(Method(name, t) for name in ("fedavg", "scaffold", "mime_svrg") for t in (1, 5)),
    *(Method("losac", t, m) for m in (1, 5) for t in (1, 5)), Method("feddyn", 5), Method("fedadmm", 5),
)  # fmt: skip
LONG = ("feddyn", "fedadmm")
"""Which of them the short form leaves out: those that the paper does not attack."""
PLAN = Plan(("inverting", "rowspace"), ("paper", "inverting"), rounds=ROUNDS)
CLASSICS = ("dlg", "dlg-adam", "idlg")
"""Attacks that are compared on DSGD only, which sends what they were made for."""


def jobs(options: Options) -> list[Job]:
    """Return one job for each data set, model, number of rows and method."""
    cases = [("mnist", model, rows) for model in ("softmax", "2nn") for rows in SIZES]
    cases += [] if options.quick else [("har", "2nn", 8)]
    return [
        Job(
            measure,
            {"data": data, "model": model, "rows": rows, "method": list(method), "seed": seed, "quick": options.quick},
            f"Leakage: {method.name} with {model} on {data}, {rows} rows a client",
            (4.0 if model == "2nn" else 1.0) * rows**0.5 * method.blocks**0.5 / (4 if options.quick else 1),
        )
        for data, model, rows in cases
        for seed in (options.seeds[:1] if options.quick else options.seeds)
        for method in METHODS
        if method.blocks <= rows and not (options.quick and method.name in LONG)
    ]


def measure(data: str, model: str, rows: int, method: list[Any], seed: int, quick: bool) -> dict[str, Any]:
    """Attack one method on one problem."""
    task, means = problem(data, model, rows, seed)
    knows = Data((task.data.x.shape[1],), BOXES[data], SHAPES[data].classes, IMAGES.get(data))
    chosen = Method(*method)
    classics = CLASSICS if chosen.name == "dsgd" and not quick else ()
    plan = PLAN._replace(  # in the short form a single row, which is known outright, is not searched for
        attacks=() if quick and rows == 1 else (*classics, *PLAN.attacks),
        printed=PLAN.printed[:1] if quick else PLAN.printed,
        unrolled=2 if rows == 8 and chosen.steps > 1 and (model == "softmax" or not quick) else 0,
        steps=150 if quick else None,
    )
    one = audit(task, chosen.make(rows), knows, plan, clients=(0, 1), class_means=means, seed=seed)
    found = record(one, data in IMAGES and rows == 8)
    if (chosen.name, chosen.blocks) == ("losac", 1):
        run = partial(telescoping_error, task, chosen.make(rows), rounds=ROUNDS, seed=seed)
        found["telescoped"] = {dtype: max(run(i, dtype=dtype) for i in (0, 1)) for dtype in PRECISIONS}
    return found


@lru_cache(maxsize=2)
def problem(data: str, model: str, rows: int, seed: int) -> tuple[Task, np.ndarray]:
    """Return clients with so many rows each, drawn at random, and the class means of the rows that no client has."""
    every = paper_data(data, 2, "iid")
    x, y = np.asarray(every.x).reshape(len(every.x), -1), np.asarray(every.y)
    order = np.random.default_rng(seed).permutation(len(x))
    theirs, others = order[: CLIENTS * rows].reshape(CLIENTS, rows), order[CLIENTS * rows :]
    held = FederatedData.from_clients(
        [(x[mine], y[mine]) for mine in theirs], num_classes=SHAPES[data].classes, name=data
    )
    classes = SHAPES[data].classes
    net = two_nn(x.shape[1], classes) if model == "2nn" else softmax_regression(x.shape[1], classes)
    means = np.stack([x[others][y[others] == c].mean(0) for c in range(classes)])
    return classification(net, held, test=None), means


def record(one: Audit, pictures: bool) -> dict[str, Any]:
    """Return an audit as JSON holds it; pictures as bytes, the values from 0 to 1 as 0 to 255."""
    entry = {name: value for name, value in one._asdict().items() if name != "pictures"}
    entry |= {"psnr": dict(one.psnr), "recognised": dict(one.recognised)}
    if pictures:
        entry["pictures"] = {name: encode(rows[:SHOWN]) for name, rows in one.pictures.items()}
    return entry


def encode(rows: np.ndarray) -> str:
    """Return rows with values from 0 to 1 as text."""
    return base64.b64encode((255 * np.clip(rows, 0, 1)).round().astype(np.uint8).tobytes()).decode()


STUDY = Study("leakage", "What the messages give away", jobs, conclude, ("mnist", "har"))
