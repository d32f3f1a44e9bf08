"""One client's work in one phase: draw data, begin, step, end, send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from losac.algorithms.contract import Algorithm, Local, Phase
from losac.algorithms.transform import Transform
from losac.prox import Regularizer
from losac.simulation import drawing, layers, matrices
from losac.simulation.drawing import Rows, Stage
from losac.simulation.factoring import Factoring
from losac.simulation.objective import Batch, Cut, Objective
from losac.simulation.store import View
from losac.trees import Array, Tree, map_trees, sub


class PhaseShape(NamedTuple):
    """Static facts about a phase's local work; ``steps`` is None where clients differ in it or it is random.

    ``factoring`` says how gradients are kept as products; None: they are formed.
    """

    cut: Cut
    steps: int | None
    passes: int
    factoring: Factoring | None = None


class ClientShape(NamedTuple):
    """Static facts that a client's work depends on."""

    objective: Objective
    reduction: str
    clients: int
    sampled: int
    most_rows: int
    full: Cut
    phases: tuple[PhaseShape, ...]
    table_dtype: str | None = None

    def plain(self) -> ClientShape:
        """Return the shape of a client that forms all of its gradients."""
        return self._replace(phases=tuple(form._replace(factoring=None) for form in self.phases))


class Resident(NamedTuple):
    """The arrays of all clients that a client's work reads: data, weights N·p_i, steps [phases, N].

    Where only some clients are at hand, ``names`` says which client each place of these arrays holds: clients go by
    their places then, and only what is random goes by their names.
    """

    rows: Rows
    weight: Array
    steps: Array
    names: Array | None = None

    def name(self, place: Any) -> Any:
        """Return the client at a place."""
        return place if self.names is None else self.names[place]


class Row(NamedTuple):
    """What is kept for a client between rounds: by itself, by its upload's transforms, and by the server."""

    state: Tree
    transforms: Tree
    server: Tree


class Message(NamedTuple):
    """What the server sends: the algorithm's message and the model's state."""

    content: Tree
    model_state: Tree


class Visit(NamedTuple):
    """Which client works, in which phase of which algorithm, with which random key.

    ``secret`` is the key for private transforms; None, as in the simulator, where they too follow the seed.
    """

    algorithm: Algorithm
    phase: Phase
    place: int
    client: Array
    slot: Array
    key: Array
    common: Array
    steps: Any = None
    secret: Array | None = None


class Tally:
    """Counts the gradients that tracing a client's work asks for: per local step, and over the full local data."""

    def __init__(self) -> None:
        self.per_step = 0
        self.full = 0


def work(
    shape: ClientShape,
    resident: Resident,
    regularizer: Regularizer,
    visit: Visit,
    message: Message,
    row: Row,
    view: View | None,
) -> tuple[Message, Row, View | None]:
    """Return what a client contributes to the server's sum, and what is kept for it."""
    _, upload, row, view = send(shape, resident, regularizer, visit, message, row, view)
    if visit.phase is visit.algorithm:
        sent, kept = visit.algorithm.receive(row.server, upload.content)
        upload, row = upload._replace(content=sent), row._replace(server=kept)
    return upload, row, view


def send(
    shape: ClientShape,
    resident: Resident,
    regularizer: Regularizer,
    visit: Visit,
    message: Message,
    row: Row,
    view: View | None,
) -> tuple[Tree, Message, Row, View | None]:
    """Return the payload that travels, what the server reads in it, and what the client keeps."""
    here, stage, upload, row, view = train(shape, resident, regularizer, visit, message, row, view, Tally())
    transforms = visit.algorithm.transforms_of(visit.phase)
    if not transforms:
        return upload.content, upload, row, view
    if visit.phase is visit.algorithm:
        payload, sent, row, view = _transform(visit, here, stage, upload.content, row, view)
    else:
        keys = noise_key(visit.key), visit.secret
        payload, sent, _ = encode(transforms, keys, no_states(transforms), upload.content)
    return payload, upload._replace(content=sent), row, view


