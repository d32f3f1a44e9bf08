"""Rounds per second of the PyTorch engine and of the compiled simulator, in one process, on the same problem.

    python benchmarks/torch_engine.py --rounds 30

Digits sorted by label over 100 clients, 10 of them per round, the paper's 2NN on 64 inputs, five local steps on blocks.
Every engine runs twice, and the second run counts, since it contains no compilation.
"""

from __future__ import annotations

import argparse
import itertools
import time

import torch

import losac
import losac.algorithms as A


def module() -> torch.nn.Module:
    torch.manual_seed(0)
    sizes, layers = (64, 200, 200, 10), []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def seconds(run, rounds: int) -> float:
    run(rounds)
    began = time.perf_counter()
    run(rounds)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    data = losac.data.load("digits", clients=100, partition="sorted")
    task = losac.classification(losac.models.two_nn(64, 10), data)
    net, loss = module(), torch.nn.functional.cross_entropy
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {options.rounds} rounds on {options.device}")
    for algorithm in (A.fedavg(1e-3, 5, 5), A.scaffold(1e-3, 5, 5), A.losac(1e-4, 5, 5)):

        def compiled(rounds: int, algorithm=algorithm) -> None:
            losac.simulate(task, algorithm, rounds=rounds, clients_per_round=10, eval_every=rounds)

        def in_torch(rounds: int, vectorize: bool, algorithm=algorithm) -> None:
            losac.torch.simulate(
                net, loss, data, algorithm, rounds=rounds, clients_per_round=10, eval_every=rounds,
                vectorize=vectorize, device=options.device,
            )  # fmt: skip

        took = {
            "compiled": seconds(compiled, options.rounds),
            "torch, at once": seconds(lambda rounds: in_torch(rounds, True), options.rounds),
            "torch, one by one": seconds(lambda rounds: in_torch(rounds, False), options.rounds),
        }
        shown = ", ".join(f"{name} {options.rounds / value:.1f}" for name, value in took.items())
        print(f"{algorithm.label}: rounds/s: {shown}", flush=True)


if __name__ == "__main__":
    main()
