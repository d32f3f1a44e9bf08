"""A PyTorch CNN: a torch.nn.Module, trained by an algorithm of this library.

Ten clients hold digits with few labels each; the network has two convolutions. Compiled runs use the same algorithm
file; only the gradients are PyTorch's.

    python examples/gallery/05_torch_cnn.py [picture.png]
"""

import sys
from dataclasses import replace

import torch
from torch import nn

import losac


def network() -> nn.Module:
    """Return a small convolutional network for 8 × 8 images."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def right(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the share of right answers."""
    return (outputs.argmax(-1) == y).float().mean()


def main(picture: str | None = None, rounds: int = 15) -> losac.History:
    """Train and print the test accuracy."""
    flat = losac.data.load("digits", clients=10, partition="dirichlet:0.3")
    assert flat.test is not None
    data = replace(flat, x=flat.x.reshape(-1, 1, 8, 8), test=(flat.test[0].reshape(-1, 1, 8, 8), flat.test[1]))
    run = losac.torch.simulate(
        network(), nn.functional.cross_entropy, data, losac.algorithms.fedavg(0.3, 5, 3), rounds=rounds,
        clients_per_round=5, metrics={"accuracy": right}, reduction="mean",
    )  # fmt: skip
    print(f"{run.metrics['accuracy'][0]:.3f} at the start, {run.final('accuracy'):.3f} after {rounds} rounds")
    if picture:
        run.plot(["loss", "accuracy"]).savefig(picture, dpi=60)
    return run


if __name__ == "__main__":
    main(*sys.argv[1:2])
