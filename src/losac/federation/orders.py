"""The checks of a client before it carries out an order: its own algorithm must allow every number in it."""

from __future__ import annotations

import re
from typing import Any, get_args

import numpy as np

from losac import _random
from losac._checks import shown
from losac._seeds import MOST
from losac.algorithms.contract import Algorithm
from losac.federation.errors import RefusedError
from losac.federation.protocol import NOTHING, Kind
from losac.federation.work import Assignment
from losac.simulation.engines.resident import precision
from losac.simulation.program.setup import cast_numbers

TOKEN = re.compile(r"[^/]{1,200}/[0-9]{1,15}/[0-9]{1,15}")
CLIENTS = 10**7
"""The most clients that a federation may say it has."""


def check_order(
    algorithm: Algorithm, dtype: np.dtype[Any], kind: str, token: str, accepted: str, task: Assignment
) -> None:
    """Refuse an order with a number that no honest server sends."""
    if kind not in get_args(Kind):
        raise RefusedError(f"it is of the kind {shown(kind)}")
    for name, text in (("token", token), ("accepted", accepted)):
        if not (TOKEN.fullmatch(text) or (name == "accepted" and text == NOTHING)):
            raise RefusedError(f"{name} is {shown(text)}, which is no token")
    if accepted and accepted.rsplit("/", 2)[0] != token.rsplit("/", 2)[0]:
        raise RefusedError(f"it accepted {shown(accepted)}, which is of another run than {shown(token)}")
    bounds = {
        "seed": (0, MOST), "round": (0, 2**31 - 1), "phase_index": (0, len(algorithm.phases()) - 1),
        "clients": (1, CLIENTS), "sampled": (1, task.clients), "client": (0, task.clients - 1),
        "slot": (0, task.clients - 1),
    }  # fmt: skip
    for name, (least, most) in bounds.items():
        if not least <= getattr(task, name) <= most:
            raise RefusedError(f"{name} is {shown(getattr(task, name))}, and must lie between {least} and {most}")
    if not 0 < task.weight <= task.clients:
        raise RefusedError(f"weight is {task.weight}, and must be positive and at most the number of clients")
    _check_steps(algorithm, dtype, kind, task)


def _check_steps(algorithm: Algorithm, dtype: np.dtype[Any], kind: str, task: Assignment) -> None:
    """Refuse a number of steps that does not follow from the seed: any other would keep the client busy."""
    if task.steps is None:
        return
    with precision(dtype):
        now = cast_numbers(algorithm, dtype).at(task.round)
        key = _random.round_key(_random.run_key(task.seed), task.round)
        due = now.draw_steps(_random.steps_uniform(key))
    own = kind == "train" and now.phases()[task.phase_index] is now
    # Another machine may round differently.
    if not own or due is None or abs(task.steps - int(due)) > 1:
        raise RefusedError(f"it asks for {task.steps} steps, and {'none are' if due is None else int(due)} due")
