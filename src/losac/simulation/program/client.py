"""One client's work in one phase: draw data, begin, step, end, send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, Key, Num

from losac import _random
from losac.algorithms.contract import Algorithm, Local, Phase, ValuedGradient, checked_upload
from losac.algorithms.transform import Transform
from losac.prox import Regularizer
from losac.simulation.placement.store import View
from losac.simulation.products import layers, matrices
from losac.simulation.products.factoring import Factoring
from losac.simulation.program import drawing
from losac.simulation.program.drawing import LocalData, Rows
from losac.simulation.program.objective import Batch, Cut, Objective
from losac.trees import Array, Tree, map_trees, sub, zeros


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

    If only some clients are loaded, ``names`` says which client each index of these arrays holds: clients are then
    addressed by index, and only random draws use their names.
    """

    rows: Rows
    weight: Float[Array, " clients"]
    steps: Int[Array, "phases clients"]
    names: Int[Array, " clients"] | None = None

    def name(self, index: Any) -> Any:
        """Return the client at an index of the arrays."""
        return index if self.names is None else self.names[index]


class ClientState(NamedTuple):
    """What is kept for a client between rounds: by the client, by its upload's transforms, and by the server."""

    state: Tree
    transforms: Tree
    server: Tree


class Message(NamedTuple):
    """What the server sends, or a client: the algorithm's message, and the model's state or its change."""

    content: Tree
    model_state: Tree = ()


class ClientTurn(NamedTuple):
    """Which client works, with its algorithm, phase and random key.

    ``secret`` is the key for private transforms; None, as in the simulator, where they too follow the seed.
    """

    algorithm: Algorithm
    phase: Phase
    phase_index: int
    client: Int[Array, ""]
    slot: Int[Array, ""]
    key: Key[Array, ""]
    common: Key[Array, ""]
    steps: Num[Array, ""] | None = None
    secret: Key[Array, ""] | None = None


class Tally:
    """Counts the gradients that tracing a client's work asks for: per local step, and over the full local data."""

    def __init__(self) -> None:
        self.per_step = 0
        self.full = 0


def work(
    shape: ClientShape,
    resident: Resident,
    regularizer: Regularizer,
    visit: ClientTurn,
    message: Message,
    row: ClientState,
    view: View | None,
) -> tuple[Message, ClientState, View | None]:
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
    visit: ClientTurn,
    message: Message,
    row: ClientState,
    view: View | None,
) -> tuple[Tree, Message, ClientState, View | None]:
    """Return the payload that travels, what the server reads in it, and what the client keeps."""
    here, stage, upload, row, view = train(shape, resident, regularizer, visit, message, row, view, Tally())
    transforms = visit.algorithm.transforms_of(visit.phase)
    if not transforms:
        return upload.content, upload, row, view
    if visit.phase is visit.algorithm:
        payload, sent, row, view = _transform(visit, here, stage, upload.content, row, view)
    else:
        payload, sent, _ = encode(transforms, _keys(visit), no_states(transforms), upload.content)
    return payload, upload._replace(content=sent), row, view


def train(
    shape: ClientShape,
    resident: Resident,
    regularizer: Regularizer,
    visit: ClientTurn,
    message: Message,
    row: ClientState,
    view: View | None,
    tally: Tally,
) -> tuple[Local, LocalData, Message, ClientState, View | None]:
    """Begin, take the local steps and end; return the upload as the algorithm makes it, and the client's new state."""
    phase, form = visit.phase, shape.phases[visit.phase_index]
    steps = _steps(shape, resident, visit)
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
        key = _random.model_key(visit.key, t)
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

        def with_value(params: Tree) -> tuple[Array, Tree]:
            (found, after), g = jax.value_and_grad(value, has_aux=True)(matrices.formed(params, all_of_them=True))
            seen.append((g, after))
            return found, g

        gradient = ValuedGradient(grad, with_value)
        if view is None:
            local = phase.step(here, given, state, local, gradient)
        elif factoring is None or traced is None:
            old = map_trees(lambda a: a.astype(resident.weight.dtype), view.entry(t, j))
            local, y = phase.step(here, given, state, local, gradient, old)
            view = view.replace(t, j, y)
        else:
            old = factoring.unpack(view.entry(t, j), traced)
            local, y = phase.step(here, given, state, local, gradient, old)
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
    sent = Message(checked_upload(visit.algorithm, upload), sub(model_state, message.model_state))
    return here, stage, sent, row._replace(state=state), view


