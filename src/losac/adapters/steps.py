"""The local steps of clients on adapters: those of FedAvg, on A, on B or on both."""

from __future__ import annotations

from typing import Any, Literal

import jax
import numpy as np

from losac import _random
from losac._settings import choice
from losac.algorithms import descent, fedavg
from losac.algorithms.contract import Algorithm, Gradient, Local
from losac.algorithms.descent import Walk
from losac.simulation.program.cache import tracked
from losac.simulation.program.client import ClientShape, ClientState, ClientTurn, Message, send
from losac.simulation.program.setup import cast_numbers
from losac.simulation.program.state import ProgramInputs
from losac.trees import Array, Tree, add, map_trees

Parts = Literal["both", "a", "b"]
PARTS: tuple[Parts, ...] = ("both", "a", "b")


class AdapterSteps(fedavg):
    """FedAvg's local steps on some factors of the adapters; the others do not move."""

    parts: Parts = choice(default="both", choices=("both", "a", "b"), kw_only=True)

    def step(self, here: Local, x: Tree, client: Tree, local: Walk, grad: Gradient) -> Walk:
        """Take one step, and put what is not trained back to where it was."""
        walk = descent.descend(self, local, grad(local.w))
        return walk._replace(w=only(self.parts, walk.w, x))


def only(parts: str, new: Tree, old: Tree) -> Tree:
    """Return new parameters, with the factors that are not trained as they were."""

    def one(path: Any, new: Array, old: Array) -> Array:
        return new if parts == "both" or len(path) == 1 or path[-1].key == parts else old

    return jax.tree_util.tree_map_with_path(one, new, old)


def with_parts(algorithm: Algorithm, parts: Parts, dtype: Any) -> Any:
    """Return FedAvg's local steps on some factors, with numbers of the run's dtype."""
    return cast_numbers(AdapterSteps(**algorithm.settings(), parts=parts), dtype)


@tracked(static=1)
def _work(shape: ClientShape, problem: ProgramInputs, key: Array, round_index: Array, starts: Tree, ids: Array) -> Tree:
    algorithm: Any = problem.algorithm.at(round_index)
    of_phase = _random.phase_key(_random.round_key(key, round_index), 0)

    def one(given: tuple[Array, Array, Tree]) -> Tree:
        client, slot, start = given
        mine, common = _random.client_key(of_phase, client), _random.common_key(of_phase, shape.clients)
        turn = ClientTurn(algorithm, algorithm, 0, client, slot, mine, common)
        nothing = ClientState((), (), ())
        upload = send(shape, problem.resident, problem.regularizer, turn, Message(start), nothing, None)[1]
        return add(start, upload.content)

    return jax.lax.map(one, (ids, jax.numpy.arange(ids.shape[0], dtype=ids.dtype), starts))


def clients_work(
    shape: ClientShape, problem: ProgramInputs, key: Array, round_index: int, starts: Tree, ids: np.ndarray
) -> Tree:
    """Return the local models of some clients after a round's steps, which begin at ``starts``; all lead with S."""
    numbers = np.int32(round_index), map_trees(jax.numpy.asarray, starts), np.asarray(ids, np.int32)
    found: Tree = _work(shape, problem, key, *numbers)
    return found
