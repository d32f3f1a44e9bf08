"""HAR by person: LoSAC and FedAvg on the motion of people, judged on people whom no run has seen.

A client is a person with a smartphone; some are trained on, some are set aside. The picture shows each unseen person's
accuracy. What helps on average need not help the worst off, so both are printed.

    LOSAC_DATA_DIR=path/to/data python examples/gallery/01_har.py [picture.png]
"""

import sys

from federations import har, linear_task

import losac


def main(picture: str | None = None, rounds: int = 100) -> dict[str, losac.PerClient]:
    """Train, judge and print."""
    people = har()
    task = linear_task(people)
    methods = {
        "FedAvg": losac.algorithms.fedavg(1e-4, local_steps=5, blocks=5),
        "LoSAC": losac.algorithms.losac(1e-4, local_steps=5, blocks=5),
    }
    judged = {}
    for name, method in methods.items():
        run = losac.simulate(task, method, rounds=rounds, clients_per_round=5, eval_every=rounds)
        judged[name] = losac.evaluate(task, run.params, data=people.test)
        mean, worst = judged[name].mean("accuracy"), judged[name].worst("accuracy")
        print(f"{name:7} {mean:.3f} on {people.test.num_clients} unseen people, {worst:.3f} at the worst off")
    if picture:
        draw(judged, picture)
    return judged


def draw(judged: dict[str, losac.PerClient], picture: str) -> None:
    """Save one panel per method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 2.8), layout="constrained")
    for axes, (name, found) in zip(figure.subplots(1, len(judged), sharey=True), judged.items()):
        found.plot("accuracy", axes)
        axes.set_title(name)
    figure.savefig(picture, dpi=80)


if __name__ == "__main__":
    main(*sys.argv[1:2])
