"""The laws of the contract, checked by calling an algorithm's functions one after the other, without compiling them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random
from losac._compat import enable_x64
from losac.algorithms.contract import (
    Algorithm,
    Federation,
    Gradient,
    Local,
    Phase,
    Received,
    ValuedGradient,
    checked_upload,
)
from losac.algorithms.walk import Step, walk
from losac.prox import zero
from losac.simulation.program.setup import cast_numbers
from losac.testing.regimes import BLOCKS, CLIENTS, SAMPLED, STEPS
from losac.testing.report import Finding
from losac.trees import Tree, add, map_trees, squared_norm

ROUNDING = 1e-12


class Call(NamedTuple):
    """What a function was given and what it returned for it."""

    function: str
    what: str
    before: Tree
    after: Tree


class Watched:
    """A phase that keeps a client's calls, for the law on structure."""

    def __init__(self, phase: Phase) -> None:
        self.phase, self.table = phase, phase.table
        self.calls: list[Call] = []

    def begin(self, here: Local, message: Tree, client: Tree) -> tuple[Tree, Tree]:
        """Begin."""
        local, kept = self.phase.begin(here, message, client)
        self.calls.append(Call("begin", "the client's state", client, kept))
        return local, kept

    def step(self, here: Local, message: Tree, client: Tree, local: Tree, grad: Gradient, *y: Tree) -> Tree:
        """Take a step."""
        after = self.phase.step(here, message, client, local, grad, *y)
        if y:
            self.calls.append(Call("step", "the table's entry", y[0], after[1]))
        self.calls.append(Call("step", "the local variables", local, after[0] if y else after))
        return after

    def end(self, here: Local, message: Tree, client: Tree, local: Tree) -> tuple[Tree, Tree]:
        """End."""
        upload, last = self.phase.end(here, message, client, local)
        self.calls.append(Call("end", "the client's state", client, last))
        return upload, last


class WatchedWork(NamedTuple):
    """What one client uploads and keeps, and what its functions changed on the way."""

    upload: Tree
    client: Tree
    table: Tree
    calls: list[Call]


def settings_are_checked(algorithm: Algorithm) -> list[Finding]:
    """Wrong and unknown settings are refused by name, and the settings describe an algorithm completely."""
    law = "settings are checked"
    found = []
    for bad in (-1.0, 0.0, math.nan):
        try:
            algorithm.replace(step_size=bad)
            words = f"step_size={bad} is accepted"
        except ValueError as error:
            words = "" if "step_size" in str(error) else f"the error on step_size={bad} does not name it: {error}"
        found.append(Finding(law, f"step_size={bad}", not words, words or "refused by name"))
    try:
        algorithm.replace(no_such_setting=1)
        words = "an unknown setting is accepted"
    except TypeError:
        words = ""
    return [*found, Finding(law, "an unknown one", not words, words or "refused")]


def settings_say_all(algorithm: Algorithm) -> list[Finding]:
    """An algorithm made again from its settings, or its leaves, is the same: so it can be saved, swept and sent."""
    law, given = "settings say all", vars(algorithm)
    leaves, structure = jax.tree.flatten(algorithm)
    made = {
        "from its settings": type(algorithm)(**algorithm.settings()),
        "from its leaves": jax.tree.unflatten(structure, leaves),
    }
    found = []
    for where, other in made.items():
        lost = [name for name, value in given.items() if name not in vars(other) or not _same(value, vars(other)[name])]
        words = f"made again it has lost or changed {', '.join(lost)}" if lost else "the same"
        found.append(Finding(law, where, not lost, words))
    return found


def structure_stays(algorithm: Algorithm) -> list[Finding]:
    """Every state keeps its structure, shapes and dtype through every function."""
    found = []
    for dtype in ("float32", "float64"):
        with enable_x64(dtype == "float64"):
            calls = _round(algorithm, _start(dtype))[1]
        changed = [call for call in calls if _kind(call.before) != _kind(call.after)]
        broken = {f"{c.function} changes {c.what} from {_kind(c.before)} to {_kind(c.after)}" for c in changed}
        words = "; ".join(sorted(broken)) or "every function returns what it was given in kind"
        found.append(Finding("structure and dtype stay", dtype, not broken, words))
    return found


def uploads_are_arrays(algorithm: Algorithm) -> list[Finding]:
    """Every leaf of an upload is an array: a Python number has no dtype, and so no size and no sum.

    The settings' numbers are arrays here, as in an engine.
    """
    law, now, words = "uploads are arrays", cast_numbers(algorithm, np.float64).at(0), ""
    with enable_x64(True):
        x = _start("float64")
        for phase in now.phases():
            upload = _trace(now, phase, x, phase.broadcast(now.init(x)), 0).upload
            try:
                checked_upload(now, upload)
            except TypeError as error:
                words = str(error)
    return [Finding(law, "", not words, words or "every leaf has a dtype")]


def functions_are_pure(algorithm: Algorithm) -> list[Finding]:
    """The same round, called twice, gives the same numbers: all randomness comes with a key."""
    with enable_x64(True):
        first, again = (_round(algorithm, _start("float64"))[0] for _ in range(2))
        apart = _apart(first, again)
    words = "the same arguments give the same results"
    if apart:
        words = "the same arguments gave other results when called again: draw random numbers from here.common only"
    return [Finding("functions are pure", "a round called twice", not apart, words, apart, 0.0)]


