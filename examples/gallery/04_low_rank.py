"""Low-rank estimation: the nuclear norm finds the rank of a matrix that no client sees completely.

Clients hold measurements ⟨X, D⟩ + noise of one matrix X. With few measurements least squares fits noise and has full
rank. With the nuclear norm as regulariser the estimate has few singular values, the right ones.

    python examples/gallery/04_low_rank.py [picture.png]
"""

import sys

import numpy as np

import losac


def main(picture: str | None = None, dim: int = 16, rank: int = 3, rounds: int = 300) -> dict[str, np.ndarray]:
    """Estimate with and without the regulariser; print rank and error of both."""
    data = losac.data.load("lowrank", clients=20, samples=16, dim=dim, rank=rank)
    truth = data.info["truth"]
    singular = {"truth": np.linalg.svd(truth, compute_uv=False)}
    for name, psi in (("least squares", losac.prox.zero()), ("nuclear norm", losac.prox.nuclear(0.2))):
        task = losac.regression(losac.models.Inner((dim, dim)), data, reduction="mean", regularizer=psi)
        method = losac.algorithms.losac(0.02, local_steps=2, blocks=2, scaling="exact")
        run = losac.simulate(task, method, rounds=rounds, clients_per_round=10, eval_every=rounds)
        singular[name] = np.linalg.svd(run.params, compute_uv=False)
        error = np.linalg.norm(run.params - truth) / np.linalg.norm(truth)
        print(f"{name:13} rank {(singular[name] > 1e-2).sum():2} (the truth {rank}), relative error {error:.3f}")
    if picture:
        draw(singular, picture)
    return singular


def draw(singular: dict[str, np.ndarray], picture: str) -> None:
    """Save the singular values."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for (name, values), marker in zip(singular.items(), ("_", "x", "o")):
        axes.plot(np.arange(1, len(values) + 1), values, marker, label=name, fillstyle="none", markersize=8)
    axes.set(xlabel="place", ylabel="singular value", title="Low-rank estimation")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:2])
