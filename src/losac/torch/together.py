"""All clients of a phase at once: the algorithm's functions and the module's gradients under ``torch.func.vmap``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from losac.algorithms.contract import Algorithm, Federation, Local, Phase
from losac.federation.eager import plain
from losac.federation.shapes import own_place
from losac.federation.work import Kept
from losac.torch.courses import Courses, Drawn
from losac.torch.trees import over_clients, tensors, torch
from losac.trees import Tree, map_trees


class Model(NamedTuple):
    """What gradients are computed of: the module and its loss, on the rows of all clients."""

    module: Any
    loss: Callable[[Any, Any], Any]
    x: Any
    y: Any

    def gradient(self, params: Tree, lot: Lot) -> Tree:
        """Return the gradient of the weighted sum of the losses of one client's lot of rows."""
        pytorch = torch()

        def value(params: Tree) -> Any:
            outputs = pytorch.func.functional_call(self.module, params, (self.x[lot.rows],))
            if lot.even:
                return self.loss(outputs, self.y[lot.rows]) * lot.weight.sum()
            each = pytorch.func.vmap(lambda o, y: self.loss(o[None], y[None]))(outputs, self.y[lot.rows])
            return (each * lot.weight).sum()

        return pytorch.func.grad(value)(params)


class Lot(NamedTuple):
    """Rows [B] and the weights of their losses, the same for all where the lot is even."""

    rows: Any
    weight: Any
    even: bool


class Turn(NamedTuple):
    """One phase of one round for several clients: ``share`` [S] is the factor on each one's loss."""

    now: Algorithm
    phase: Phase
    here: Federation
    courses: Courses
    share: np.ndarray


def work(model: Model, turn: Turn, message: Tree, state: Tree, table: Tree) -> tuple[Tree, Tree]:
    """Return the uploads and the states of all clients of a phase, led by these.

    Args:
      model: what gradients are computed of.
      turn: who works, and at what.
      message: what the server sends, as tensors.
      state: the clients' states [S, …].
      table: the tables of all clients of the federation [N, M, …], changed in place.
    """
    pytorch, phase, who = torch(), turn.phase, turn.courses.who
    device, steps = model.x.device, who.steps
    same = int(steps.min()) == int(steps.max())
    slots = pytorch.arange(len(who.ids), device=device)
    counts = pytorch.tensor(steps, device=device, dtype=pytorch.float64 if turn.share.itemsize == 8 else None)
    whole = _lots(turn, turn.courses.whole(), device)
    shared = slots, counts, (whole.rows, whole.weight)

    def local_view(slot: Any, count: Any, lot: tuple[Any, Any]) -> Local:
        def full(params: Tree) -> Tree:
            return model.gradient(params, Lot(lot[0], lot[1], whole.even))

        number = int(steps[0]) if same else count
        return Local(turn.here.clients, turn.here.sampled, turn.here.prox, phase.draw.blocks, number, full, slot, None)

    def begin(shared: Any, state: Tree) -> tuple[Tree, Tree]:
        return phase.begin(local_view(*shared), message, state)

    local, state = over_clients(begin, shared, state)
    ids = pytorch.tensor(who.ids, device=device)
    for t in range(int(steps.max(initial=0))):
        drawn = turn.courses.step(t)
        lots = _lots(turn, drawn, device)

        def step(shared: Any, state: Tree, local: Tree, lot: Any, entry: Any, even: bool = lots.even) -> Any:
            def grad(params: Tree) -> Tree:
                return model.gradient(params, Lot(lot[0], lot[1], even))

            return phase.step(local_view(*shared), message, state, local, grad, *entry)

        j = pytorch.tensor(drawn.block, device=device)
        entry = (map_trees(lambda a, j=j: a[ids, j], table),) if phase.table else ()
        after = over_clients(step, shared, state, local, (lots.rows, lots.weight), entry)
        if t >= steps.min():
            going = pytorch.tensor(t < steps, device=device)
            after = map_trees(
                lambda new, old, going=going: _where(going, new, old), after, (local, *entry) if entry else local
            )
        local = after
        if entry:
            local, y = after
            map_trees(lambda a, v, j=j: a.__setitem__((ids, j), v), table, y)

    def end(shared: Any, state: Tree, local: Tree) -> tuple[Tree, Tree]:
        return phase.end(local_view(*shared), message, state, local)

    return over_clients(end, shared, state, local)


def _lots(turn: Turn, drawn: Drawn, device: Any) -> Lot:
    """Return the lots of all clients [S, B]."""
    weight = drawn.real * (turn.share * drawn.factor)[:, None]
    rows, weight = (torch().tensor(a, device=device) for a in (drawn.rows, weight.astype(turn.share.dtype)))
    return Lot(rows, weight, bool(drawn.real.all()))


def _where(going: Any, new: Any, old: Any) -> Any:
    return torch().where(going.reshape(-1, *(1,) * (new.ndim - 1)), new, old)


def why_not(model: Model, algorithm: Algorithm, params: Tree, kept: Kept, here: Federation) -> str:
    """Return why the clients must work one after the other; empty where they may work together."""
    if algorithm.transforms():
        return "the uploads are transformed, client by client"
    if getattr(algorithm, "local_optimizer", None):
        return "the local steps are those of an optax optimiser, which takes no tensors"
    device = model.x.device
    return _algorithm_refuses(algorithm, params, kept, here, device) or _module_refuses(model, tensors(params, device))


def _algorithm_refuses(algorithm: Algorithm, params: Tree, kept: Kept, here: Federation, device: Any) -> str:
    """Let two clients go through every phase at once, with no gradients; the server's functions see NumPy arrays."""
    now = plain(algorithm, 0)
    server, row = now.init(params), tensors(now.init_server_row(params), device)
    two = map_trees(lambda a: a.expand(2, *a.shape), (kept, row))

    def walk(place: int, slot: Any, kept: Kept, row: Tree) -> Tree:
        def grad(x: Tree) -> Tree:
            return map_trees(lambda a: a * 0 + slot * 0, x)

        phase = now.phases()[place]
        local_view = Local(*here, phase.draw.blocks, 1, grad, slot, None)
        message = tensors(phase.broadcast(server), device)
        local, state = phase.begin(local_view, message, kept.state)
        if phase.draw.steps != 0:
            entry = (map_trees(lambda a: a[0], kept.table),) if phase.table else ()
            local = phase.step(local_view, message, state, local, grad, *entry)
            local = local[0] if phase.table else local
        upload, state = phase.end(local_view, message, state, local)
        return (now.receive(row, upload) if place == own_place(now) else upload), state

    try:
        for place in range(len(now.phases())):
            over_clients(partial(walk, place), torch().arange(2, device=device), *two)
    except Exception as error:
        return f"some functions of {algorithm.label}, or of the regulariser, cannot be vectorised ({error})"
    return ""


def _module_refuses(model: Model, params: Tree) -> str:
    """Compare the gradients of two clients at once, one with a row too few, with those of one after the other."""
    pytorch, n = torch(), len(model.x)
    places = np.linspace(0, n - 1, min(n, 12)).astype(int)
    rows = np.stack([places, np.r_[places[:-1], places[0]] if n > 1 else places])
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