def sum_is_enough(algorithm: Algorithm) -> list[Finding]:
    """The server's update needs only the sum of the uploads, unless it says ``server_rows``."""
    law = "the sum is enough"
    if algorithm.server_rows:
        return [Finding(law, "", True, "not claimed: server_rows says that single uploads are needed")]
    rows = ("receive", "init_server_row", "drop_row")
    unused = [name for name in rows if getattr(type(algorithm), name) is not getattr(Algorithm, name)]
    words = f"{', '.join(unused)} would see single uploads: say server_rows = True" if unused else "no row is kept"
    found = [Finding(law, "what is declared", not unused, words)]
    with enable_x64(True):
        seen = [_round(algorithm, _start("float64"), late)[0] for late in (False, True)]
        apart = _apart(*seen)
    words = "the server's next state follows from the sum"
    if apart:
        words = "with the same sum the server went elsewhere after another client had spoken: it keeps single uploads"
    return [*found, Finding(law, "another client speaks before the update", not apart, words, apart, 0.0)]


def credits_add_up(algorithm: Algorithm) -> list[Finding]:
    """A client holds after its first upload what that upload was credited, and moving the credit moves no model."""
    law = "credits add up"
    if type(algorithm).credit is Algorithm.credit:
        return [Finding(law, "", True, "not claimed: the server keeps no sum over the clients' states")]
    algorithm = algorithm.at(0)
    here = Federation(CLIENTS, SAMPLED, zero().prox)
    with enable_x64(True):
        x = _start("float64")
        server = algorithm.init(x)
        trace = _trace(algorithm, algorithm, x, algorithm.broadcast(server), 1)
        credit = algorithm.credit(trace.upload)
        apart = _apart(credit, algorithm.holding(here, x, trace.client, trace.table))
        moved = _apart(algorithm.model(server), algorithm.model(algorithm.shift(here, server, credit)))
    words = "so far is what the client holds after its first upload from what that was credited"
    return [
        Finding(law, "holding", apart <= ROUNDING, words, apart, ROUNDING),
        Finding(law, "shift", not moved, "so far does moving a credit move the model", moved, 0.0),
    ]


LAWS = (
    settings_are_checked,
    settings_say_all,
    uploads_are_arrays,
    structure_stays,
    functions_are_pure,
    sum_is_enough,
    credits_add_up,
)


def _start(dtype: str) -> Tree:
    return {"w": jnp.linspace(-1, 1, 6, dtype=dtype).reshape(2, 3), "b": jnp.ones(3, dtype)}


def _round(algorithm: Algorithm, x: Tree, late: bool = False) -> tuple[Tree, list[Call]]:
    """Return the server's state after one round of three clients, and all calls during it.

    With ``late`` a fourth client's functions are called before the update, but it is left out of the sum.
    """
    algorithm = algorithm.at(0)
    server, calls = algorithm.init(x), []
    here = Federation(CLIENTS, SAMPLED, zero().prox)
    for phase in algorithm.phases():
        message, total = phase.broadcast(server), None
        for client in range(SAMPLED):
            trace = _trace(algorithm, phase, x, message, client)
            upload, row = trace.upload, algorithm.init_server_row(x)
            if algorithm.server_rows and phase is algorithm:
                upload, kept = algorithm.receive(row, upload)
                calls.append(Call("receive", "the server's row", row, kept))
            total = upload if total is None else add(total, upload)
            calls += trace.calls
        if late:
            _trace(algorithm, phase, x, message, SAMPLED)
        renewed = phase.update(here, server, Received(total, SAMPLED))
        calls.append(Call("update", "the server's state", server, renewed))
        server = renewed
    return server, calls


def _trace(algorithm: Algorithm, phase: Phase, x: Tree, message: Tree, number: int) -> WatchedWork:
    def gradient(params: Tree) -> Tree:
        return map_trees(lambda leaf: (number + 1) * (leaf - number), params)

    def with_value(params: Tree) -> tuple[Any, Tree]:
        loss = squared_norm(map_trees(lambda leaf: leaf - number, params)) * ((number + 1) / 2)
        return loss, gradient(params)

    here = Local(CLIENTS, SAMPLED, zero().prox, BLOCKS, STEPS, gradient, number, _random.run_key(0))
    watched, table = Watched(phase), {0: algorithm.init_entry(x)} if phase.table else {}
    steps = [Step(ValuedGradient(gradient, with_value))] * (0 if phase.draw.steps == 0 else 2)
    walked = walk(watched, here, message, algorithm.init_client(x), steps, table)
    entries = [*table.values(), *[algorithm.init_entry(x)] * (BLOCKS - 1)]
    stacked = map_trees(lambda *entries: jnp.stack(entries), *entries) if phase.table else ()
    return WatchedWork(walked.upload, walked.client, stacked, watched.calls)


def _kind(tree: Tree) -> str:
    """Return structure, dtypes and shapes in words."""
    return str(jax.tree.map(lambda leaf: f"{jnp.asarray(leaf).dtype}{list(jnp.shape(leaf))}", tree))


def _apart(a: Tree, b: Tree) -> float:
    """Return the largest difference of two trees' numbers."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b))
    return max((float(np.max(np.abs(np.asarray(p) - np.asarray(q)), initial=0)) for p, q in pairs), default=0.0)


def same_structure(a: Tree, b: Tree) -> bool:
    """Whether two trees differ only in their leaves."""
    first: Any = jax.tree.structure(a)
    return bool(first == jax.tree.structure(b))


def _same(a: Any, b: Any) -> bool:
    """Whether two settings are equal; nested settings (transforms) by their leaves."""
    if a is b or (same_structure(a, 0) and a == b):
        return True
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b))
    return not same_structure(a, 0) and same_structure(a, b) and all(p == q for p, q in pairs)
