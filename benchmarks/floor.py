"""What the machine can do at most, and J1's share of it: products of large and of J1's matrices, memory traffic.

    LOSAC_DATA_DIR=path/to/data python benchmarks/floor.py

On a CPU one process per core measures at the same time, each bound to its core, and their rates are added; on a GPU it
is one process with all clients of a round at once. Writes results/floor.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs import JOBS

RESULTS = Path(__file__).parent / "results"
LAYERS = ((784, 200), (200, 200), (200, 10))
SECONDS = 1.5


def step_flops(batch: int) -> int:
    """Return the operations of the products of one local step: forward, weights, and inputs except the first."""
    weights = sum(a * b for a, b in LAYERS)
    return 2 * batch * (2 * weights + sum(a * b for a, b in LAYERS[1:]))


def products(batch: int, clients: int) -> tuple[Callable[..., Any], tuple[Any, ...], float]:
    """Return J1's products of a local step with the update of the weights, for one client or several at once."""
    import jax
    import jax.numpy as jnp

    def step(x: Any, weights: Any) -> Any:
        w1, w2, w3 = weights
        h1 = x @ w1
        h2 = h1 @ w2
        d3 = h2 @ w3
        d2 = d3 @ w3.T
        d1 = d2 @ w2.T
        gradients = (x.T @ d1, h1.T @ d2, h2.T @ d3)
        return jax.tree.map(lambda w, g: w - 1e-9 * g, weights, gradients)

    one = jax.vmap(step) if clients > 1 else step
    lead = (clients,) if clients > 1 else ()
    given = (jnp.ones((*lead, batch, 784)) * 1e-3, tuple(jnp.ones((*lead, *s)) * 1e-3 for s in LAYERS))
    many = 20

    def loop(x: Any, weights: Any) -> Any:
        return jax.lax.fori_loop(0, many, lambda _, w: one(x, w), weights)

    return jax.jit(loop), given, float(step_flops(batch) * clients * many)


def large(size: int) -> tuple[Callable[..., Any], tuple[Any, ...], float]:
    """Return the product of two large square matrices."""
    import jax
    import jax.numpy as jnp

    a = jnp.ones((size, size)) / size
    return jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest")), (a, a), 2.0 * size**3


def copying(numbers: int) -> tuple[Callable[..., Any], tuple[Any, ...], float]:
    """Return a pass that reads and writes an array much larger than the caches; counted in bytes."""
    import jax
    import jax.numpy as jnp

    return jax.jit(lambda a: a + 1), (jnp.zeros(numbers),), 8.0 * numbers


def rate(function: Callable[..., Any], given: tuple[Any, ...], amount: float) -> float:
    """Return the rate that nine of ten short calls do not reach: what others do in between does not lower it."""
    import jax

    jax.block_until_ready(function(*given))
    rates, until = [], time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter()
        jax.block_until_ready(function(*given))
        rates.append(amount / (time.perf_counter() - began))
    return sorted(rates)[int(0.9 * len(rates))]


def measures(on_gpu: bool) -> list[tuple[str, str, Callable[[], Any]]]:
    """Return what is measured: its name, its unit, and how to make it."""
    job, third = JOBS["J1"], JOBS["J3"]
    at_once = job.sampled if on_gpu else 1
    how = "all clients at once" if on_gpu else "one client at a time on each core"
    return [
        ("product of large matrices, float32", "GFLOP/s", lambda: large(8192 if on_gpu else 1024)),
        (f"J1's products and updates, batch {job.batch}, {how}", "GFLOP/s", lambda: products(job.batch, at_once)),
        (f"J3's products and updates, batch {third.batch}, {how}", "GFLOP/s",
         lambda: products(third.batch, third.sampled if on_gpu else 1)),
        ("memory, one array read and one written", "GB/s", lambda: copying(2**28 if on_gpu else 2**24)),
    ]  # fmt: skip


def work(core: int | None, on_gpu: bool, barrier: Any, answers: Any) -> None:
    """Measure in a separate process, bound to a core, at the same time as the others."""
    if core is not None:
        os.sched_setaffinity(0, {core})
    found = []
    for _, _, make in measures(on_gpu):
        function, given, amount = make()
        barrier.wait()
        found.append(rate(function, given, amount) / 1e9)
    answers.put(found)


def backend() -> tuple[bool, str]:
    """Return whether JAX runs on a GPU, and the device's name; asked in a separate process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_backend)


def _backend() -> tuple[bool, str]:
    import jax

    return jax.default_backend() != "cpu", jax.devices()[0].device_kind


def our_round(rounds: int) -> float:
    """Return the seconds of a round of J1 on the simulator, by the same rule: one of ten short runs is faster."""
    from export import federated, first_weights
    from simulator import Simulator, make_algorithm, make_task

    job = JOBS["J1"]
    simulator = Simulator(make_task(job, federated(job), first_weights(job)), make_algorithm(job), job.sampled)
    simulator.run(rounds)
    return sorted(simulator.run(rounds) for _ in range(20))[2] / rounds


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    load = round(os.getloadavg()[0], 2)
    on_gpu, device = backend()
    cores: list[int | None] = [None] if on_gpu else sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(len(cores)), context.Queue()
    workers = [context.Process(target=work, args=(core, on_gpu, barrier, answers)) for core in cores]
    for worker in workers:
        worker.start()
    each = [answers.get(timeout=300) for _ in workers]
    for worker in workers:
        worker.join()
    rates = [{"what": what, "unit": unit, "rate": sum(found)}
             for (what, unit, _), found in zip(measures(on_gpu), zip(*each))]  # fmt: skip
    job = JOBS["J1"]
    flops = step_flops(job.batch) * job.steps * job.sampled / 1e9
    ours = our_round(50 if on_gpu else 5)
    big, own = rates[0]["rate"], rates[1]["rate"]
    share = [
        {"what": "operations in products", "unit": "GFLOP", "value": flops},
        {"what": "losac's round", "unit": "ms", "value": 1e3 * ours},
        {"what": "floor at the rate of large products", "unit": "ms", "value": 1e3 * flops / big},
        {"what": "floor at the rate of J1's products and updates", "unit": "ms", "value": 1e3 * flops / own},
        {"what": "share of the rate of large products", "unit": "%", "value": 100 * flops / ours / big},
        {"what": "share of the rate of J1's products and updates", "unit": "%", "value": 100 * flops / ours / own},
    ]
    for row in rates:
        print(f"{row['what']:70} {row['rate']:10.4g} {row['unit']}")
    for row in share:
        print(f"{row['what']:70} {row['value']:10.4g} {row['unit']}")
    about = {"device": device, "workers": len(cores), "date": time.strftime("%Y-%m-%d"), "load_before": load}
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "floor.json").write_text(json.dumps(about | {"rates": rates, "share": share}, indent=1) + "\n")


if __name__ == "__main__":
    main()
