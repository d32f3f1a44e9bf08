"""A client that protects itself: clipping and noise by its own choice, with any algorithm at the server."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import jax
from flwr.app import Context, Message

from losac.algorithms.contract import Algorithm
from losac.algorithms.transform import Transform
from losac.federation.shapes import payload_like
from losac.federation.work import Worker

Handler = Callable[[Message, Context], Message]
Mod = Callable[[Message, Context, Handler], Message]

OWN: ContextVar[tuple[Transform, ...]] = ContextVar("losac.flower.private", default=())
"""The transforms that mods have asked for, for the message that is being answered."""


def private(transform: Transform) -> Mod:
    """Return a Flower mod, for ``client_app(…, mods=[private(gaussian(clip, noise_multiplier))])``.

    It hands the transform to the app, which puts it first among those of the algorithm's uploads: the noise is there
    before the client stores its state, so the state records what was sent. A mod that changed the outgoing
    reply would come too late for that. The server need not know: messages look as before.

    Args:
      transform: one without a state, such as :class:`losac.algorithms.gaussian` with its noise at the client.
    """
    kind = type(transform)
    if kind.decode is not Transform.decode or kind.init is not Transform.init:
        raise ValueError(f"{transform} needs a server that decodes it, or keeps a state: give it to both as `uploads`")
    if transform.on_the_sum:
        raise ValueError(f"{transform} leaves the noise to the server, which knows nothing of it: use it at the client")

    def mod(message: Message, context: Context, call_next: Handler) -> Message:
        token = OWN.set((*OWN.get(), transform))
        try:
            return call_next(message, context)
        finally:
            OWN.reset(token)

    return mod


def protected(worker: Worker, transforms: tuple[Transform, ...]) -> Worker:
    """Return a worker whose uploads pass through transforms first; refuse transforms that the server would reject."""
    if not transforms:
        return worker
    before: Any = worker.algorithm
    after: Algorithm = before.replace(uploads=(*transforms, *before.uploads))
    for phase_index in range(len(before.phases())):
        sent, due = (_shapes(payload_like(method, phase_index, worker.params, 2, 2)) for method in (after, before))
        if sent != due:
            raise ValueError(
                f"{before.label} compresses its uploads before a transform of the client's own could act, and the "
                "server could not read them after it: use a method that does not compress"
            )
    return worker.with_algorithm(after)


def _shapes(tree: Any) -> Any:
    return jax.tree.structure(tree), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]
