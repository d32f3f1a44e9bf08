"""SCAFFOLD and SCAFFOLD-Prox.

Reference: S. P. Karimireddy et al., *SCAFFOLD: stochastic controlled averaging for federated learning*, ICML 2020.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

from losac._settings import POSITIVE, Number, choice, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import BIASED, EXACT, SERVER_STEPS, Example, Theory
from losac.algorithms.invariant import require_balance
from losac.trees import Tree, add, axpy, map_trees, sub, zeros


class Pair(NamedTuple):
    """A model x with a control variate c; or the changes of both."""

    x: Tree
    c: Tree


class Scaffold(LocalMethod):
    r"""SCAFFOLD: every local step is corrected by the difference of two control variates.

    .. math::
       w &\leftarrow \mathrm{prox}_{\eta\Psi}\big(w - \eta(g_i(w) - c_i + c)\big), \\
       c_i^+ &= \nabla f_i(x) \;\text{(option 1) or }\; c_i - c + \frac{x - w}{K\eta} \;\text{(option 2)}, \\
       x &\leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x), \qquad
       c \leftarrow c + \frac1N\sum_{i\in\mathcal S}(c_i^+ - c_i).

    All control variates start at zero, so Σ c_i = N·c always holds.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn; K is the number of steps.
      server_step: γ.
      option: how c_i is renewed: 1 by a full gradient at the broadcast model, 2 from the distance travelled.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.scaffold(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/1910.06378
    """

    title = "SCAFFOLD"
    tuned = SERVER_STEPS
    theory: ClassVar[tuple[Theory, ...]] = (
        Theory(EXACT, EXACT, BIASED),
        Theory(EXACT, EXACT, BIASED, Example(settings={"option": 1})),
    )

    composite = True
    recorded = ("c",)
    tailored_steps = (
        "c_i is read off the distance travelled, (x − w)/(Kη), which is the mean gradient only for plain steps of "
        "length η; with momentum, Adam or clipping the control variates would no longer cancel the drift"
    )

    free = STEPS | {"server_step", "option", SAMPLED}

    server_step: Number = number(default=1.0, domain=POSITIVE, kw_only=True)
    option: Literal[1, 2] = choice(default=2, choices=(1, 2), kw_only=True)

    def init(self, x: Tree) -> Pair:
        """Start with c = 0."""
        return Pair(x, zeros(x))

    def model(self, server: Pair) -> Tree:
        """Return x."""
        return server.x

    def init_client(self, x: Tree) -> Tree:
        """Start with c_i = 0."""
        return zeros(x)

    def begin(self, here: Local, message: Pair, c_i: Tree) -> tuple[Tree, Tree]:
        """Start from the broadcast model."""
        return message.x, c_i

    def step(self, here: Local, message: Pair, c_i: Tree, w: Tree, grad: Gradient) -> Tree:
        """Take one corrected step."""
        moved = map_trees(lambda w, g, ci, c: w - self.step_size * (g - ci + c), w, grad(w), c_i, message.c)
        return here.prox(moved, self.step_size)

    def end(self, here: Local, message: Pair, c_i: Tree, w: Tree) -> tuple[Pair, Tree]:
        """Renew c_i; send both changes."""
        if self.option == 1:
            renewed = here.gradient(message.x)
        else:
            per_step = 1 / (here.steps * self.step_size)
            renewed = map_trees(lambda ci, c, x, w: ci - c + (x - w) * per_step, c_i, message.c, message.x, w)
        return Pair(sub(w, message.x), sub(renewed, c_i)), renewed

    def record(self, here: Local, upload: Pair, sent: Pair, c_i: Tree) -> tuple[Tree, Tree]:
        """Keep the c_i that the server believes in."""
        return add(c_i, sub(sent.c, upload.c)), ()

    def update(self, here: Federation, server: Pair, received: Received) -> Pair:
        """Move x by the mean over the sampled clients, c by the change of the mean over all."""
        return Pair(
            axpy(self.server_step / received.count, received.total.x, server.x),
            axpy(1 / here.clients, received.total.c, server.c),
        )

    def credit(self, upload: Pair) -> Tree:
        """Return the change of c_i."""
        return upload.c

    def holding(self, here: Federation, start: Tree, c_i: Tree, table: Tree) -> Tree:
        """Return c_i."""
        return c_i

    def shift(self, here: Federation, server: Any, credit: Tree) -> Any:
        """Move c as ``update`` does."""
        return server._replace(c=axpy(1 / here.clients, credit, server.c))

    def check_state(self, here: Federation, server: Pair, c_i: Tree, table: Tree) -> None:
        """Refuse a start with Σ c_i ≠ N·c: its error would never vanish."""
        require_balance(self.label, "c", c_i, server.c)