def settle(
    shape: ClientShape,
    resident: Resident,
    regularizer: Regularizer,
    visit: ClientTurn,
    upload: Tree,
    accepted: Tree,
    row: ClientState,
    view: View | None,
) -> tuple[ClientState, View | None]:
    """Return what a client keeps once it knows how much of its upload the server used."""
    form, phase = shape.phases[visit.phase_index], visit.phase
    stage = drawing.prepare(phase.draw, form.cut, resident.rows, visit.client, visit.key, form.passes, shape.most_rows)
    here = Local(
        shape.clients, shape.sampled, regularizer.prox, phase.draw.blocks, _steps(shape, resident, visit), zeros,
        visit.slot, visit.common,
    )  # fmt: skip
    return _recorded(visit, here, stage, upload, accepted, row, view)


def _steps(shape: ClientShape, resident: Resident, visit: ClientTurn) -> Any:
    """Return a client's number of local steps."""
    static = shape.phases[visit.phase_index].steps
    if visit.phase is visit.algorithm and visit.steps is not None:  # a random number of steps is the algorithm's own
        return visit.steps
    return resident.steps[visit.phase_index, visit.client] if static is None else static


class Keys(NamedTuple):
    """The random keys of a client's transforms: its own, that of all clients of the phase, and one for private
    transforms where it must not follow from the seed."""

    own: Key[Array, ""]
    common: Key[Array, ""]
    secret: Key[Array, ""] | None = None

    def of(self, transform: Transform) -> Key[Array, ""]:
        """Return the key that a transform draws from."""
        if transform.private and self.secret is not None:
            return self.secret
        return self.common if transform.common else self.own


def encode(
    transforms: tuple[Transform, ...], keys: Keys, states: Tree, upload: Tree
) -> tuple[Tree, Tree, tuple[Tree, ...]]:
    """Pass an upload through transforms; return the last payload, what it decodes to, and the states."""
    payload, kept = upload, []
    for k, (transform, state) in enumerate(zip(transforms, states)):
        payload, state = transform.encode(_random.transform_key(keys.of(transform), k), state, upload)
        upload = transform.decode(payload)
        kept.append(state)
    return payload, upload, tuple(kept)


def summed(transforms: tuple[Transform, ...], key: Key[Array, ""], total: Tree) -> Tree:
    """Return the sum of a phase's uploads as the server uses it."""
    for k, transform in enumerate(transforms):
        total = transform.summed(_random.transform_key(key, k), total)
    return total


def noise_key(key: Array) -> Array:
    """Return the key of a client's transforms from its key in the phase."""
    return _random.noise_key(key)


def _keys(visit: ClientTurn) -> Keys:
    return Keys(noise_key(visit.key), noise_key(visit.common), visit.secret)


def no_states(transforms: tuple[Transform, ...]) -> tuple[Tree, ...]:
    """Return the states of transforms in phases other than the algorithm's own, if they keep none."""
    return ((),) * len(transforms)


def _transform(
    visit: ClientTurn, here: Local, stage: LocalData, upload: Tree, row: ClientState, view: View | None
) -> tuple[Tree, Tree, ClientState, View | None]:
    """Transform the upload, and let the client record what was really sent."""
    algorithm = visit.algorithm
    payload, sent, kept = encode(algorithm.transforms(), _keys(visit), row.transforms, upload)
    row, view = _recorded(visit, here, stage, upload, sent, row._replace(transforms=kept), view)
    return payload, sent, row, view


def _recorded(
    visit: ClientTurn, here: Local, stage: LocalData, upload: Tree, sent: Tree, row: ClientState, view: View | None
) -> tuple[ClientState, View | None]:
    """Return what the client keeps where something else than its upload counts."""
    state, change = visit.algorithm.record(here, upload, sent, row.state)
    if view is not None and jax.tree.leaves(change):
        view = view.spread(stage.block, here.steps, change)
    return row._replace(state=state), view


Value = Callable[[Tree], tuple[Array, Tree]]
"""Parameters → the value to differentiate, and the model's next state."""


def _loss(shape: ClientShape, resident: Resident, visit: ClientTurn) -> Callable[..., Value]:
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
