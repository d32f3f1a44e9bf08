"""What an algorithm is: pure functions that say what the server keeps and sends, and what a client does with it.

An algorithm is a frozen pytree (:class:`losac._settings.Settings`): its numbers are leaves, its counts static. One
round is a list of phases, almost always one, and a phase goes

    server ── broadcast ──▶ message ── begin ▶ step … step ▶ end ──▶ upload ── Σ over clients ──▶ update ──▶ server

The functions use operators only, so the same ones run under JAX, NumPy and PyTorch; whoever runs them (the compiled
simulator, a Flower client) supplies the loop, the gradients and the random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

from losac._settings import POSITIVE, Settings, choice, count, node, number
from losac.algorithms.transform import Transform
from losac.trees import Tree, zeros

Gradient = Callable[[Tree], Tree]
Clients = Literal["sample", "same", "all"]


class Federation(NamedTuple):
    """What everybody knows: N, the planned S, and prox_{step·Ψ} as ``prox(x, step)``."""

    clients: Any
    sampled: Any
    prox: Callable[[Tree, Any], Tree]


class Local(NamedTuple):
    """What a client knows besides: its M, its number of local steps K, and its exact gradient ∇f_i(x).

    ``slot`` is its place, from 0, among the clients of the round, and ``common`` a random key that all of these share.
    Every gradient it is given already carries the client's weight N·p_i, so that all algorithms minimise
    Σ p_i f_i by plain averages.
    """

    clients: Any
    sampled: Any
    prox: Callable[[Tree, Any], Tree]
    blocks: Any
    steps: Any
    gradient: Gradient
    slot: Any
    common: Any


class Received(NamedTuple):
    """All that the server sees of a phase: the sum of the uploads and how many they were.

    With ``weighting="average"`` both are weighted by N·p_i. Enough for all-reduce and secure aggregation.
    """

    total: Tree
    count: Any


class Draw(NamedTuple):
    """How a client draws its local data.

    ``steps`` steps, each on one of M fixed blocks drawn with replacement (the paper; M = 1 is the full batch); or on
    shuffled mini-batches, for so many steps or ``epochs`` passes.
    """

    steps: int | None = None
    blocks: int = 1
    batch_size: int | None = None
    epochs: int | None = None


class Phase(Settings):
    """One exchange with some clients; an algorithm with a single phase is that phase itself."""

    clients: ClassVar[Clients] = "sample"
    """Whom the phase addresses: a fresh sample, the clients of the phase before, or all."""
    table: ClassVar[bool] = False
    """Whether the client keeps one entry y_j for each block; then ``step`` takes y_j and returns the new one."""

    @property
    def chance(self) -> Any:
        """The probability that the phase takes place in a round; None: it always does."""
        return None

    @property
    def draw(self) -> Draw:
        """How many local steps there are, and on which data; none where the phase only begins and ends."""
        return Draw(steps=0)

    def broadcast(self, server: Tree) -> Tree:
        """Return what every client of the phase receives."""
        return server

    def begin(self, here: Local, message: Tree, client: Tree) -> tuple[Tree, Tree]:
        """Return the local variables to start from, and the client's state, which may change here."""
        return message, client

    def step(self, here: Local, message: Tree, client: Tree, local: Tree, grad: Gradient, *y: Tree) -> Tree:
        """Return the local variables after one step (with the new y_j where there is a table)."""
        raise NotImplementedError

    def end(self, here: Local, message: Tree, client: Tree, local: Tree) -> tuple[Tree, Tree]:
        """Return the upload and the client's next state."""
        raise NotImplementedError

    def update(self, here: Federation, server: Tree, received: Received) -> Tree:
        """Return the server's next state."""
        raise NotImplementedError


