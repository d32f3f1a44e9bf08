"""All clients of a phase at once: the algorithm's functions and the module's gradients under ``torch.func.vmap``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from losac.algorithms.contract import Algorithm, Federation, Local, Phase, ValuedGradient, valued
from losac.algorithms.walk import Step, walk
from losac.federation.draws import plain
from losac.federation.work import Kept
from losac.torch.courses import Courses, Drawn
from losac.torch.trees import over_clients, tensors, torch
from losac.trees import Tree, map_trees


class Network(NamedTuple):
    """The function to differentiate: the module and its loss, on the rows of all clients."""

    module: Any
    loss: Callable[[Any, Any], Any]
    x: Any
    y: Any

    def gradient(self, params: Tree, lot: Lot) -> Tree:
        """Return the gradient of the weighted sum of the losses of one client's lot of rows."""
        return self.with_value(params, lot)[1]

    def with_value(self, params: Tree, lot: Lot) -> tuple[Any, Tree]:
        """Return that sum and its gradient."""
        pytorch = torch()

        def value(params: Tree) -> Any:
            outputs = pytorch.func.functional_call(self.module, params, (self.x[lot.rows],))
            if lot.even:
                return self.loss(outputs, self.y[lot.rows]) * lot.weight.sum()
            each = pytorch.func.vmap(lambda o, y: self.loss(o[None], y[None]))(outputs, self.y[lot.rows])
            return (each * lot.weight).sum()

        found, total = pytorch.func.grad_and_value(value)(params)
        return total, found


class Lot(NamedTuple):
    """Rows [B] and the weights of their losses, the same for all if the lot is even."""

    rows: Any
    weight: Any
    even: bool


class PhaseWork(NamedTuple):
    """One phase of one round for several clients: ``share`` [S] is the factor on each one's loss."""

    now: Algorithm
    phase: Phase
    here: Federation
    courses: Courses
    share: np.ndarray


class OverClients:
    """The functions of a phase for all of its clients at once: what they take and return leads with the clients.

    ``here`` is a tree of arrays; ``local_view`` makes from it what one client knows. Instead of a gradient function, a
    step takes the lots of all clients, and which of them still take steps.
    """

    def __init__(self, model: Network, phase: Phase, local_view: Callable[..., Local]) -> None:
        self.model, self.phase, self.local_view, self.table = model, phase, local_view, phase.table

    def begin(self, here: Any, message: Tree, client: Tree) -> tuple[Tree, Tree]:
        """Return the local variables and the states of all clients."""

        def one(here: Any, client: Tree) -> tuple[Tree, Tree]:
            return self.phase.begin(self.local_view(*here), message, client)

        return over_clients(one, here, client)

    def step(self, here: Any, message: Tree, client: Tree, local: Tree, grad: tuple[Lot, Any], *y: Tree) -> Tree:
        """Return the local variables after a step; those of clients that take no more steps do not change."""
        lots, going = grad

        def one(here: Any, client: Tree, local: Tree, lot: Any, entry: Any) -> Any:
            mine = Lot(lot[0], lot[1], lots.even)
            gradient = ValuedGradient(
                lambda params: self.model.gradient(params, mine), lambda params: self.model.with_value(params, mine)
            )
            return self.phase.step(self.local_view(*here), message, client, local, gradient, *entry)

        after = over_clients(one, here, client, local, (lots.rows, lots.weight), y)
        if going is None:
            return after
        return map_trees(lambda new, old: _where(going, new, old), after, (local, *y) if y else local)

    def end(self, here: Any, message: Tree, client: Tree, local: Tree) -> tuple[Tree, Tree]:
        """Return the uploads and the next states of all clients."""

        def one(here: Any, client: Tree, local: Tree) -> tuple[Tree, Tree]:
            return self.phase.end(self.local_view(*here), message, client, local)

        return over_clients(one, here, client, local)


class Tables:
    """The tables of all clients of the federation [N, M, …]; those of some clients are read and changed in place."""

    def __init__(self, table: Tree, ids: Any) -> None:
        self.table, self.ids = table, ids

    def __getitem__(self, j: Any) -> Tree:
        """Return every client's y_j, with a block j for each client."""
        return map_trees(lambda a: a[self.ids, j], self.table)

    def __setitem__(self, j: Any, y: Tree) -> None:
        """Replace every client's y_j."""
        map_trees(lambda a, v: a.__setitem__((self.ids, j), v), self.table, y)


