"""a9a with an l1 term: a sparse model with the same features as the pooled solution.

LoSAC-Prox on sampled clients converges to the optimum of the composite problem. Its zeros are therefore those of
proximal gradient descent on all rows in one place. Averaging after local proximal steps (FedMiD) keeps every feature
that some client uses.

    LOSAC_DATA_DIR=path/to/data python examples/gallery/03_a9a_l1.py [picture.png]
"""

import sys

import numpy as np

import losac


def main(
    picture: str | None = None, rows: int = 2000, rounds: int = 600, strength: float = 0.01
) -> dict[str, set[int]]:
    """Train, and print how many features each solution keeps and shares with the pooled one."""
    whole = losac.data.load("a9a", clients=1)
    parts = losac.data.partition.deal(whole.y[:rows], 20, "mixture:0.5", np.random.default_rng(0))
    data = losac.FederatedData.from_partition(whole.x[:rows], whole.y[:rows], parts, num_classes=2, name="a9a")
    pooled = losac.FederatedData.from_clients([(data.x, data.y)], num_classes=2, name="a9a")
    runs = {
        "pooled": (pooled, losac.algorithms.dsgd(0.5)),
        "LoSAC-Prox": (data, losac.algorithms.losac(0.2, 5, 5, scaling="exact")),
        "FedMiD": (data, losac.algorithms.fedmid(0.2, 5, 5)),
    }
    model = losac.models.Dense((data.x.shape[1], 1), "zeros", bias=False)
    options = {"reduction": "mean", "weights": "samples", "regularizer": losac.prox.l1(strength)}
    weights = {}
    for name, (given, method) in runs.items():
        task = losac.classification(model, given, **options)
        sampled = min(10, given.num_clients)
        run = losac.simulate(task, method, rounds=rounds, clients_per_round=sampled, eval_every=rounds)
        weights[name] = np.asarray(run.params[0]["w"]).ravel()
    kept = {name: set(np.flatnonzero(np.abs(w) > 1e-4).tolist()) for name, w in weights.items()}
    for name, features in kept.items():
        common = len(features & kept["pooled"])
        print(f"{name:11} keeps {len(features):3} of {data.x.shape[1]} features, {common} of the pooled solution's")
    if picture:
        draw(weights, picture)
    return kept


def draw(weights: dict[str, np.ndarray], picture: str) -> None:
    """Save the weights, by their size in the pooled solution."""
    from matplotlib.figure import Figure

    order = np.argsort(-np.abs(weights["pooled"]), kind="stable")[:40]
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    for (name, w), marker in zip(weights.items(), ("_", "o", "x")):
        axes.plot(w[order], marker, label=name, markersize=5 if marker != "_" else 11, fillstyle="none")
    axes.set(
        xlabel="features, the largest of the pooled solution first", ylabel="weight", title="a9a, logistic with l1"
    )
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:2])
