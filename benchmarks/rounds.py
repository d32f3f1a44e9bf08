"""Seconds per round of the simulator, beside a plain loop over clients with a jitted local step, in one run.

Jobs J1 (2NN on MNIST, N=1000 × 60 samples, S=50, T=5 steps on blocks of 12, FedAvg), J2 (the same with softmax
regression), J3 (N=100, S=10, blocks of 120), J4 (SCAFFOLD on J1), and LoSAC on J1 and J3.

    LOSAC_DATA_DIR=path/to/data python benchmarks/rounds.py --json rounds.json

Contenders run alternately, so that a noisy machine disturbs both; the median of the repetitions is reported.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import jax
import numpy as np

import losac
from losac.simulation.engine import Engine, default_plan
from losac.simulation.sampling import Uniform, draw_clients

A = losac.algorithms
JOBS = {
    "J1 fedavg": (1000, 50, "2nn", A.fedavg(4e-4, 5, 5)),
    "J2 fedavg, softmax": (1000, 50, "softmax", A.fedavg(4e-4, 5, 5)),
    "J3 fedavg": (100, 10, "2nn", A.fedavg(1e-4, 5, 5)),
    "J4 scaffold on J1": (1000, 50, "2nn", A.scaffold(4e-4, 5, 5)),
    "losac on J1": (1000, 50, "2nn", A.losac(4e-4, 5, 5)),
    "losac on J3": (100, 10, "2nn", A.losac(1e-4, 5, 5)),
}


def simulator(task: losac.Task, algorithm: A.Algorithm, sampled: int, rounds: int) -> Callable[[], float]:
    """Return a function that runs some rounds on the compiled simulator and returns seconds per round."""
    engine = Engine(task, algorithm, default_plan(sampled), 0)
    sampler = Uniform(task.data.num_clients, sampled)

    def run() -> float:
        began = time.perf_counter()
        now = int(engine.state.round)
        list(engine.run(sampler, [now, now + rounds], False, lambda: None))
        both = time.perf_counter() - began
        list(engine.run(sampler, [now + rounds, now + rounds + 1], False, lambda: None))
        return (2 * both - (time.perf_counter() - began)) / (rounds - 1)

    run(), run()
    return run


def plain_loop(task: losac.Task, eta: float, sampled: int, blocks: int, steps: int) -> Callable[[], float]:
    """Return FedAvg as most people write it: a Python loop over clients and steps around a jitted gradient step."""
    data = task.data

    @jax.jit
    def step(params, x, y):
        gradient = jax.grad(lambda p: task.loss(p, (x, y)) * len(x) * blocks)(params)
        return jax.tree.map(lambda p, g: p - eta * g, params, gradient)

    params = task.init_params(jax.random.key(0))
    rng = np.random.default_rng(0)

    def run() -> float:
        nonlocal params
        began = time.perf_counter()
        ids, _ = draw_clients(Uniform(data.num_clients, sampled), 0, 0, 1, data.num_clients, sampled)
        total = jax.tree.map(np.zeros_like, params)
        for i in ids[0]:
            x, y = data.client(int(i))
            local = params
            for _ in range(steps):
                rows = slice(*(np.array([0, 1]) + rng.integers(blocks)) * (len(x) // blocks))
                local = step(local, x[rows], y[rows])
            total = jax.tree.map(lambda t, w, p: t + (w - p), total, local, params)
        params = jax.block_until_ready(jax.tree.map(lambda p, t: p + t / sampled, params, total))
        return time.perf_counter() - began

    run()
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds in one repetition")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    found = {}
    print(f"{'':22} {'losac s/round':>14} {'plain loop':>12} {'ratio':>7}   on {jax.devices()[0].device_kind}")
    for name, (clients, sampled, model, algorithm) in JOBS.items():
        data = losac.data.load("mnist", clients=clients, partition="sorted")
        net = losac.models.two_nn() if model == "2nn" else losac.models.softmax_regression(784, 10)
        task = losac.classification(net, data)
        ours = simulator(task, algorithm, sampled, arguments.rounds)
        peer = plain_loop(task, float(algorithm.step_size), sampled, 5, 5)
        times = [(ours(), peer()) for _ in range(arguments.repeat)]
        a, b = (statistics.median(t) for t in zip(*times))
        found[name] = {"losac": a, "plain loop (FedAvg)": b, "all": times, "device": jax.devices()[0].device_kind}
        print(f"{name:22} {a:14.5f} {b:12.4f} {b / a:7.1f}", flush=True)
        del ours, peer, task, data
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
