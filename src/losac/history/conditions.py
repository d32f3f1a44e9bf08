"""What decides a run's numbers besides its algorithm, settings and seed: the problem, and how it was simulated."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from losac._functions import digest, found_in_its_module
from losac._settings import Settings, is_schedule
from losac.algorithms.contract import Algorithm
from losac.data.fingerprint import WHOLE, fingerprint
from losac.schedules import is_named
from losac.task import Task, parameter_count

LOOKED_AT = (0, 1, 10, 100, 1000)
"""The rounds at which schedules are compared."""
_LONGEST = 40
OF_A_PART = ("rounds", "first_round", "earlier")
"""What differs between a run and the record that it continues in any case."""


def conditions(task: Task, simulation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the conditions of a run by name, in plain values, without those that are None.

    The device, where rows and states are kept, and the form of gradients do not count. Functions and given parameters
    count by their digests (:func:`losac._functions.digest`); parameters that the seed draws by their function.

    Args:
      task: of the run.
      simulation: the options that decide its numbers, such as ``dtype`` and ``eval_every``.
    """
    info = task.data.info
    found = {
        "partition": info.get("partition"),
        "data_seed": info.get("seed"),
        "clients": task.data.num_clients,
        "rows": len(task.data),
        "parameters": parameter_count(task),
        "reduction": task.reduction,
        "coupled": task.coupled or None,
        "weights": None if isinstance(task.weights, str) and task.weights == "uniform" else task.weights,
        "regularizer": task.regularizer if task.is_composite else None,
        "metric_functions_digest": digest(task.metrics) if task.metrics else None,
        "params_digest": digest(task.params if task.state is None else (task.params, task.state)),
        "frozen_digest": task.frozen_digest or None,
        **simulation,
        "loss_digest": digest(task.loss),
        "data_digest": fingerprint(task.data),
        "test_digest": None if task.test is None else _digest_of_rows(task.test),
    }
    return {name: _plain(value) for name, value in found.items() if value is not None} | _digests(found)


def of_algorithm(algorithm: Algorithm) -> dict[str, str]:
    """Return what the text of an algorithm does not show: values of schedules, functions, the code of a user's own."""
    kind = type(algorithm)
    own = {} if found_in_its_module(kind).startswith("losac.") else {"algorithm_digest": digest(kind)}
    return schedules(algorithm) | _digests(algorithm.settings()) | own


def of_earlier(earlier: Any, settings: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return how the record that a run continues was made differently, and what that record itself continued.

    Args:
      earlier: the history.
      settings, now: the settings and conditions of the run that continues.
    """
    before = earlier.conditions
    parts = [(_numbers_and_texts(earlier.settings), _numbers_and_texts(settings)), (before, now if before else {})]
    differ = {
        name: old.get(name)
        for old, new in parts
        for name in {**old, **new}
        if name not in OF_A_PART
        and old.get(name) != new.get(name)
        and ((name in old and name in new) or not name.endswith("_digest"))
    }
    told = ", ".join(f"{name}={value}" for name, value in differ.items())
    texts = [before.get("earlier"), told and f"{told} to round {int(earlier.rounds[-1])}"]
    found = {"first_round": before.get("first_round"), "earlier": "; ".join(filter(None, texts))}
    return {name: value for name, value in found.items() if value}


def schedules(algorithm: Algorithm) -> dict[str, str]:
    """Return the values of the settings that are functions of the round, at some rounds; a named one says it all."""
    rounds = ", ".join(map(str, LOOKED_AT))
    return {
        f"{name} at rounds {rounds}": ", ".join(f"{float(value(r)):.9g}" for r in LOOKED_AT)
        for name, value in algorithm.numbers().items()
        if is_schedule(value) and not is_named(value)
    }


def _digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of functions, and of settings within settings."""
    return {
        f"{name}_digest": digest(value)
        for name, value in values.items()
        if callable(value) or isinstance(value, Settings) or (isinstance(value, tuple) and value)
    }


def _numbers_and_texts(settings: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: _plain(value) for name, value in settings.items() if not callable(value)}
    return {name: value for name, value in plain.items() if isinstance(value, str | int | float)}


def _plain(value: Any) -> str | int | float:
    """Return words and numbers unchanged, anything else as a text that is the same in every process."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, int | float) or (isinstance(value, str) and len(value) <= _LONGEST):
        return value
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    if isinstance(value, np.ndarray):
        value = value.tolist()
    with np.printoptions(threshold=sys.maxsize, floatmode="unique", precision=17):  # all numbers, to the last digit
        text = re.sub(r" at 0x[0-9a-f]+", "", str(value))
    return text if len(text) <= _LONGEST else f"{type(value).__name__} {_short_digest(text)}"


def _short_digest(text: Any) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()[:12]


def _digest_of_rows(arrays: Iterable[Any]) -> str:
    """Return a digest of arrays; for large ones it reads every second row, every third, and so on."""
    digest = hashlib.sha256()
    for array in map(np.asarray, arrays):
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(np.ascontiguousarray(array[:: 1 + array.nbytes // WHOLE]).tobytes())
    return digest.hexdigest()[:12]
