"""Memory of adapters on a frozen base: 100 M frozen parameters, 1 M of adapters, N = 1000 clients, S = 10 in a round.

    python benchmarks/lora_memory.py            # each setting in a process of its own
    python benchmarks/lora_memory.py fedavg     # one of them, in this process

The base is a residual network of square matrices in float32. A client has one row, and takes one step. Printed are the
process's largest memory beyond that of a process with Python, JAX and losac alone, what a client keeps between rounds
and sends in a round, and the bytes of the compiled program. "closure" is the base as captured values under formed
matrices W + BA, as it had to be without Task(frozen=…), on a smaller base.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SETTINGS = ("nothing", "fedavg", "scaffold", "small", "closure")
SMALL = 10


def peak() -> float:
    """Return the largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def measure(name: str, width: int, depth: int, rank: int, clients: int, sampled: int) -> None:
    folder = os.environ["LOSAC_CACHE"]
    import jax
    import jax.numpy as jnp
    import numpy as np

    import losac
    from losac.simulation.engines.swept import setup
    from losac.simulation.options import SimulationOptions

    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    losac.simulate  # noqa: B018 (loads it)
    before = peak()
    if name == "nothing":
        print(f"{name}: {before:.0f} MB")
        return
    depth = depth // SMALL if name in ("small", "closure") else depth
    layers = tuple(f"{k:02}" for k in range(depth))
    rng = np.random.default_rng(0)
    keys = dict(zip(layers, jax.random.split(jax.random.key(0), depth)))
    draw = jax.jit(lambda key: 0.1 / width**0.5 * jax.random.normal(key, (width, width)))
    base = {k: jax.block_until_ready(draw(keys[k])) for k in layers}

    def network(params: Any, x: Any) -> Any:
        for k in layers:
            x = x + jnp.tanh(x @ params[k])
        return x[:, :1]

    x = rng.standard_normal((clients, width), np.float32)
    pairs = [(x[i : i + 1], np.float32([i % 2])) for i in range(clients)]
    data = losac.FederatedData.from_clients(pairs, test=(x[:4], np.zeros(4, np.float32)))
    model: Any = losac.adapters.lora(losac.models.Function(lambda key: base, network), rank, params=base)
    if name == "closure":
        start, frozen = model.init(jax.random.key(0)), model.frozen
        model = losac.models.Function(lambda key: start, lambda params, x: network(formed(params, frozen["base"]), x))
    task = losac.regression(model, data)
    method = (losac.algorithms.scaffold if name == "scaffold" else losac.algorithms.fedavg)(1e-3, 1)
    run: dict[str, Any] = {
        "rounds": 2,
        "clients_per_round": sampled,
        "eval_every": 2,
        "loss_every": 2,
        "store": "memory",
    }
    history = losac.simulate(task, method, **run)
    options = SimulationOptions.of(task, **run)
    sizes = setup.state_sizes(task, method, setup.program_shape(task, method, options), options)
    programs = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
    trained = sum(a.size for a in jax.tree.leaves(history.params))
    visits, size = 2 * sampled, depth * width**2
    print(
        f"{name}: base {size / 1e6:.1f} M ({size * 4 / 1e6:.0f} MB), adapters {trained / 1e6:.2f} M "
        f"({trained * 4 / 1e6:.1f} MB); peak {peak() - before:.0f} MB; a client keeps {sizes.row / 1e6:.1f} MB, sends "
        f"{history.costs['bytes_up'][-1] / visits / 1e6:.1f} MB; programs on disk {programs / 1e6:.1f} MB"
    )


def formed(params: Any, base: Any) -> Any:
    """Return the matrices W + BA, formed."""
    return {k: base[k] + (params[k]["b"] @ params[k]["a"]).T for k in base}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", nargs="?", choices=SETTINGS)
    parser.add_argument("--width", type=int, default=2240)
    parser.add_argument("--depth", type=int, default=20)
    parser.add_argument("--rank", type=int, default=11)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--sampled", type=int, default=10)
    given = parser.parse_args()
    if given.setting is not None:
        measure(given.setting, given.width, given.depth, given.rank, given.clients, given.sampled)
        return
    for name in SETTINGS:
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"LOSAC_CACHE": folder, "LOSAC_CPU_DEVICES": "1"}
            environment.pop("LOSAC_PROGRAMS", None)
            subprocess.run([sys.executable, __file__, name, *sys.argv[1:]], check=True, env=environment)


if __name__ == "__main__":
    main()
