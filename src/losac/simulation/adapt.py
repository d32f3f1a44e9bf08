"""``losac.adapt``: convert a kept state for another run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from losac._devices import prepare_jax
from losac.algorithms.contract import Algorithm, Federation
from losac.simulation.engines.flat import unflatten
from losac.simulation.engines.identity import adaptable, fitted, identity_of
from losac.simulation.engines.resident import ResidentEngine, precision, state_shapes
from losac.simulation.options import Dtype, Gradients, SimulationOptions, TableDtype
from losac.simulation.placement.mesh import is_key
from losac.simulation.products.forms import formed_table
from losac.simulation.program.state import RunState
from losac.simulation.simulate import given_state
from losac.task import Task
from losac.trees import Tree, map_trees


def adapt(
    state: Any,
    task: Task,
    algorithm: Algorithm,
    *,
    clients_per_round: int | None = None,
    dtype: Dtype = "float32",
    gradients: Gradients = "auto",
    table_dtype: TableDtype | None = None,
) -> RunState:
    """Return a kept state as a consistent state of another run of the same algorithm.

    The model and all that the clients keep do not change. The server's sums over the clients are computed again
    from that: LoSAC's φ = κ Σ y with the κ of the new number of clients per round and scaling, SCAFFOLD's c, FedDyn's
    h, FedADMM's mean with the new ρ. Nothing is lost by that: the run ends where one from the start would have ended.

    It also converts a state to another precision, to changed data or weights (the clients' part is then as old as that
    of a client not drawn for long), and repairs what a very long run has lost to rounding.

    VRL-SGD, Scaffnew, TAMUNA, FedVARP, MIFA and FedADMM of Gong et al. keep sums that cannot be computed again.

    Args:
      state: the state to take, a history that has one, or its arrays by name.
      task, algorithm, clients_per_round, dtype, gradients, table_dtype: of the run that continues, as for
        :func:`losac.simulate`.

    >>> import losac
    >>> data = losac.data.load("digits", clients=10, partition="sorted")
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> algorithm = losac.algorithms.losac(step_size=1e-3, local_steps=4, blocks=5)
    >>> half = losac.simulate(task, algorithm, rounds=5, clients_per_round=5, keep_state=True)
    >>> state = losac.adapt(half, task, algorithm, clients_per_round=10)
    >>> losac.simulate(task, algorithm, rounds=5, clients_per_round=10, state=state).rounds.tolist()
    [5, 6, 7, 8, 9, 10]
    """
    prepare_jax()
    _, given = given_state(state)
    options = SimulationOptions.of(
        task, rounds=1, clients_per_round=clients_per_round, dtype=dtype, gradients=gradients, table_dtype=table_dtype
    )
    with precision(options.dtype):
        engine = ResidentEngine(task, algorithm, options)
        refuse(given, algorithm)
        n = task.data.num_clients
        own = state_shapes(engine.state, n)
        taken = fitted(own, unflatten(given, own) if isinstance(given, Mapping) else given)
        taken = map_trees(lambda a, b: b if is_key(a) else np.asarray(b).astype(a.dtype), own, taken)
        table = formed_table(engine.shape, engine.problem, taken.store.table) if algorithm.table else ()
        here = Federation(n, options.sampled, engine.problem.regularizer.prox)
        method = engine.problem.algorithm.at(int(taken.round))
        adapted: RunState = taken._replace(server=with_sums(method, here, taken.server, taken.store.rows.state, table))
        return adapted._replace(identity=engine.identity.sealed(adapted))


def refuse(given: Any, algorithm: Algorithm) -> None:
    """Refuse what cannot be adapted exactly."""
    belongs = identity_of(given)
    facts = dict(belongs.facts) if belongs is not None else {}
    if facts and (facts["algorithm"], facts["engine"]) != (algorithm.label, "jax"):
        raise ValueError(
            f"the given state is one of {facts['algorithm']} simulated by {facts['engine']}; adapt takes those of "
            f"{algorithm.label} by jax. Begin a new run from its model: Task(…, params=history.params)"
        )
    if not adaptable(algorithm):
        raise ValueError(
            f"{algorithm.label} keeps sums that cannot be formed again from what its clients keep; begin a new run "
            "from its model: Task(…, params=history.params)"
        )


def with_sums(algorithm: Algorithm, here: Federation, server: Tree, clients: Tree, table: Tree) -> Tree:
    """Return the server's state with its sums computed from the clients' states (arrays lead with N)."""
    x = algorithm.model(server)
    if not jax.tree.leaves((clients, table)):
        return server
    held = jax.vmap(partial(algorithm.holding, here, x))(clients, table)
    if not jax.tree.leaves(held):
        return server
    total = map_trees(lambda a: np.asarray(a, np.float64).sum(0).astype(a.dtype), held)
    blank = map_trees(jnp.asarray, algorithm.init(x))
    formed, probe = (algorithm.shift(here, blank, credit) for credit in (total, map_trees(np.ones_like, total)))

    def choose(old: Any, blank: Any, formed: Any, probe: Any) -> np.ndarray:
        is_a_sum = bool(jnp.any(blank != probe))
        return np.asarray(formed if is_a_sum else old, old.dtype)

    return map_trees(choose, server, blank, formed, probe)
