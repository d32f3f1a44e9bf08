"""A quick look without the peers: the simulator against a plain loop over clients with a jitted local step, in one run.

    LOSAC_DATA_DIR=path/to/data python benchmarks/rounds.py --json rounds.json

The jobs are those of ``jobs.py``. Both run alternately, so a noisy machine disturbs both; the median of the
repetitions is reported. The plain loop always runs FedAvg.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import jax
import numpy as np
from export import federated, first_weights
from jobs import JOBS, Job
from simulator import Simulator, make_algorithm, make_task

import losac
from losac.simulation.sampling import Uniform, draw_clients

LOOKED_AT = ("J1", "J2", "J3", "J4", "J1-losac", "J3-losac")


def plain_loop(task: losac.Task, job: Job) -> Callable[[], float]:
    """Return FedAvg as most people write it: a Python loop over clients and steps around a jitted gradient step."""
    data = task.data

    @jax.jit
    def step(params, x, y):
        gradient = jax.grad(lambda p: task.loss(p, (x, y)))(params)
        return jax.tree.map(lambda p, g: p - job.rate * g, params, gradient)

    params = task.init_params(jax.random.key(0))
    rng = np.random.default_rng(0)

    def run() -> float:
        nonlocal params
        began = time.perf_counter()
        ids, _ = draw_clients(Uniform(data.num_clients, job.sampled), 0, 0, 1, data.num_clients, job.sampled)
        total = jax.tree.map(np.zeros_like, params)
        for i in ids[0]:
            x, y = data.client(int(i))
            local = params
            for _ in range(job.steps):
                first = int(rng.integers(job.blocks)) * job.batch
                local = step(local, x[first : first + job.batch], y[first : first + job.batch])
            total = jax.tree.map(lambda t, w, p: t + (w - p), total, local, params)
        params = jax.block_until_ready(jax.tree.map(lambda p, t: p + t / job.sampled, params, total))
        return time.perf_counter() - began

    run()
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds in one repetition")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--jobs", default=",".join(LOOKED_AT), help="comma-separated")
    parser.add_argument("--json", help="write the numbers to this file")
    arguments = parser.parse_args()
    found = {}
    print(f"{'':46} {'losac s/round':>14} {'plain loop':>12} {'ratio':>7}   on {jax.devices()[0].device_kind}")
    for name in arguments.jobs.split(","):
        job = JOBS[name]
        task = make_task(job, federated(job), first_weights(job))
        ours, peer = Simulator(task, make_algorithm(job), job.sampled), plain_loop(task, job)
        ours.run(arguments.rounds)
        times = [(ours.run(arguments.rounds) / arguments.rounds, peer()) for _ in range(arguments.repeat)]
        a, b = (statistics.median(t) for t in zip(*times))
        about = {"device": jax.devices()[0].device_kind, "date": time.strftime("%Y-%m-%d")}
        found[name] = {"losac": a, "plain loop (FedAvg)": b, "all": times, **about}
        print(f"{job.title:46} {a:14.5f} {b:12.4f} {b / a:7.1f}", flush=True)
        del ours, peer, task
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