def work(model: Network, work: PhaseWork, message: Tree, state: Tree, table: Tree) -> tuple[Tree, Tree]:
    """Return the uploads and the states of all clients of a phase; arrays lead with the clients.

    Args:
      model: the function to differentiate.
      work: the clients, and their work.
      message: what the server sends, as tensors.
      state: the clients' states [S, …].
      table: the tables of all clients of the federation [N, M, …], changed in place.
    """
    pytorch, phase, who = torch(), work.phase, work.courses.who
    device, counts = model.x.device, who.steps
    same = int(counts.min()) == int(counts.max())
    slots = pytorch.arange(len(who.ids), device=device)
    steps = pytorch.tensor(counts, device=device, dtype=pytorch.float64 if work.share.itemsize == 8 else None)
    whole = _lots(work, work.courses.whole(), device)

    def local_view(slot: Any, count: Any, lot: tuple[Any, Any]) -> Local:
        def full(params: Tree) -> Tree:
            return model.gradient(params, Lot(lot[0], lot[1], whole.even))

        number = int(counts[0]) if same else count
        return Local(work.here.clients, work.here.sampled, work.here.prox, phase.draw.blocks, number, full, slot, None)

    def one_by_one() -> Iterator[Step]:
        for t in range(int(counts.max(initial=0))):
            drawn = work.courses.step(t)
            going = None if t < counts.min() else pytorch.tensor(t < counts, device=device)
            yield Step((_lots(work, drawn, device), going), pytorch.tensor(drawn.block, device=device))

    here, tables = (slots, steps, (whole.rows, whole.weight)), Tables(table, pytorch.tensor(who.ids, device=device))
    walked = walk(OverClients(model, phase, local_view), here, message, state, one_by_one(), tables)
    return walked.upload, walked.client


def _lots(work: PhaseWork, drawn: Drawn, device: Any) -> Lot:
    """Return the lots of all clients [S, B]."""
    weight = drawn.real * (work.share * drawn.factor)[:, None]
    rows, weight = (torch().tensor(a, device=device) for a in (drawn.rows, weight.astype(work.share.dtype)))
    return Lot(rows, weight, bool(drawn.real.all()))


def _where(going: Any, new: Any, old: Any) -> Any:
    return torch().where(going.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def why_not(model: Network, algorithm: Algorithm, params: Tree, kept: Kept, here: Federation) -> str:
    """Return why the clients must work one after the other; empty if they may work together."""
    if algorithm.transforms():
        return "the uploads are transformed, client by client"
    if getattr(algorithm, "local_optimizer", None):
        return "the local steps are those of an optax optimiser, which takes no tensors"
    device = model.x.device
    return _algorithm_refuses(algorithm, params, kept, here, device) or _module_refuses(model, tensors(params, device))


def _algorithm_refuses(algorithm: Algorithm, params: Tree, kept: Kept, federation: Federation, device: Any) -> str:
    """Run two clients through every phase at once, with gradients of zero; the server's functions see NumPy arrays."""
    now = plain(algorithm, 0)
    server, row = now.init(params), tensors(now.init_server_row(params), device)
    two = map_trees(lambda a: a.expand(2, *a.shape), (kept, row))

    def one(phase_index: int, slot: Any, kept: Kept, row: Tree) -> Tree:
        def grad(x: Tree) -> Tree:
            return map_trees(lambda a: a * 0 + slot * 0, x)

        phase = now.phases()[phase_index]
        here = Local(*federation, phase.draw.blocks, 1, grad, slot, None)
        steps = [Step(valued(grad))] if phase.draw.steps != 0 else []
        table = {0: map_trees(lambda a: a[0], kept.table)} if phase.table else None
        walked = walk(phase, here, tensors(phase.broadcast(server), device), kept.state, steps, table)
        upload, state = walked.upload, walked.client
        return (now.receive(row, upload) if phase is now else upload), state

    try:
        for phase_index in range(len(now.phases())):
            over_clients(partial(one, phase_index), torch().arange(2, device=device), *two)
    except Exception as error:
        return f"some functions of {algorithm.label}, or of the regulariser, cannot be vectorised ({error})"
    return ""


def _module_refuses(model: Network, params: Tree) -> str:
    """Compare the gradients of two clients at once, one with a row too few, with those of one after the other."""
    pytorch, n = torch(), len(model.x)
    positions = np.linspace(0, n - 1, min(n, 12)).astype(int)
    rows = np.stack([positions, np.r_[positions[:-1], positions[0]] if n > 1 else positions])
    real = np.ones_like(rows, bool)
    real[1, -1] = n == 1
    weight = real / real.sum(1, keepdims=True)
    model.module.train()
    try:
        one = next(iter(params.values()))
        lots = (pytorch.tensor(rows, device=one.device), pytorch.tensor(weight, dtype=one.dtype, device=one.device))
        found = over_clients(lambda lot: model.gradient(params, Lot(lot[0], lot[1], False)), lots)
        for client in range(2):
            own = pytorch.tensor(rows[client][real[client]], device=one.device)
            leaves = {name: p.detach().clone().requires_grad_() for name, p in params.items()}
            value = model.loss(pytorch.func.functional_call(model.module, leaves, (model.x[own],)), model.y[own])
            wanted = pytorch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
            exact = 1e-9 if one.dtype == pytorch.float64 else 1e-4
            for name, g in zip(leaves, wanted):
                if not pytorch.allclose(found[name][client], g, rtol=exact, atol=exact * float(g.abs().max())):
                    return "the module or the loss couples the rows of a batch"
    except (RuntimeError, ValueError) as error:
        return f"the module or the loss cannot be vectorised ({str(error).splitlines()[0]})"
    return ""
