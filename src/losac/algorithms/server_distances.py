"""Servers that find their step by DoG, DoWG or Prodigy, along the clients' mean update.

References: M. Ivgi, O. Hinder, Y. Carmon, *DoG is SGD's best friend: a parameter-free dynamic step size schedule*, ICML
2023; A. Khaled, K. Mishchenko, C. Jin, *DoWG unleashed: an efficient universal parameter-free gradient descent method*,
NeurIPS 2023; K. Mishchenko, A. Defazio, *Prodigy: an expeditiously adaptive parameter-free learner*, ICML 2024.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from losac._settings import POSITIVE, Number, number
from losac.algorithms import distances
from losac.algorithms.contract import Federation, Received
from losac.algorithms.facts import BIASED, EXACT, Example, Theory, axis
from losac.algorithms.fedavg import Fedavg
from losac.trees import Tree, scale


class Ruled(NamedTuple):
    """The model x and the state of the rule."""

    x: Tree
    rule: Any


class ServerDistance(Fedavg):
    """FedAvg with server steps of a rule without tuning, on the gradient −Δ̄."""

    rule: ClassVar[distances.Rule]

    first: Number = number(default=1e-6, domain=POSITIVE, kw_only=True)

    def init(self, x: Tree) -> Ruled:
        """Start the rule at x⁰."""
        return Ruled(x, self.rule.start(x, self.first))

    def model(self, server: Ruled) -> Tree:
        """Return x."""
        return server.x

    def broadcast(self, server: Ruled) -> Tree:
        """Send the model only."""
        return server.x

    def update(self, here: Federation, server: Ruled, received: Received) -> Ruled:
        """Take one step of the rule."""
        gradient = scale(-1 / received.count, received.total)
        return Ruled(*self.rule.step(server.rule, server.x, gradient, self.server_step))


class ServerDog(ServerDistance):
    r"""Server DoG: FedAvg's clients; the server's step is its distance from x⁰ over the root of summed squared updates.

    .. math::
       \bar r \leftarrow \max(\bar r, \|x - x^0\|), \qquad G \leftarrow G + \|\bar\Delta\|^2, \qquad
       x \leftarrow x + \gamma\,\frac{\bar r}{\sqrt{G + \epsilon}}\,\bar\Delta, \qquad
       \bar\Delta = \frac1S\sum_{i\in\mathcal S}(w_i - x)

    ε = 1e-8. The scale of the updates cancels: η matters for the clients' drift alone. It rests where FedAvg
    does. The paper's average of the iterates is not formed.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      first: the first r̄ in units of 1 + ‖x⁰‖.
      server_step: γ, a factor on all steps; 1 in the paper.
      weighting, clip_norm, local_optimizer: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.server_dog(step_size=1e-3, local_steps=5, blocks=5, first=1.0)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2302.12022
    """

    title = "server DoG"
    tuned = axis(first=(1e-8, 1e-6, 1e-4, 1e-2))
    example = Example(settings={"first": 1e-2})
    theory = (
        Theory(BIASED, BIASED, BIASED),
        Theory(EXACT, BIASED, BIASED, Example(local_steps=1, settings={"first": 1e-2})),
    )

    rule = distances.Dog


class ServerDowg(ServerDistance):
    r"""Server DoWG: server DoG with its sum of squared updates weighted by the squared distances.

    .. math::
       R \leftarrow \max(R, \|x - x^0\|^2), \qquad v \leftarrow v + R\|\bar\Delta\|^2, \qquad
       x \leftarrow x + \gamma\,\frac{R}{\sqrt v + \epsilon}\,\bar\Delta, \qquad
       \bar\Delta = \frac1S\sum_{i\in\mathcal S}(w_i - x)

    ε = 1e-4, and updates must not be small compared with it. It rests where FedAvg does.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      first: the first R; 1e-4 in the authors' code.
      server_step: γ, a factor on all steps; 1 in the paper.
      weighting, clip_norm, local_optimizer: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.server_dowg(step_size=1e-3, local_steps=5, blocks=5, first=1.0)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2305.16284
    """

    title = "server DoWG"
    tuned = axis(first=(1e-6, 1e-4, 1e-2, 1.0))
    example = Example(settings={"first": 1e-2})
    theory = (
        Theory(BIASED, BIASED, BIASED),
        Theory(EXACT, BIASED, BIASED, Example(local_steps=1, settings={"first": 1e-2})),
    )

    rule = distances.Dowg

    first: Number = number(default=1e-4, domain=POSITIVE, kw_only=True)


class ServerProdigy(ServerDistance):
    r"""Server Prodigy: FedAvg's clients; an Adam at the server that finds its own learning rate.

    .. math::
       m &\leftarrow \beta_1 m - (1-\beta_1)\,d\,\bar\Delta, \qquad
       v \leftarrow \beta_2 v + (1-\beta_2)\,d^2\bar\Delta^2, \\
       r &\leftarrow \beta_3 r + \gamma\frac{d^2}{d_0}\langle\bar\Delta, x - x^0\rangle, \qquad
       s \leftarrow \beta_3 s - \gamma\frac{d^2}{d_0}\bar\Delta, \qquad d^+ = \max\Big(d, \frac r{\|s\|_1}\Big), \\
       x &\leftarrow x - \gamma\,d\,\frac{m}{\sqrt v + d^+\epsilon}, \qquad
       \bar\Delta = \frac1S\sum_{i\in\mathcal S}(w_i - x)

    β₁ = 0.9, β₂ = 0.999, β₃ = √β₂, ε = 1e-8, without bias correction, as the authors have it. It need not stay where it
    arrives: v forgets, and its steps do not shrink with the gradient.

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      first: d₀; 1e-6 in the paper.
      server_step: γ, a factor on all steps; 1 in the paper.
      weighting, clip_norm, local_optimizer: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.server_prodigy(step_size=1e-3, local_steps=5, blocks=5, first=1e-2)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2306.06101
    """

    title = "server Prodigy"
    tuned = axis(first=(1e-8, 1e-6, 1e-4, 1e-2))
    example = Example(settings={"first": 1e-2, "server_step": 0.1})
    theory = (Theory(BIASED, BIASED, BIASED),)

    rule = distances.Prodigy
