"""ESR by recording: what a model is worth to recordings that it has not seen.

A recording is cut into 23 rows of one second, all of one kind, and each recording is a client. A split that deals rows
at random has seconds of one recording on both sides. Here whole recordings are set aside, beside other seconds of those
trained on, so that one sees whether the model knows recordings again or tells kinds apart; and each client's own
accuracy shows what the mean hides: recordings that are hardly ever told right.

    LOSAC_DATA_DIR=path/to/data python examples/gallery/02_esr.py [picture.png]
"""

import sys

from federations import esr

import losac


def main(picture: str | None = None, rounds: int = 150) -> dict[str, losac.PerClient]:
    """Train on the five kinds of recordings, and print the accuracy on other seconds and on new recordings."""
    recordings = esr(multiclass=True)
    train, seconds = losac.hold_out(recordings.train, 0.2)
    task = losac.classification(losac.models.Dense((60, 64, 5)), train, reduction="mean", test=None)
    method = losac.algorithms.fedavg(0.1, local_steps=5, blocks=5)
    run = losac.simulate(task, method, rounds=rounds, clients_per_round=24, eval_every=rounds)
    judged = {
        "other seconds": losac.evaluate(task, run.params, data=seconds),
        "new recordings": losac.evaluate(task, run.params, data=recordings.test),
    }
    for name, found in judged.items():
        print(f"{name:14} {found.mean('accuracy'):.3f} told right, {found.worst('accuracy'):.3f} in the worst tenth")
    if picture:
        draw(judged, picture)
    return judged


def draw(judged: dict[str, losac.PerClient], picture: str) -> None:
    """Save one panel for each part."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.8), layout="constrained")
    for axes, (name, found) in zip(figure.subplots(1, 2, sharey=True), judged.items()):
        found.plot("accuracy", axes)
        axes.set_title(name)
        axes.set_xlabel("recordings, the worst first")
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:2])
