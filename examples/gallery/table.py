"""HAR by person and ESR by recording, with all algorithms, each tuned on the same budget.

Of the clients six in ten are trained on, two in ten choose the settings and two in ten, whom no run has seen, are what
the table shows: the mean of their accuracies, the worst tenth's, and the spread. Every algorithm has ten trials of
60 rounds with softmax regression: five step sizes and two values of the setting that makes it what it is, or ten step
sizes where there is none. Takes some minutes on two cores:

    LOSAC_DATA_DIR=path/to/data python examples/gallery/table.py --out docs/gallery_table.md
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from federations import Federation, esr, har, linear_task

import losac
from losac.tuning.spaces import SECOND_AXIS

SAMPLED = {"har": 5, "esr": 24}
HEAD = ("algorithm", "settings chosen", "validation", "test, mean", "worst 10 %", "std", "rounds × clients")


def grid(name: str, data: losac.FederatedData) -> dict[str, list[float]]:
    """Return ten points: step sizes from 0.01 to 10 over the curvature, and two values of the second axis."""
    second = SECOND_AXIS[name]
    largest = np.linalg.norm(data.x, 2) ** 2 / data.num_clients
    steps = np.geomspace(0.01, 10, 5 if second else 10) / (largest / 2)
    return {"step_size": steps.tolist(), **{axis: list(values[1:3]) for axis, values in second.items()}}


def start(name: str) -> losac.algorithms.Algorithm:
    """Return an algorithm with five local steps on five blocks, where it has so many."""
    made = losac.algorithms.ALGORITHMS[name]
    if name == "dsgd":
        return made(1.0)
    return made(1.0, blocks=5) if name in ("scaffnew", "tamuna") else made(1.0, local_steps=5, blocks=5)


def row(name: str, found: Federation, sampled: int, rounds: int) -> dict[str, Any]:
    """Tune an algorithm and judge it; return a row of the table."""
    task, algorithm = linear_task(found), start(name)
    clients = sampled if algorithm.partial else found.train.num_clients
    space = grid(name, found.train)
    tried = losac.sweep(
        task, algorithm, space, rounds=rounds, clients_per_round=clients, eval_every=rounds, loss_every=rounds
    )
    best = tried.best("accuracy")
    chosen = next(run for run in tried.members if all(run.settings[axis] == value for axis, value in best.items()))
    judged = losac.evaluate(task, chosen.params, data=found.test)
    edge = " *" if best["step_size"] in (space["step_size"][0], space["step_size"][-1]) else ""
    settings = ", ".join(f"{axis.replace('_size', '')} {value:.2g}" for axis, value in best.items())
    return dict(
        zip(
            HEAD,
            (
                f"`{name}`",
                settings + edge,
                chosen.final("accuracy"),
                judged.mean("accuracy"),
                judged.worst("accuracy"),
                judged.std("accuracy"),
                f"{rounds} × {clients}",
            ),
        )
    )


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return rows, the best test mean first, as a table."""
    ordered = sorted(rows, key=lambda row: -row["test, mean"])
    cells = [[f"{v:.3f}" if isinstance(v, float) else v for v in row.values()] for row in ordered]
    return "\n".join("| " + " | ".join(line) + " |" for line in [list(HEAD), ["---"] * len(HEAD), *cells])


PAGE = """# All algorithms on people and recordings

Made by `python examples/gallery/table.py --out docs/gallery_table.md`. Softmax regression, {rounds} rounds of five
local steps on five blocks, seed {seed}, ten trials for every algorithm; the trial with the best accuracy on the
validation clients is judged on the test clients. No client is in two of the three parts, and the test clients choose
nothing. The best test mean comes first; with one seed and few test clients small differences mean nothing. A star:
the chosen step is the smallest or the largest tried.

## HAR, a client is a person

{har}

## ESR, a client is a recording

{esr}
"""


def caption(name: str, found: Federation) -> str:
    """Say how many clients there are of each kind."""
    train, validation, test = (part.num_clients for part in found)
    sampled = f"{SAMPLED[name]} of the first take part in a round, or all where the method needs all"
    return f"{train} clients to train on, {validation} to tune on, {test} to judge on; {sampled}."


def main(
    algorithms: tuple[str, ...] = tuple(losac.algorithms.ALGORITHMS),
    rounds: int = 60,
    seed: int = 0,
    out: Path | None = None,
) -> str:
    """Return the page; write it where asked."""
    federations = {"har": har(seed), "esr": esr(seed)}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in federations}
    page = ""
    for algorithm in algorithms:
        for name, found in federations.items():
            rows[name].append(row(algorithm, found, SAMPLED[name], rounds))
            print(name, *rows[name][-1].values(), flush=True)
        tables = {name: caption(name, found) + "\n\n" + markdown(rows[name]) for name, found in federations.items()}
        page = PAGE.format(rounds=rounds, seed=seed, **tables)
        if out is not None:
            out.write_text(page, encoding="utf-8")
    return page


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    main(rounds=arguments.rounds, seed=arguments.seed, out=arguments.out)
