"""HAR by person: three methods on the motion of people, evaluated on people that no run has seen.

A client is a person with a smartphone. Some people are trained on. Others choose each method's step size, because equal
steps are not a fair comparison. The picture shows the remaining people. What helps on average may not help the
worst-off person, so both numbers are printed.

    LOSAC_DATA_DIR=path/to/data python examples/gallery/01_har.py [picture.png]
"""

import sys

from federations import har, linear_task

import losac

STEPS = (3e-6, 1e-5, 3e-5, 1e-4, 3e-4)


def main(picture: str | None = None, rounds: int = 100) -> dict[str, losac.PerClient]:
    """Tune, evaluate and print."""
    people = har()
    task = linear_task(people)
    judged = {}
    for name in ("fedavg", "scaffold", "losac"):
        method = losac.algorithms.ALGORITHMS[name](STEPS[0], local_steps=5, blocks=5)
        sweep = losac.sweep(task, method, {"step_size": STEPS}, rounds=rounds, clients_per_round=5, eval_every=rounds)
        step = sweep.best("accuracy")["step_size"]
        best = next(run for run in sweep.members if run.settings["step_size"] == step)
        judged[name] = losac.evaluate(task, best.params, data=people.test)
        mean, worst = judged[name].mean("accuracy"), judged[name].worst("accuracy")
        unseen = people.test.num_clients
        print(f"{name:9} step {step:g}: {mean:.3f} on {unseen} unseen people, {worst:.3f} at the worst off")
    if picture:
        draw(judged, picture)
    return judged


def draw(judged: dict[str, losac.PerClient], picture: str) -> None:
    """Save one panel per method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.6), layout="constrained")
    for axes, (name, found) in zip(figure.subplots(1, len(judged), sharey=True), judged.items()):
        found.plot("accuracy", axes)
        axes.set_title(name)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:2])
