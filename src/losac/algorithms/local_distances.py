"""Clients that find their steps by DoG, DoWG or Prodigy.

References: M. Ivgi, O. Hinder, Y. Carmon, *DoG is SGD's best friend: a parameter-free dynamic step size schedule*, ICML
2023; A. Khaled, K. Mishchenko, C. Jin, *DoWG unleashed: an efficient universal parameter-free gradient descent method*,
NeurIPS 2023; K. Mishchenko, A. Defazio, *Prodigy: an expeditiously adaptive parameter-free learner*, ICML 2024.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

from losac._settings import POSITIVE, Number, choice, number
from losac.algorithms import distances
from losac.algorithms.contract import Gradient, Local
from losac.algorithms.facts import BIASED, SERVER_STEPS, Example, Theory
from losac.algorithms.fedavg import Fedavg
from losac.trees import Tree, sub


class Ruled(NamedTuple):
    """The local model w and the state of the rule."""

    w: Tree
    rule: Any


class LocalDistance(Fedavg):
    """FedAvg with local steps of a rule without tuning."""

    tailored_steps = "its steps are those of another rule"

    rule: ClassVar[distances.Rule]

    first: Number = number(default=1e-6, domain=POSITIVE, kw_only=True)
    memory: Literal["client", "round"] = choice(default="client", choices=("client", "round"), kw_only=True)

    def init_client(self, x: Tree) -> Any:
        """Start the rule at x⁰."""
        return self.rule.start(x, self.first) if self.memory == "client" else ()

    def begin(self, here: Local, x: Tree, client: Any) -> tuple[Ruled, Any]:  # type: ignore[override]
        """Start from the broadcast model, with the rule of the last round or a new one."""
        return Ruled(x, client if self.memory == "client" else self.rule.start(x, self.first)), client

    def step(self, here: Local, x: Tree, client: Any, local: Ruled, grad: Gradient) -> Ruled:  # type: ignore[override]
        """Take one step of the rule."""
        return Ruled(*self.rule.step(local.rule, local.w, grad(local.w), self.step_size))

    def end(self, here: Local, x: Tree, client: Any, local: Ruled) -> tuple[Tree, Any]:  # type: ignore[override]
        """Send how far the model moved; keep the rule."""
        return sub(local.w, x), local.rule if self.memory == "client" else client


class LocalDog(LocalDistance):
    r"""Local DoG: each client's step is its distance from x⁰ over the root of its summed squared gradients.

    .. math::
       \bar r_i \leftarrow \max(\bar r_i, \|w - w_0\|), \qquad G_i \leftarrow G_i + \|g_i(w)\|^2, \qquad
       w \leftarrow w - \eta\,\frac{\bar r_i}{\sqrt{G_i + \epsilon}}\,g_i(w), \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x)

    The clients keep r̄_i, G_i and w₀ = x⁰ between rounds, or start again in each round with w₀ = x: few steps are then
    too few for r̄ to grow. ε = 1e-8. There is no standard federated form. The paper's average of the iterates is not
    formed; the server's model is x. Where the clients differ it settles away from the optimum.

    Args:
      step_size: η, a factor on all steps; 1 in the paper.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      first: the first r̄ in units of 1 + ‖w₀‖.
      memory: whether a ``"client"`` keeps the rule's state, or a ``"round"`` starts it again.
      server_step, weighting: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.local_dog(step_size=1.0, local_steps=5, blocks=5, first=0.1)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2302.12022
    """

    title = "local DoG"
    tuned = SERVER_STEPS
    example = Example(lambda scale: 1.0, settings={"first": 1e-2})
    theory = (
        Theory(BIASED, BIASED, BIASED),
        Theory(BIASED, BIASED, BIASED, Example(lambda scale: 1.0, settings={"first": 1e-2, "memory": "round"})),
    )

    rule = distances.Dog


class LocalDowg(LocalDistance):
    r"""Local DoWG: DoG with its sum of squared gradients weighted by the squared distances.

    .. math::
       R_i \leftarrow \max(R_i, \|w - w_0\|^2), \qquad v_i \leftarrow v_i + R_i\|g_i(w)\|^2, \qquad
       w \leftarrow w - \eta\,\frac{R_i}{\sqrt{v_i} + \epsilon}\,g_i(w), \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x)

    The clients keep R_i, v_i and w₀ = x⁰ between rounds, or start again in each round with w₀ = x. ε = 1e-4. There is
    no standard federated form. Where the clients differ it settles away from the optimum.

    Args:
      step_size: η, a factor on all steps; 1 in the paper.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      first: the first R; 1e-4 in the authors' code.
      memory: whether a ``"client"`` keeps the rule's state, or a ``"round"`` starts it again.
      server_step, weighting: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.local_dowg(step_size=1.0, local_steps=5, blocks=5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2305.16284
    """

    title = "local DoWG"
    tuned = SERVER_STEPS
    example = Example(lambda scale: 1.0)
    theory = (Theory(BIASED, BIASED, BIASED),)

    rule = distances.Dowg

    first: Number = number(default=1e-4, domain=POSITIVE, kw_only=True)


class LocalProdigy(LocalDistance):
    r"""Local Prodigy: each client's Adam finds its own learning rate.

    .. math::
       m &\leftarrow \beta_1 m + (1-\beta_1)\,d\,g, \qquad v \leftarrow \beta_2 v + (1-\beta_2)\,d^2g^2, \\
       r &\leftarrow \beta_3 r + \eta\frac{d^2}{d_0}\langle g, w_0 - w\rangle, \qquad
       s \leftarrow \beta_3 s + \eta\frac{d^2}{d_0}g, \qquad d^+ = \max\Big(d, \frac r{\|s\|_1}\Big), \\
       w &\leftarrow w - \eta\,d\,\frac{m}{\sqrt v + d^+\epsilon}, \qquad
       x \leftarrow x + \frac{\gamma}{S}\sum_{i\in\mathcal S}(w_i - x)

    β₁ = 0.9, β₂ = 0.999, β₃ = √β₂, ε = 1e-8, without bias correction, as the authors have it. The clients keep all of
    it and w₀ = x⁰ between rounds, or start again in each round with w₀ = x. There is no standard federated form. Where
    the clients differ it settles away from the optimum.

    Args:
      step_size: η, a factor on all steps; 1 in the paper.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      first: d₀; 1e-6 in the paper.
      memory: whether a ``"client"`` keeps the rule's state, or a ``"round"`` starts it again.
      server_step, weighting: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.local_prodigy(step_size=1.0, local_steps=5, blocks=5, first=0.1)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.5)
      True

    Reference: https://arxiv.org/abs/2306.06101
    """

    title = "local Prodigy"
    tuned = SERVER_STEPS
    example = Example(lambda scale: 0.1, settings={"first": 1e-3})
    theory = (Theory(BIASED, BIASED, BIASED),)

    rule = distances.Prodigy