class Algorithm(Phase):
    """The common part of all algorithms: their state, and how a client draws its data."""

    composite: ClassVar[bool] = False
    """Whether a regulariser Ψ is taken in by proximal steps."""
    partial: ClassVar[bool] = True
    """Whether clients may be sampled; else every round needs all of them."""
    server_rows: ClassVar[bool] = False
    """Whether the server keeps a state for each client, and so must see single uploads (``receive``)."""
    restarts_alone: ClassVar[bool] = True
    """Whether a client that lost its state may start anew, its ``holding`` taken back, while others keep theirs."""
    tailored_steps: ClassVar[str] = ""
    """Why clipped gradients and other local optimisers would break the method; empty where they do not."""

    step_size: Any = number(domain=POSITIVE)
    local_steps: int | None = count(default=None)
    blocks: int | None = count(default=None)
    batch_size: int | None = count(default=None, kw_only=True)
    epochs: int | None = count(default=None, kw_only=True)
    uploads: tuple[Transform, ...] = node(default=(), kw_only=True)
    """Transforms of the upload, applied in this order before it leaves the client."""

    def validate(self) -> None:
        """Refuse ways of drawing data that contradict each other."""
        if self.blocks and self.batch_size:
            raise ValueError(f"{self.label}: say blocks={self.blocks} or batch_size={self.batch_size}, not both")
        if self.epochs and not self.batch_size:
            raise ValueError(f"{self.label}: epochs={self.epochs} needs a batch_size")
        if self.epochs and self.local_steps:
            raise ValueError(f"{self.label}: say epochs={self.epochs} or local_steps={self.local_steps}, not both")
        records = type(self).record is not Algorithm.record
        if records and any(transform.feeds_back for transform in self.uploads):
            raise ValueError(
                f"{self.label} records in its control variates what was really sent: what a transform leaves out "
                "comes again by itself, and error feedback would send it twice; use error_feedback=False"
            )
        self._validate_uploads()
        if self.table and self.batch_size:
            raise ValueError(
                f"{self.label} remembers one gradient for each fixed block of a client's data, so batch_size="
                f"{self.batch_size} cannot be used: say blocks=M, the number of blocks"
            )

    def _validate_uploads(self) -> None:
        """Refuse transforms that cannot keep their promise here."""
        for phase in self.phases():
            self.transforms_of(phase)
        for place, transform in enumerate(self.uploads):
            if not transform.on_the_sum:
                continue
            if place < len(self.uploads) - 1:
                raise ValueError(
                    f"{self.label}: {transform} counts on the bounds of the uploads as they are summed: let it be the "
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

    @property
    def draw(self) -> Draw:
        """One step on the full batch unless told otherwise; one epoch where only a batch size is given."""
        if self.batch_size is None:
            return Draw(self.local_steps or 1, self.blocks or 1)
        epochs = self.epochs if self.local_steps else self.epochs or 1
        return Draw(self.local_steps, 1, self.batch_size, epochs)

    def transforms(self) -> tuple[Transform, ...]:
        """Return what an upload passes through before it leaves the client."""
        return self.uploads

    def transforms_of(self, phase: Phase) -> tuple[Transform, ...]:
        """Return what the uploads of one of the phases pass through."""
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

    def init_client(self, x: Tree) -> Tree:
        """Return a client's persistent state before it first takes part; it depends on x⁰ only."""
        return ()

    def init_entry(self, x: Tree) -> Tree:
        """Return a table entry y_j at the start."""
        return zeros(x)

    def init_server_row(self, x: Tree) -> Tree:
        """Return what the server keeps for one client, before it first hears of it."""
        return ()

    def receive(self, row: Tree, upload: Tree) -> tuple[Tree, Tree]:
        """Return what one upload adds to the sum and the server's next row, where ``server_rows``."""
        return upload, row

    def drop_row(self, here: Federation, server: Tree, row: Tree) -> Tree:
        """Return the server's state without what its row for one client stands for, where ``server_rows``."""
        return server

    def record(self, here: Local, upload: Tree, sent: Tree, client: Tree, *y: Tree) -> tuple[Tree, ...]:
        """Return the client's state (and last table entry) corrected to what was really sent.

        Called only where transforms changed the upload; without it a control variate and the server's sum of them
        would drift apart.
        """
        return client, *y

    def credit(self, upload: Tree) -> Tree:
        """Return what an upload adds to the server's sum over all clients' states; () where there is no such sum."""
        return ()

    def holding(self, here: Federation, start: Tree, client: Tree, table: Tree) -> Tree:
        """Return the sum of all credits of a client's uploads so far, read off its state; it started from x⁰."""
        return ()

    def shift(self, here: Federation, server: Tree, credit: Tree) -> Tree:
        """Return the server's state with a credit added to its sum, and the model where it is.

        What a client added can so be taken back, or added again, without another upload.
        """
        return server

    @property
    def needs_all_replies(self) -> bool:
        """Whether a round counts only when every client that was asked answers."""
        return not self.partial

    def draw_steps(self, uniform: Any) -> Any:
        """Return this round's number of local steps from one uniform number, where it is random; else None."""
        return None

    def check_state(self, here: Federation, server: Tree, clients: Tree, table: Tree) -> None:
        """Raise ValueError where a given start contradicts the method's invariant (arrays lead with N)."""


class LocalMethod(Algorithm):
    """The common settings of methods whose clients take gradient steps of length η."""

    clip_norm: Any = number(default=None, domain=POSITIVE, kw_only=True)
    """Largest norm of a stochastic gradient before it is used."""
    local_optimizer: Callable[[Any], Any] | None = choice(default=None, kw_only=True)
    """An optax optimiser as a function of the step size, such as ``optax.adam``, in place of plain steps."""

    def validate(self) -> None:
        """Refuse local optimisers and clipping where they would break the correction."""
        super().validate()
        if self.tailored_steps:
            for name in ("local_optimizer", "clip_norm"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{self.label} cannot take {name}: {self.tailored_steps}")
