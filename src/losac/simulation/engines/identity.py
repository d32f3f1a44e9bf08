"""What a kept state belongs to, and the check that another run may continue from it."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from losac._functions import digest
from losac._settings import setting_text
from losac.algorithms.contract import Algorithm
from losac.data.fingerprint import fingerprint
from losac.simulation.options import SimulationOptions
from losac.simulation.placement.mesh import is_key
from losac.task import Task
from losac.trees import Tree

LOG = logging.getLogger("losac")
IDENTITY = ".identity"
"""Its name among a state's arrays by name."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class Identity:
    """The facts that a state depends on, by name, and a checksum of its arrays at the end of the run.

    In a tree it has no leaves. A changed copy of a state therefore keeps it, but the checksum no longer fits.
    """

    facts: tuple[tuple[str, str], ...]
    seal: int = field(default=0, compare=False)

    def sealed(self, state: Tree) -> Identity:
        """Return it with the checksum of a state."""
        return replace(self, seal=checksum(state))

    def as_array(self) -> np.ndarray:
        """Return it as an array, as files hold it."""
        return np.frombuffer(json.dumps({"facts": self.facts, "seal": self.seal}).encode(), np.uint8)

    @classmethod
    def from_array(cls, array: np.ndarray) -> Identity:
        """Return the identity that an array holds."""
        content = json.loads(np.asarray(array, np.uint8).tobytes())
        return cls(tuple((name, value) for name, value in content["facts"]), content["seal"])


def identify(
    task: Task, algorithm: Algorithm, options: SimulationOptions, engine: str = "jax", loss: Any = None
) -> Identity:
    """Return what the states of a run belong to; ``loss`` is the task's own if it is not given."""
    settings = {name: setting_text(value) for name, value in algorithm.bound(options.sampled).items()}
    problem = {
        "clients": str(task.data.num_clients),
        "data": fingerprint(task.data),
        "reduction": task.reduction,
        "weights": _weights(task),
        "regularizer": setting_text(task.regularizer),
        "loss": digest(task.loss if loss is None else loss),
        "python": platform.python_version(),
    }
    if task.frozen is not None:
        problem["frozen"] = task.frozen_digest
    numbers = {"dtype": str(options.dtype)}
    if algorithm.table:
        numbers["table_dtype"] = str(options.compute.table_dtype)
    facts = {"engine": engine, "algorithm": algorithm.label, **settings, **problem, **numbers}
    return Identity(tuple(facts.items()))


def admitted(
    own: Identity, given: Any, algorithm: Algorithm, fit: Callable[[Any], Any], check: Callable[[Any], None]
) -> Any:
    """Return a state from outside after checking that a run may continue from it: the one check of all engines.

    A state says what it belongs to, which must match this run. If its checksum shows that nobody has changed it,
    it fits the method's invariant to rounding: over a long run the rounding may be large compared with gradients that
    have become small. A changed state must fulfil the invariant, and so must one that does not say what it belongs
    to. For arrays by name (a run kept by an earlier version of losac) a violation is only a warning.

    Args:
      own: what the states of the run belong to.
      given: the state, or its arrays by name.
      algorithm: the run's.
      fit: returns the given state in the structure of the run's own; refuses what does not have it.
      check: refuses a state that contradicts the method's invariant.
    """
    belongs = identity_of(given)
    require_same(own, belongs, algorithm)
    taken = fit(given)
    if belongs is not None and belongs.seal == checksum(taken):
        return taken
    try:
        check(taken)
    except ValueError as error:
        if belongs is not None or not isinstance(given, Mapping):
            raise
        LOG.warning("the kept state does not say what it belongs to, and its sums may have drifted: %s", error)
    return taken


def identity_of(state: Any) -> Identity | None:
    """Return the identity in a state, or in its arrays by name."""
    if isinstance(state, Mapping):
        return Identity.from_array(state[IDENTITY]) if IDENTITY in state else None
    identity = getattr(state, "identity", None)
    return identity if isinstance(identity, Identity) else None


def fitted(own: Any, given: Any) -> Any:
    """Return a state without its identity; refuse one of another structure or other shapes than a run's own."""
    taken = given._replace(identity=()) if identity_of(given) is not None else given
    structure: Any = jax.tree.structure(own)
    if jax.tree.structure(taken) != structure:
        raise ValueError(
            "the given state is of another algorithm, model or storage than this run (gradients='formed' and "
            "'factored' store what clients keep in different ways)"
        )
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(own), jax.tree.leaves(taken)):
        if np.shape(a) != np.shape(b):
            where = jax.tree_util.keystr(path)
            raise ValueError(f"the given state has shape {np.shape(b)} at {where}; expected {np.shape(a)}")
    return taken


def require_same(own: Identity, given: Identity | None, algorithm: Algorithm) -> None:
    """Raise ValueError, with all differences, if a given state belongs to something else."""
    now, before = dict(own.facts), dict((given or own).facts)
    unknown = {"python"}  # which compiles functions otherwise from version to version
    if before.get("python") != now["python"]:
        unknown.add("loss")
    differ = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    differ = [name for name in differ if name not in unknown]
    if not differ:
        return
    if "algorithm" in differ:
        raise ValueError(
            f"the given state is of another algorithm, {before['algorithm']}, than this run, {now['algorithm']}: begin "
            "a new run from its model, Task(…, params=history.params)"
        )
    shown = [name for name in differ if name in before and name in now] or differ
    told = {name: f"{name}={before.get(name)} (here {now.get(name)})" for name in shown} | {"loss": "another loss"}
    found = ", ".join(told[name] for name in shown)
    why = "; ".join(dict.fromkeys(algorithm.meanings[name] for name in shown if name in algorithm.meanings))
    raise ValueError(
        f"the given state belongs to a run with {found}, and may end at a wrong point{f': {why}' if why else ''}. "
        f"Leave that as it was, or {_way_out(differ, algorithm, now['engine'])}"
    )


def _way_out(differ: list[str], algorithm: Algorithm, engine: str) -> str:
    shaping = {"engine", "blocks", "clients", "uploads", *algorithm.worded()}
    if engine == "jax" and adaptable(algorithm) and not shaping & set(differ):
        return "make a state for this run of it by losac.adapt"
    return "begin a new run from its model: Task(…, params=history.params)"


def adaptable(algorithm: Algorithm) -> bool:
    """Whether what the server keeps can be computed again from what the clients keep."""
    return algorithm.restarts_alone and not algorithm.server_rows


def checksum(state: Tree) -> int:
    """Return the CRC-32 of all arrays of a state except its random keys."""
    value = 0
    for leaf in jax.tree.leaves(state):
        if not (hasattr(leaf, "dtype") and is_key(leaf)):
            value = zlib.crc32(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data, value)
    return value


def _weights(task: Task) -> str:
    """Return the clients' weights as a word if there is one, else a digest."""
    p, sizes = task.client_weights, np.asarray(task.data.sizes)
    if np.allclose(p, 1 / len(p), rtol=1e-12, atol=0):
        return "uniform"
    if np.allclose(p, sizes / sizes.sum(), rtol=1e-12, atol=0):
        return "samples"
    return hashlib.sha256(np.asarray(p, "<f8").tobytes()).hexdigest()[:12]
