"""LoSAC and SCAFFOLD with the paper's settings, compared with the numbers of its Table 2.

N=100 clients, non-IID (sorted by label), S=10 per round, T=2 local steps on M=5 blocks, step size 1e-4, the 2NN of
784-200-200-10 units (561 inputs for HAR), 500 rounds. Takes about five minutes on two cores:

    LOSAC_DATA_DIR=path/to/data python examples/paper_settings.py
"""

import argparse

import losac

TABLE_2 = {  # (data, algorithm): rounds to 85 %, loss and accuracy at round 500, as the paper prints them
    ("mnist", "scaffold"): (57, 0.1847, 0.9438),
    ("mnist", "losac"): (44, 0.0887, 0.9645),
    ("har", "scaffold"): (137, 0.2178, 0.9108),
    ("har", "losac"): (89, 0.1076, 0.9352),
}
SHAPES = {"mnist": (784, 10), "har": (561, 6)}


def main() -> None:
    """Run the four cells with some seeds and print them next to the paper's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    arguments = parser.parse_args()
    print(f"{'':15} {'rounds to 85 %':>24} {'loss':>24} {'accuracy':>24}")
    for (name, label), paper in TABLE_2.items():
        data = losac.data.load(name, clients=100, partition="sorted")
        task = losac.classification(losac.models.two_nn(*SHAPES[name]), data)
        algorithm = losac.algorithms.ALGORITHMS[label](step_size=1e-4, local_steps=2, blocks=5)
        runs = losac.sweep(
            task, algorithm, {}, arguments.seeds, rounds=arguments.rounds, clients_per_round=10, loss_every=50
        ).members
        columns = (
            [str(run.rounds_to("accuracy", 0.85)) for run in runs],
            [f"{run.final('loss'):.4f}" for run in runs],
            [f"{run.final('accuracy'):.4f}" for run in runs],
        )
        shown = (f"{', '.join(ours)} | {theirs:g}" for ours, theirs in zip(columns, paper))
        print(f"{name:6}{label:9} " + " ".join(f"{cell:>24}" for cell in shown), flush=True)
    print("ours, seed by seed | the paper's")


if __name__ == "__main__":
    main()
