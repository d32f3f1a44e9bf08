"""The contract of an algorithm: pure functions for what the server keeps and sends, and what a client does with it.

An algorithm is a frozen pytree (:class:`losac._settings.Settings`): its numbers are leaves, its counts static. One
round is a list of phases, almost always one, and a phase goes

    server ── broadcast ──▶ message ── begin ▶ step … step ▶ end ──▶ upload ── Σ over clients ──▶ update ──▶ server

The functions use operators only, so the same ones run under JAX, NumPy and PyTorch; the caller (the compiled
simulator, a Flower client) supplies the loop, the gradients and the random numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Self

import jax
from jaxtyping import Int, Key, Num

from losac._checks import shown
from losac._settings import POSITIVE, Number, Settings, choice, count, node, number, snake_case
from losac.algorithms.aggregation import Stage, check_stages
from losac.algorithms.facts import Axis, Example, Scale, Theory
from losac.algorithms.parts import parts
from losac.algorithms.transform import Transform
from losac.trees import Array, OfBlocks, OfClients, Tree, squared_norm, zeros

SAMPLED = "clients_per_round"
STEPS = frozenset({"step_size", "local_steps", "blocks", "batch_size", "epochs", "clip_norm", "local_optimizer"})
"""The settings of the local steps and of their data."""

Gradient = Callable[[Tree], Tree]
Clients = Literal["sample", "same", "all"]


class ValuedGradient:
    """A gradient that can return the loss too: ``g(w)`` and ``g.with_value(w)``, for the cost of one gradient."""

    def __init__(self, gradient: Gradient, with_value: Callable[[Tree], tuple[Any, Tree]]) -> None:
        self.gradient, self.with_value = gradient, with_value

    def __call__(self, w: Tree) -> Tree:
        """Return the gradient."""
        return self.gradient(w)


def valued(gradient: Gradient) -> ValuedGradient:
    """Return a gradient with zero for its value, for finding shapes and costs."""
    return ValuedGradient(gradient, lambda w: (squared_norm(zeros(w)), gradient(w)))


class LossNeededError(ValueError):
    """A step needs the value of the loss, which is not known where it is taken."""


def value_and_gradient(grad: Gradient, w: Tree) -> tuple[Any, Tree]:
    """Return the loss on a step's data and its gradient, both with the client's weight.

    >>> value_and_gradient(ValuedGradient(lambda w: 2 * w, lambda w: (w * w, 2 * w)), 3.0)
    (9.0, 6.0)
    """
    if not hasattr(grad, "with_value"):
        raise LossNeededError(
            "this algorithm needs the value of the loss, and here only its gradient is known; a client in NumPy gets "
            "it by loss=…"
        )
    found: tuple[Any, Tree] = grad.with_value(w)
    return found


class Federation(NamedTuple):
    """What server and clients know: N, the planned S, and prox_{step·Ψ} as ``prox(x, step)``."""

    clients: int
    sampled: int
    prox: Callable[[Tree, Any], Tree]


class Local(NamedTuple):
    """What a client also knows: its M, its number of local steps K, and its exact gradient ∇f_i(x).

    ``slot`` is its place, from 0, among the clients of the round, and ``common`` a random key that all of these share.
    Every gradient it is given already carries the client's weight N·p_i: all algorithms minimise
    Σ p_i f_i by plain averages.
    """

    clients: int
    sampled: int
    prox: Callable[[Tree, Any], Tree]
    blocks: int
    steps: int | Num[Array, ""]
    gradient: Gradient
    slot: int | Int[Array, ""]
    common: Key[Array, ""]


class Received(NamedTuple):
    """All that the server sees of a phase: the sum of the uploads and their number.

    With ``weighting="average"`` both are weighted by N·p_i, and the server does not change in a round with all weights
    zero. Enough for all-reduce and secure aggregation.
    """

    total: Tree
    count: Num[Array, ""]


class Draw(NamedTuple):
    """How a client draws its local data.

    ``steps`` steps, each on one of M fixed blocks drawn with replacement (the paper; M = 1 is the full batch); or on
    shuffled mini-batches, for ``steps`` steps or ``epochs`` passes.
    """

    steps: int | None = None
    blocks: int = 1
    batch_size: int | None = None
    epochs: int | None = None


class Phase(Settings):
    """One exchange with some clients; an algorithm with a single phase is that phase itself."""

    schedules = True
    clients: ClassVar[Clients] = "sample"
    """Which clients take part in the phase: a fresh sample, those of the phase before, or all."""
    table: ClassVar[bool] = False
    """Whether the client keeps one entry y_j for each block; then ``step`` takes y_j and returns the new one."""

    @property
    def chance(self) -> Any:
        """The probability that the phase takes place in a round; None: it always does."""
        return None

    @property
    def draw(self) -> Draw:
        """The number of local steps and their data; none if the phase only begins and ends."""
        return Draw(steps=0)

    def broadcast(self, server: Tree) -> Tree:
        """Return what every client of the phase receives."""
        return server

    def begin(self, here: Local, message: Tree, client: Tree) -> tuple[Tree, Tree]:
        """Return the local variables to start from, and the client's state, which may change here."""
        return message, client

    def step(self, here: Local, message: Tree, client: Tree, local: Tree, grad: Gradient, *y: Tree) -> Tree:
        """Return the local variables after one step (with the new y_j if there is a table)."""
        raise NotImplementedError

    def end(self, here: Local, message: Tree, client: Tree, local: Tree) -> tuple[Tree, Tree]:
        """Return the upload and the client's next state."""
        raise NotImplementedError

    def update(self, here: Federation, server: Tree, received: Received) -> Tree:
        """Return the server's next state."""
        raise NotImplementedError


