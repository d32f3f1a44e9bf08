"""ESR by recording: how well a model works on recordings that it has not seen.

A recording is cut into 23 rows of one second, all of one kind, and each recording is a client. A random split of rows
puts seconds of one recording on both sides. Here whole recordings are set aside, and also other seconds of those
trained on. Comparing both shows whether the model recognises recordings or distinguishes kinds. Each client's own
accuracy shows what the mean hides: recordings that are hardly ever classified correctly.

    LOSAC_DATA_DIR=path/to/data python examples/gallery/02_esr.py [picture.png]
"""

import sys

from federations import esr

import losac


def main(picture: str | None = None, rounds: int = 150) -> dict[str, losac.PerClient]:
    """Train on the five kinds of recordings, and print the accuracy on other seconds and on new recordings."""
    judged = train_and_judge("none", rounds)
    prepared = train_and_judge("row-max", rounds)
    for name, found in (judged | {f"{name}, without amplitude": found for name, found in prepared.items()}).items():
        print(f"{name:34} {found.mean('accuracy'):.3f} correct, {found.worst('accuracy'):.3f} in the worst tenth")
    if picture:
        draw(judged, picture)
    return judged


def train_and_judge(preprocessing: str, rounds: int) -> dict[str, losac.PerClient]:
    """Return the accuracy of each recording: on other seconds of those trained on, and on new ones."""
    recordings = esr(multiclass=True, preprocessing=preprocessing)
    train, seconds = losac.hold_out(recordings.train, 0.2)
    task = losac.classification(losac.models.Dense((60, 64, 5)), train, reduction="mean", test=None)
    method = losac.algorithms.fedavg(0.1, local_steps=5, blocks=5)
    run = losac.simulate(task, method, rounds=rounds, clients_per_round=24, eval_every=rounds)
    return {
        "other seconds": losac.evaluate(task, run.params, data=seconds),
        "new recordings": losac.evaluate(task, run.params, data=recordings.test),
    }


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
