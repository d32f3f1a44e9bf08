"""VRL-SGD: variance-reduced local SGD.

Reference: X. Liang, S. Shen, J. Liu, Z. Pan, E. Chen, Y. Cheng, *Variance reduced local SGD with lower communication
complexity*, 2019.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from losac.algorithms.contract import STEPS, Federation, Gradient, Local, LocalMethod, Received
from losac.algorithms.facts import EXACT, REFUSED, Theory, axis
from losac.algorithms.invariant import require_balance
from losac.trees import Tree, axpy, map_trees, scale, squared_norm, sub, zeros


class Memory(NamedTuple):
    """The values that give Δ_i with the next mean x: Δ_i = (x − q)/length, with q = w − KηΔ_i and length = Kη."""

    q: Tree
    length: Any


class Walk(NamedTuple):
    """The local model w with the correction Δ_i of the round."""

    w: Tree
    delta: Tree


class VrlSgd(LocalMethod):
    r"""VRL-SGD: every local step is corrected by how far the client strayed from the means before.

    .. math::
       w \leftarrow w - \eta(g_i(w) - \Delta_i), \qquad x = \frac1N\sum_i w_i, \qquad
       \Delta_i \leftarrow \Delta_i + \frac{x - w_i}{K\eta}.

    Δ_i starts at zero, and Σ Δ_i = 0 always holds. This needs every client in every round, and the same K for all. A
    client renews Δ_i when the next x reaches it.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn; K is the number of steps.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.vrl_sgd(step_size=1e-3, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/1912.12844
    """

    title = "VRL-SGD"
    tuned = axis()
    theory = (Theory(EXACT, REFUSED, REFUSED),)

    partial = False
    free = STEPS
    same_steps = True
    restarts_alone = False
    tailored_steps = (
        "Δ_i is read off the distance travelled, (x − w)/(Kη), which is a mean gradient only for plain steps "
        "of length η"
    )

    def init_client(self, x: Tree) -> Memory:
        """Start with Δ_i = 0."""
        return Memory(x, squared_norm(zeros(x)) + 1)

    def begin(self, here: Local, x: Tree, memory: Memory) -> tuple[Walk, Memory]:
        """Start from the mean; renew Δ_i by it."""
        return Walk(x, scale(1 / memory.length, sub(x, memory.q))), memory

    def step(self, here: Local, x: Tree, memory: Memory, local: Walk, grad: Gradient) -> Walk:
        """Take one corrected step."""
        w = map_trees(lambda w, g, d: w - self.step_size * (g - d), local.w, grad(local.w), local.delta)
        return Walk(w, local.delta)

    def end(self, here: Local, x: Tree, memory: Memory, local: Walk) -> tuple[Tree, Memory]:
        """Send how far the model moved; keep what the next Δ_i needs."""
        length = here.steps * self.step_size
        return sub(local.w, x), Memory(axpy(-length, local.delta, local.w), memory.length * 0 + length)

    def record(self, here: Local, upload: Tree, sent: Tree, memory: Memory) -> tuple[Tree, Tree]:
        """Keep the w_i that the server believes in."""
        return memory._replace(q=map_trees(lambda q, s, u: q + (s - u), memory.q, sent, upload)), ()

    def update(self, here: Federation, x: Tree, received: Received) -> Tree:
        """Move the model by the mean."""
        return axpy(1 / received.count, received.total, x)

    def check_state(self, here: Federation, x: Tree, memory: Memory, table: Tree) -> None:
        """Refuse a start with Σ Δ_i ≠ 0: its error would never vanish."""
        delta = map_trees(lambda x, q: (x - q) / memory.length.reshape(-1, *[1] * (q.ndim - 1)), x, memory.q)
        require_balance(self.label, "Δ", delta)
