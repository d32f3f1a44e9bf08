"""An algorithm of your own in one file: FedAvg with momentum at the server.

The class says what a client does in a step, what it sends, and what the server does with the sum. Settings declared as
numbers can be swept in one compiled program, as here. The engine provides bytes, sampling and checkpoints.

    python examples/gallery/08_own_algorithm.py [picture.png]
"""

import sys
from typing import Any, NamedTuple

import losac
from losac._settings import number
from losac.algorithms import LocalMethod
from losac.trees import add, axpy, scale, sub, zeros


class Rolling(NamedTuple):
    """The model, and the server's last step."""

    x: Any
    last: Any


class Heavyball(LocalMethod):
    """x⁺ = x + v⁺ with v⁺ = β v + mean of the clients' changes: a heavy ball at the server."""

    memory: Any = number(default=0.5, kw_only=True)

    def init(self, x: Any) -> Rolling:
        """Start at rest."""
        return Rolling(x, zeros(x))

    def model(self, server: Rolling) -> Any:
        """Return x."""
        return server.x

    def broadcast(self, server: Rolling) -> Any:
        """Send x alone."""
        return server.x

    def step(self, here: Any, x: Any, client: Any, w: Any, grad: Any) -> Any:
        """Go down the gradient of the step's batch."""
        return axpy(-self.step_size, grad(w), w)

    def end(self, here: Any, x: Any, client: Any, w: Any) -> Any:
        """Send the change, keep nothing."""
        return sub(w, x), client

    def update(self, here: Any, server: Rolling, received: Any) -> Rolling:
        """Take the mean change and a share of the last step."""
        v = axpy(self.memory, server.last, scale(1 / received.count, received.total))
        return Rolling(add(server.x, v), v)


def main(picture: str | None = None, rounds: int = 40) -> losac.Sweep:
    """Sweep the memory and print what it does."""
    data = losac.data.load("digits", clients=10, partition="dirichlet:0.3")
    task = losac.classification(losac.models.softmax_regression(64, 10), data)
    memories = {"memory": [0.0, 0.5, 0.9]}
    sweep = losac.sweep(
        task, Heavyball(5e-4, local_steps=3, blocks=3), memories, rounds=rounds, clients_per_round=5, eval_every=4
    )
    for run in sweep.members:
        print(
            f"memory {run.settings['memory']:.1f}: loss {run.final('loss'):.3f}, accuracy {run.final('accuracy'):.3f}"
        )
    if picture:
        draw(sweep, picture)
    return sweep


def draw(sweep: losac.Sweep, picture: str) -> None:
    """Save the losses over the rounds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for run in sweep.members:
        axes.semilogy(run.rounds, run.metrics["loss"], label=f"memory {run.settings['memory']:.1f}")
    axes.set(xlabel="round", ylabel="training loss", title="A heavy ball at the server")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:2])