def train(
    shape: ClientShape,
    resident: Resident,
    regularizer: Regularizer,
    visit: Visit,
    message: Message,
    row: Row,
    view: View | None,
    tally: Tally,
) -> tuple[Local, Stage, Message, Row, View | None]:
    """Begin, take the local steps and end; return the upload as the algorithm makes it, and the client's new state."""
    phase, form = visit.phase, shape.phases[visit.place]
    steps = visit.steps if phase is visit.algorithm else None  # a random number of steps is the algorithm's own
    if steps is None:
        steps = resident.steps[visit.place, visit.client] if form.steps is None else form.steps
    stage = drawing.prepare(phase.draw, form.cut, resident.rows, visit.client, visit.key, form.passes, shape.most_rows)
    loss = _loss(shape, resident, visit)
    factoring = form.factoring
    given = message.content if factoring is None else matrices.shared(message.content, factoring.lazy_shapes)

    def full(params: Tree) -> Tree:
        tally.full += 1
        whole = drawing.whole(shape.full, resident.rows, visit.client)
        value = loss(whole, shape.full, (1, 1), visit.key, message.model_state)
        return jax.grad(value, has_aux=True)(matrices.formed(params, all_of_them=True))[0]

    here = Local(
        shape.clients, shape.sampled, regularizer.prox, phase.draw.blocks, steps, full, visit.slot, visit.common
    )
    local, state = phase.begin(here, given, row.state)

    def step(t: Any, carry: Any, drawn: Any = None) -> Any:
        local, model_state, view = carry
        j = stage.block(t) if drawn is None else drawn
        batch = stage.batch(j)
        key = jax.random.fold_in(jax.random.fold_in(visit.key, t), 1)
        value = loss(batch, form.cut, stage.factor(batch), key, model_state)
        traced = None if factoring is None else layers.trace(value, factoring.params(), factoring.layers)
        seen: list[tuple[Tree, Tree]] = []

        def grad(params: Tree) -> Tree:
            if factoring is None or traced is None:
                g, after = jax.grad(value, has_aux=True)(params)
            else:
                g, after = layers.gradient(traced, params, factoring.layers)
            if view is not None and shape.table_dtype is not None:
                g = matrices.rounded(g, shape.table_dtype, () if traced is None else traced.inputs.values())
            seen.append((g, after))
            return g

        if view is None:
            local = phase.step(here, given, state, local, grad)
        elif factoring is None or traced is None:
            old = map_trees(lambda a: a.astype(resident.weight.dtype), view.entry(t, j))
            local, y = phase.step(here, given, state, local, grad, old)
            view = view.replace(t, j, y)
        else:
            old = factoring.unpack(view.entry(t, j), traced)
            local, y = phase.step(here, given, state, local, grad, old)
            view = view.replace(t, j, factoring.pack(y, seen[-1][0]))
        tally.per_step = len(seen)
        return matrices.formed(local, all_of_them=False), seen[0][1] if seen else model_state, view

    carry = (local, message.model_state, view)
    if factoring is not None and factoring.lazy_shapes and form.steps is not None:
        drawn = jax.vmap(stage.block)(jnp.arange(form.steps))
        for t in range(form.steps):
            carry = step(t, carry, drawn[t])
    elif form.steps != 0:
        carry = jax.lax.fori_loop(0, steps, step, carry)
    local, model_state, view = carry
    upload, state = phase.end(here, given, state, local)
    if factoring is not None:
        upload, state = matrices.sent(upload, given), matrices.formed(state, all_of_them=True)
    sent = Message(upload, sub(model_state, message.model_state))
    return here, stage, sent, row._replace(state=state), view


Keys = tuple[Array, "Array | None"]
"""A random key, and another for private transforms where it must not follow from the seed."""


def encode(
    transforms: tuple[Transform, ...], keys: Keys, states: Tree, upload: Tree
) -> tuple[Tree, Tree, tuple[Tree, ...]]:
    """Pass an upload through transforms; return the last payload, what it decodes to, and the states."""
    payload, kept = upload, []
    for place, (transform, state) in enumerate(zip(transforms, states)):
        key = keys[1] if transform.private and keys[1] is not None else keys[0]
        payload, state = transform.encode(jax.random.fold_in(key, place), state, upload)
        upload = transform.decode(payload)
        kept.append(state)
    return payload, upload, tuple(kept)


def summed(transforms: tuple[Transform, ...], key: Array, total: Tree) -> Tree:
    """Return the sum of a phase's uploads as the server uses it."""
    for place, transform in enumerate(transforms):
        total = transform.summed(jax.random.fold_in(key, place), total)
    return total


def noise_key(key: Array) -> Array:
    """Return the key of a client's transforms from its key in the phase."""
    return jax.random.fold_in(key, 2**31 - 1)


def no_states(transforms: tuple[Transform, ...]) -> tuple[Tree, ...]:
    """Return the states of transforms in phases other than the algorithm's own, where they keep none."""
    return ((),) * len(transforms)


def _transform(
    visit: Visit, here: Local, stage: Stage, upload: Tree, row: Row, view: View | None
) -> tuple[Tree, Tree, Row, View | None]:
    """Transform the upload, and let the client record what was really sent."""
    algorithm = visit.algorithm
    keys = noise_key(visit.key), visit.secret
    payload, sent, kept = encode(algorithm.transforms(), keys, row.transforms, upload)
    if view is None:
        (state,) = algorithm.record(here, upload, sent, row.state)
    else:
        last = here.steps - 1
        j = stage.block(last)
        state, y = algorithm.record(here, upload, sent, row.state, view.entry(last, j))
        view = view.replace(last, j, y)
    return payload, sent, row._replace(state=state, transforms=kept), view


Value = Callable[[Tree], tuple[Array, Tree]]
"""Parameters → the value to differentiate, and the model's next state."""


def _loss(shape: ClientShape, resident: Resident, visit: Visit) -> Callable[..., Value]:
    """Return, as a function of a batch, factor · N·p_i · (the sum, or sum / n_i, of the losses of the batch)."""
    weight: Any = 1.0 if averages_by_weight(visit.phase) else resident.weight[visit.client]
    if shape.reduction == "mean":
        weight = weight / resident.rows.size[visit.client]

    def of(batch: Batch, cut: Cut, factor: tuple[Any, Any], key: Array, model_state: Tree) -> Value:
        def value(params: Tree) -> tuple[Array, Tree]:
            total, after = shape.objective.total(params, batch, cut, key, model_state)
            return total * jnp.asarray(weight * factor[0] / factor[1], total.dtype), after

        return value

    return of


def averages_by_weight(phase: Phase) -> bool:
    """Whether the client weights act in the average of the uploads instead of in the loss."""
    return getattr(phase, "weighting", "loss") == "average"
