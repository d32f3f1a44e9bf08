"""FedAdam, FedYogi, FedAdagrad and FedAvgM: federated averaging with an optimiser's step at the server.

References: S. J. Reddi et al., *Adaptive federated optimization*, ICLR 2021, Algorithm 2 (the first three, as printed:
without bias correction); T.-M. H. Hsu, H. Qi, M. Brown, *Measuring the effects of non-identical data distribution
for federated visual classification*, 2019 (FedAvgM).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from losac._settings import BELOW_ONE, POSITIVE, Number, number
from losac.algorithms.contract import SAMPLED, STEPS, Federation, Received
from losac.algorithms.facts import ADAPTIVE_SERVER_STEPS, BIASED, MOMENTA, Example, Theory, axis
from losac.algorithms.fedavg import Fedavg
from losac.trees import Tree, axpy, map_trees, scale, zeros


class Adapting(NamedTuple):
    """The model x with the means m of the updates and v of their squares."""

    x: Tree
    m: Tree
    v: Tree


class Moving(NamedTuple):
    """The model x with the momentum v."""

    x: Tree
    v: Tree


class AdaptiveServer(Fedavg):
    r"""FedAvg's clients with an adaptive server, on the mean update Δ.

    .. math:: m \leftarrow \beta_1 m + (1-\beta_1)\Delta, \qquad x \leftarrow x + \gamma\,\frac{m}{\sqrt v + \tau}

    A subclass says how v follows Δ²; v starts at τ².
    """

    free = STEPS | {"server_step", "momentum", "tau", "weighting", SAMPLED}

    server_step: Number = number(default=0.1, domain=POSITIVE, kw_only=True)
    momentum: Number = number(default=0.9, domain=BELOW_ONE, kw_only=True)
    tau: Number = number(default=1e-3, domain=POSITIVE, kw_only=True)

    def second_moment(self, v: Any, square: Any) -> Any:
        """Return the next v of one array from the square of its update."""
        raise NotImplementedError

    def init(self, x: Tree) -> Adapting:
        """Start with m = 0 and v = τ²."""
        return Adapting(x, zeros(x), map_trees(lambda u: u * 0 + self.tau**2, x))

    def model(self, server: Adapting) -> Tree:
        """Return x."""
        return server.x

    def broadcast(self, server: Adapting) -> Tree:
        """Send the model only."""
        return server.x

    def update(self, here: Federation, server: Adapting, received: Received) -> Adapting:
        """Take the optimiser's step along the mean update."""
        delta = scale(1 / received.count, received.total)
        m = axpy(self.momentum, server.m, scale(1 - self.momentum, delta))
        v = map_trees(lambda v, d: self.second_moment(v, d * d), server.v, delta)
        x = map_trees(lambda x, m, v: x + self.server_step * m / (v**0.5 + self.tau), server.x, m, v)
        return Adapting(x, m, v)


class Fedadam(AdaptiveServer):
    r"""FedAdam: FedAvg's clients, Adam at the server.

    .. math::
       m &\leftarrow \beta_1 m + (1-\beta_1)\Delta, \qquad v \leftarrow \beta_2 v + (1-\beta_2)\Delta^2, \\
       x &\leftarrow x + \gamma\,\frac{m}{\sqrt v + \tau}, \qquad \Delta = \frac1S\sum_{i\in\mathcal S}(w_i - x).

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ, the server's learning rate.
      momentum, decay: β₁ and β₂.
      tau: τ, the adaptivity; v starts at τ².
      weighting, clip_norm, local_optimizer: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedadam(step_size=1e-3, local_steps=5, blocks=5, server_step=0.03)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2003.00295
    """

    title = "FedAdam"
    tuned = ADAPTIVE_SERVER_STEPS
    example = Example(settings={"server_step": 0.01, "tau": 0.05})
    theory = (Theory(BIASED, BIASED, BIASED),)

    free = AdaptiveServer.free | {"decay"}

    decay: Number = number(default=0.99, domain=BELOW_ONE, kw_only=True)

    def second_moment(self, v: Any, square: Any) -> Any:
        """Return the moving average."""
        return self.decay * v + (1 - self.decay) * square