class Algorithm(Phase):
    """The common part of all algorithms: their state, and how a client draws its data."""

    title: ClassVar[str] = ""
    """Its name in tables and figures; not inherited: by default the name users write."""
    tuned: ClassVar[Axis] = {}
    """What to tune besides the step size, with its values."""
    example: ClassVar[Example] = Example()
    """Settings that suit it on a problem of a given scale."""
    theory: ClassVar[tuple[Theory, ...]] = ()
    """Where it settles by theory, for one or more choices of its settings; not inherited."""
    composite: ClassVar[bool] = False
    """Whether it handles a regulariser Ψ by proximal steps."""
    partial: ClassVar[bool] = True
    """Whether clients may be sampled; else every round needs all of them."""
    recorded: ClassVar[tuple[str, ...]] = ()
    """The parts of an upload that ``record`` reads; all if it is empty."""
    server_rows: ClassVar[bool] = False
    """Whether the server keeps a state for each client, and so must see single uploads (``receive``)."""
    same_steps: ClassVar[bool] = False
    """Whether all clients must take equally many local steps."""
    restarts_alone: ClassVar[bool] = True
    """Whether a client that lost its state may start again, its ``holding`` taken back, while others keep theirs."""
    tailored_steps: ClassVar[str] = ""
    """Why clipped gradients and other local optimisers would break the method; empty if they do not."""
    free: ClassVar[frozenset[str]] = frozenset()
    """The settings, and ``clients_per_round``, that may change while the state is kept: server and clients then still
    agree, and the method ends where it would have ended. Not inherited, and none unless declared."""
    meanings: ClassVar[Mapping[str, str]] = {}
    """How the state depends on settings that are not free, for the error that refuses another value."""

    step_size: Number = number(domain=POSITIVE)
    local_steps: int | None = count(default=None)
    blocks: int | None = count(default=None)
    batch_size: int | None = count(default=None, kw_only=True)
    epochs: int | None = count(default=None, kw_only=True)
    uploads: tuple[Transform, ...] = node(default=(), kw_only=True)
    """Transforms of the upload, applied in this order before it leaves the client."""
    aggregation: tuple[Stage, ...] = node(default=(), kw_only=True, silent=True)
    """What the server does with the uploads instead of summing them: mixings, and an aggregator as the last."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        cls.free = own.get("free", frozenset())
        cls.title = own.get("title", snake_case(cls.__name__))
        cls.theory = own.get("theory", ())

    @classmethod
    def for_scale(cls, scale: Scale, example: Example | None = None) -> Self:
        """Return the algorithm with the settings of an example, its own if not given, for a problem of this scale."""
        settings = (example or cls.example).settings_at(scale)
        for name in cls.required():
            if name not in settings:
                raise ValueError(
                    f"{cls.title} has no example for its setting {name}: state one in the class, as "
                    f"example = losac.algorithms.facts.Example(settings={{{name!r}: …}}), or give {name} a default"
                )
        return cls(**settings)

    @classmethod
    def required(cls) -> tuple[str, ...]:
        """Return the names of the settings without a default."""
        return tuple(each.name for each in dataclasses.fields(cls) if each.init and each.default is dataclasses.MISSING)

    def validate(self) -> None:
        """Refuse ways of drawing data that contradict each other."""
        if not isinstance(self.uploads, tuple) or not all(isinstance(t, Transform) for t in self.uploads):
            raise ValueError(
                f"{self.label}: uploads={shown(self.uploads)} must be a tuple of transforms, such as "
                "uploads=(losac.algorithms.qsgd(levels=4),)"
            )
        if self.blocks and self.batch_size:
            raise ValueError(f"{self.label}: say blocks={self.blocks} or batch_size={self.batch_size}, not both")
        if self.epochs and not self.batch_size:
            raise ValueError(f"{self.label}: epochs={self.epochs} needs a batch_size")
        if self.epochs and self.local_steps:
            raise ValueError(f"{self.label}: say epochs={self.epochs} or local_steps={self.local_steps}, not both")
        records = type(self).record is not Algorithm.record
        if records and any(transform.feeds_back for transform in self.uploads):
            raise ValueError(
                f"{self.label} records in its control variates what was really sent: they send later what a "
                "transform leaves out, and error feedback would send it twice; use error_feedback=False"
            )
        self._validate_uploads()
        self._validate_aggregation()
        if self.table and self.batch_size:
            raise ValueError(
                f"{self.label} remembers one gradient for each fixed block of a client's data, so batch_size="
                f"{self.batch_size} cannot be used: say blocks=M, the number of blocks"
            )

    def _validate_uploads(self) -> None:
        """Refuse transforms that cannot keep their promise here."""
        for phase in self.phases():
            self.transforms_of(phase)
        for index, transform in enumerate(self.uploads):
            if not transform.on_the_sum:
                continue
            if index < len(self.uploads) - 1:
                raise ValueError(
                    f"{self.label}: {transform} relies on the bounds of the uploads that are summed: let it be the "
                    "last of the uploads' transforms"
                )
            if self.server_rows:
                raise ValueError(
                    f"{self.label} sums up by how much each upload differs from the client's last, which no bound on "
                    f"the uploads holds for: {transform} must add its noise at the clients, with noise_at='client'"
                )
            if getattr(self, "weighting", "loss") == "average":
                raise ValueError(
                    f"{self.label} weighs the uploads in their sum, where {transform} counts on each as it was sent: "
                    "use weighting='loss', or noise_at='client'"
                )

    def _validate_aggregation(self) -> None:
        """Refuse an aggregation where the server needs more than a sum, or another sum."""
        check_stages(self.label, self.aggregation)
        if not self.aggregation:
            return
        if self.server_rows:
            raise ValueError(
                f"{self.label} keeps a state for each client at the server and reads every upload by itself, so its "
                "sum cannot be replaced by a robust one: use a method without such a state, or no aggregation"
            )
        if any(transform.on_the_sum for transform in self.uploads):
            raise ValueError(
                f"{self.label}: the noise at the server is right for a plain sum, which one upload can change by its "
                "bound; with aggregation=… say noise_at='client'"
            )
        if getattr(self, "weighting", "loss") == "average":
            raise ValueError(
                f"{self.label}: weighting='average' believes each client's number of rows, with which a liar outvotes "
                "all others; with aggregation=… use weighting='loss'"
            )

    @property
    def draw(self) -> Draw:
        """One step on the full batch by default; one epoch if only a batch size is given."""
        if self.batch_size is None:
            return Draw(self.local_steps or 1, self.blocks or 1)
        epochs = self.epochs if self.local_steps else self.epochs or 1
        return Draw(self.local_steps, 1, self.batch_size, epochs)

    def transforms(self) -> tuple[Transform, ...]:
        """Return the transforms of an upload before it leaves the client."""
        return self.uploads

    def transforms_of(self, phase: Phase) -> tuple[Transform, ...]:
        """Return the transforms of the uploads of one of the phases."""
        if phase is self:
            return self.transforms()
        others = (transform.elsewhere() for transform in self.transforms())
        return tuple(transform for transform in others if transform is not None)

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases of a round."""
        return (self,)

    def init(self, x: Tree) -> Tree:
        """Return the server's state at the start from the model x⁰."""
        return x

    def model(self, server: Tree) -> Tree:
        """Return the model that the server holds."""
        return server

    def restart(self, server: Tree) -> Tree:
        """Return the server's state when all clients start again from the present model."""
        return self.init(self.model(server))

    def init_client(self, x: Tree) -> Tree:
        """Return a client's persistent state before it first takes part; it depends on x⁰ only."""
        return ()

    def init_entry(self, x: Tree) -> Tree:
        """Return a table entry y_j at the start."""
        return zeros(x)

    def init_server_row(self, x: Tree) -> Tree:
        """Return what the server keeps for one client before its first upload."""
        return ()

    def receive(self, row: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Return what one upload adds to the sum and the server's next row; only with ``server_rows``."""
        return upload, row

    def drop_row(self, here: Federation, server: Tree, row: Tree, weight: Any) -> Tree:
        """Return the server's state without the contribution of one client's row; only with ``server_rows``.

        ``weight`` is that of the client's uploads in the sums: N·p_i with ``weighting="average"``, else 1.
        """
        return server

    def record(self, here: Local, upload: Tree, sent: Tree, client: Tree) -> tuple[Tree, Tree]:
        """Return the client's state corrected to what was really sent, and what to add to the sum of its table entries.

        Called only where transforms changed the upload; without it a control variate and the server's sum of them
        would drift apart. Every entry that the client visited in the round gets an equal part of the second; () where
        there is nothing to add.
        """
        return client, ()

    def records(self, upload: Tree) -> tuple[str, ...]:
        """Return the names of the parts of an upload that the client records."""
        if type(self).record is Algorithm.record:
            return ()
        return self.recorded or tuple(parts(upload))

    @property
    def acknowledges(self) -> bool:
        """Whether clients must be told which share of their upload was used."""
        records = type(self).record is not Algorithm.record
        return records and bool(self.aggregation) and self.aggregation[-1].acknowledged  # type: ignore[attr-defined]

    def credit(self, upload: Tree) -> Tree:
        """Return what an upload adds to the server's sum over all clients' states; () if there is no such sum."""
        return ()

    def holding(self, here: Federation, start: Tree, client: Tree, table: OfBlocks) -> Tree:
        """Return the sum of all credits of a client's uploads so far, computed from its state; it started from x⁰."""
        return ()

    def shift(self, here: Federation, server: Tree, credit: Tree) -> Tree:
        """Return the server's state with a credit added to its sum, and the model unchanged.

        What a client added can thus be taken back, or added again, without another upload.
        """
        return server

    @property
    def needs_all_replies(self) -> bool:
        """Whether a round counts only when every client that was asked answers."""
        return not self.partial

    @property
    def keeps_only_the_model(self) -> bool:
        """Whether only the model is kept between rounds, besides what the uploads' transforms keep."""
        kept = ("init", "init_client", "init_server_row")
        return not self.table and all(getattr(type(self), name) is getattr(Algorithm, name) for name in kept)

    def bound(self, sampled: int) -> dict[str, Any]:
        """Return what must not change while the state is kept: all settings and S, except the free ones.

        Whether a setting is a word or a number always decides what the server keeps.
        The aggregation may change: clients record what was accepted.
        """
        everything = {**self.settings(), "blocks": self.draw.blocks, SAMPLED: sampled}
        everything.pop("aggregation", None)
        free = everything.keys() - {"uploads"} if self.keeps_only_the_model else self.free
        kinds = {name: value if isinstance(value, str) else "a number" for name, value in self.worded().items()}
        return {name: value for name, value in everything.items() if name not in free} | kinds

    def draw_steps(self, uniform: Any) -> Any:
        """Return this round's number of local steps from one uniform number if it is random; else None."""
        return None

    def check_state(self, here: Federation, server: Tree, clients: OfClients, table: OfClients) -> None:
        """Raise ValueError if a given start contradicts the method's invariant (arrays lead with N)."""


def checked_upload(algorithm: Algorithm, upload: Tree) -> Tree:
    """Return an upload; refuse one with a Python number in it, which has no dtype, and so no size and no sum."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(upload):
        if not hasattr(leaf, "dtype"):
            raise TypeError(
                f"{algorithm.label}: its upload has the Python number {leaf!r} at {jax.tree_util.keystr(path) or 'x'}: "
                "uploads hold arrays, so return jnp.asarray of it, in the dtype of the model"
            )
    return upload


class LocalMethod(Algorithm):
    """The common settings of methods with clients that take gradient steps of length η."""

    clip_norm: Number = number(default=None, domain=POSITIVE, kw_only=True)
    """Largest norm of a stochastic gradient before it is used."""
    local_optimizer: Callable[[Any], Any] | None = choice(default=None, kw_only=True)
    """An optax optimiser as a function of the step size, such as ``optax.adam``, instead of plain steps."""

    def validate(self) -> None:
        """Refuse local optimisers and clipping if they would break the correction."""
        super().validate()
        if self.local_optimizer is not None and not _makes_optimizer(self.local_optimizer):
            raise ValueError(
                f"{self.label}: local_optimizer={shown(self.local_optimizer)} must be a function of the step size, "
                "such as optax.adam"
            )
        if self.tailored_steps:
            for name in ("local_optimizer", "clip_norm"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{self.label} cannot take {name}: {self.tailored_steps}")


def _makes_optimizer(function: Any) -> bool:
    """Whether a function of the step size returns an optimiser like optax's."""
    try:
        made = function(1.0)
    except Exception:
        return False
    return hasattr(made, "init") and hasattr(made, "update")
