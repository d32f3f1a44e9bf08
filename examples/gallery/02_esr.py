"""ESR by recording: how much a careless split flatters.

A recording is cut into 23 rows of one second. Dealt at random, rows of one recording are trained on and tested on; the
model then needs only to know the recording again. With whole recordings set aside the number is lower, and true. The
network has to be large enough to remember: here one hidden layer on the raw seconds.

    LOSAC_DATA_DIR=path/to/data python examples/gallery/02_esr.py [picture.png]
"""

import sys

import losac


def main(picture: str | None = None, rounds: int = 150, clients: int = 50) -> dict[str, losac.History]:
    """Train on both splits of the five kinds of recordings, and print the test accuracies."""
    runs = {}
    for split in ("random", "recording"):
        data = losac.data.load("esr", clients, "iid", split=split, multiclass=True, preprocessing="standard")
        model = losac.models.Dense((178, 64, 5))
        task = losac.classification(model, data, reduction="mean")
        method = losac.algorithms.fedavg(0.3, local_steps=5, blocks=5)
        runs[split] = losac.simulate(task, method, rounds=rounds, clients_per_round=10, eval_every=max(1, rounds // 15))
        print(f"split={split!r:12} {runs[split].final('accuracy'):.3f} of the test rows are told right")
    if picture:
        draw(runs, picture)
    return runs


def draw(runs: dict[str, losac.History], picture: str) -> None:
    """Save the accuracies over the rounds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    for split, run in runs.items():
        axes.plot(run.rounds, run.metrics["accuracy"], label=f"rows set aside by {split}")
    axes.set(xlabel="round", ylabel="test accuracy", title="ESR, five kinds of recordings")
    axes.legend(frameon=False)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:2])