class Fedyogi(AdaptiveServer):
    r"""FedYogi: FedAvg's clients, Yogi at the server; its v changes by at most (1−β₂)Δ² at a time.

    .. math::
       m &\leftarrow \beta_1 m + (1-\beta_1)\Delta, \qquad
       v \leftarrow v - (1-\beta_2)\Delta^2\,\mathrm{sign}(v - \Delta^2), \\
       x &\leftarrow x + \gamma\,\frac{m}{\sqrt v + \tau}, \qquad \Delta = \frac1S\sum_{i\in\mathcal S}(w_i - x).

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ, the server's learning rate.
      momentum, decay: β₁ and β₂.
      tau: τ, the adaptivity; v starts at τ².
      weighting, clip_norm, local_optimizer: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedyogi(step_size=1e-3, local_steps=5, blocks=5, server_step=0.03)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2003.00295
    """

    title = "FedYogi"
    tuned = ADAPTIVE_SERVER_STEPS
    example = Example(settings={"server_step": 0.01, "tau": 0.05})
    theory = (Theory(BIASED, BIASED, BIASED),)

    free = AdaptiveServer.free | {"decay"}

    decay: Number = number(default=0.99, domain=BELOW_ONE, kw_only=True)

    def second_moment(self, v: Any, square: Any) -> Any:
        """Move towards the square."""
        change = (1 - self.decay) * square
        return v - change * (v > square) + change * (v < square)


class Fedadagrad(AdaptiveServer):
    r"""FedAdagrad: FedAvg's clients, Adagrad at the server.

    .. math::
       m &\leftarrow \beta_1 m + (1-\beta_1)\Delta, \qquad v \leftarrow v + \Delta^2, \\
       x &\leftarrow x + \gamma\,\frac{m}{\sqrt v + \tau}, \qquad \Delta = \frac1S\sum_{i\in\mathcal S}(w_i - x).

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ, the server's learning rate.
      momentum: β₁; 0 by default, as in the paper's experiments.
      tau: τ, the adaptivity; v starts at τ².
      weighting, clip_norm, local_optimizer: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedadagrad(step_size=1e-3, local_steps=5, blocks=5, server_step=0.1)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/2003.00295
    """

    title = "FedAdagrad"
    tuned = axis(server_step=(0.01, 0.1, 1.0, 10.0))
    example = Example(settings={"server_step": 0.1})
    theory = (Theory(BIASED, BIASED, BIASED),)

    free = AdaptiveServer.free

    momentum: Number = number(default=0.0, domain=BELOW_ONE, kw_only=True)

    def second_moment(self, v: Any, square: Any) -> Any:
        """Return the sum of all squares."""
        return v + square


class Fedavgm(Fedavg):
    r"""FedAvgM: FedAvg's clients, momentum at the server.

    .. math:: v \leftarrow \beta v + \frac1S\sum_{i\in\mathcal S}(w_i - x), \qquad x \leftarrow x + \gamma v

    Args:
      step_size: η, the local step.
      local_steps, blocks, batch_size, epochs: how local data is drawn.
      server_step: γ, the server's learning rate.
      momentum: β; the step grows to 1/(1−β) times FedAvg's.
      weighting, clip_norm, local_optimizer: as for :class:`losac.algorithms.fedavg.Fedavg`.

    Example:
      >>> import losac
      >>> data = losac.data.load("digits", clients=10, partition="sorted")
      >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
      >>> algorithm = losac.algorithms.fedavgm(step_size=1e-3, local_steps=5, blocks=5, momentum=0.5)
      >>> history = losac.simulate(task, algorithm, rounds=20, clients_per_round=5, eval_every=20)
      >>> bool(history.final("accuracy") > 0.6)
      True

    Reference: https://arxiv.org/abs/1909.06335
    """

    title = "FedAvgM"
    tuned = MOMENTA
    theory = (Theory(BIASED, BIASED, BIASED),)

    free = STEPS | {"server_step", "momentum", "weighting", SAMPLED}

    momentum: Number = number(default=0.9, domain=BELOW_ONE, kw_only=True)

    def init(self, x: Tree) -> Moving:
        """Start at rest."""
        return Moving(x, zeros(x))

    def model(self, server: Moving) -> Tree:
        """Return x."""
        return server.x

    def broadcast(self, server: Moving) -> Tree:
        """Send the model only."""
        return server.x

    def update(self, here: Federation, server: Moving, received: Received) -> Moving:
        """Take the momentum step along the mean update."""
        v = axpy(self.momentum, server.v, scale(1 / received.count, received.total))
        return Moving(axpy(self.server_step, v, server.x), v)
