"""Seconds per round as the number of clients grows to a million, and a long run with states beyond the memory.

    python benchmarks/clients.py table                 # 10³ … 10⁶ clients at equal S, alternately
    python benchmarks/clients.py long --folder /tmp    # a million clients, over 10⁵ of them touched, states in files
    python benchmarks/clients.py again --folder /tmp   # the same for fewer rounds, and then with the same clients again

All write to benchmarks/results/clients.json (``--json``). The reference is the ordinary engine with 10³ clients, which
has everything on the device; it is measured again with every part, so a busy machine disturbs both alike.
Compilation and evaluation are left out.
"""

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import losac
from losac._devices import prepare_jax
from losac.losses import CrossEntropy
from losac.simulation.engines.paged import PagedEngine
from losac.simulation.engines.resident import ResidentEngine
from losac.simulation.options import ComputeOptions, RunOptions, SimulationOptions
from losac.simulation.sampling import Uniform

A = losac.algorithms
SAMPLED = 50
OPTIONS = SimulationOptions(RunOptions(rounds=1, loss_every=10**9), ComputeOptions(gradients="formed"), SAMPLED)
RESULTS = Path(__file__).parent / "results" / "clients.json"


@dataclass(frozen=True)
class Again:
    """The uniform sampler, delayed by some rounds: the same clients take part again."""

    clients: int
    ago: int

    def __call__(self, round_index: int, rng: np.random.Generator, history: object = None) -> np.ndarray:
        rng = np.random.default_rng([0, round_index - self.ago])
        return Uniform(self.clients, SAMPLED)(round_index - self.ago, rng)


def first_clients(data: losac.FederatedData, clients: int) -> losac.FederatedData:
    """Return the first clients of a federation, without a copy."""
    rows = int(data.offsets[clients])
    return losac.FederatedData(data.x[:rows], data.y[:rows], data.offsets[: clients + 1], name="crowd")


def make_task(model: object, data: losac.FederatedData) -> losac.Task:
    return losac.Task(CrossEntropy(model), model.init, data)


def seconds_per_round(engine: ResidentEngine | PagedEngine, rounds: int, sampler: object = None) -> float:
    now = int(engine.state.round)
    began = time.perf_counter()
    list(engine.run(sampler or Uniform(engine.task.data.num_clients, SAMPLED), [now + rounds], False, lambda: None))
    return (time.perf_counter() - began) / rounds


def memory() -> dict[str, float]:
    """Return the memory of this process in GB: its own, and the pages of files that are mapped."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(lines[name].split()[0]) * 1024 / 1e9 for name in ("RssAnon", "RssFile")}


def machine() -> dict[str, object]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {"cores": os.cpu_count(), "memory_gb": total, "load": os.getloadavg()}


def table(clients: list[int], rounds: int, repeat: int) -> dict[str, object]:
    """Measure all numbers of clients alternately, for three algorithms and a small model."""
    model = losac.models.softmax_regression(60, 10)
    everyone = losac.data.crowd(max(clients))
    tasks = {n: make_task(model, first_clients(everyone, n)) for n in clients}
    found: dict[str, object] = {"rounds": rounds, "sampled": SAMPLED, "parameters": 610, "steps": 20, "blocks": 4}
    for algorithm in (A.fedavg(0.02, 20, 4), A.scaffold(0.02, 20, 4), A.losac(1e-6, 20, 4)):
        engines: dict[str, ResidentEngine | PagedEngine] = {
            "device": ResidentEngine(tasks[min(clients)], algorithm, OPTIONS)
        }
        engines |= {str(n): PagedEngine(tasks[n], algorithm, OPTIONS) for n in clients}
        for engine in engines.values():
            seconds_per_round(engine, rounds)
        times = {name: [] for name in engines}
        for _ in range(repeat):
            for name, engine in engines.items():
                times[name].append(seconds_per_round(engine, rounds))
        medians = {name: statistics.median(series) for name, series in times.items()}
        found[algorithm.label] = {"median": medians, "all": times}
        base = medians["device"]
        print(algorithm.label, {k: f"{1e3 * v:.2f} ms, {v / base:.2f}" for k, v in medians.items()}, flush=True)
    return found


def long(clients: int, rounds: int, again: int, hidden: int, steps: int, folder: str) -> dict[str, object]:
    """Run SCAFFOLD with a million clients for long, and then the clients of its first rounds again."""
    model = losac.models.two_nn(60, 10, hidden)
    everyone = losac.data.crowd(clients)
    algorithm = A.scaffold(1e-3, steps, 2)
    small = ResidentEngine(make_task(model, first_clients(everyone, 1000)), algorithm, OPTIONS)
    found: dict[str, object] = {"clients": clients, "sampled": SAMPLED, "steps": steps, "parts": []}
    with tempfile.TemporaryDirectory(dir=folder) as place:
        large = PagedEngine(make_task(model, everyone), algorithm, OPTIONS, folder=Path(place))
        found["row_bytes"] = large.spill.row_bytes
        beside = max(20, rounds // 40)
        for engine in (small, large):
            seconds_per_round(engine, beside)  # compiles
        news = 2 if again else 10
        for part in range(news + (2 if again else 0)):
            first = part < news
            number = -(-(rounds - beside) // news) if first else again // 2
            before = seconds_per_round(small, beside)
            if part == news:
                ago = int(large.state.round)
            cpu = time.process_time()
            measured = seconds_per_round(large, number, None if first else Again(clients, ago))
            cpu = (time.process_time() - cpu) / number
            base = (before + seconds_per_round(small, beside)) / 2
            found["parts"].append(
                {
                    "kind": "new clients" if first else "the first clients again",
                    "rounds": number,
                    "seconds": measured,
                    "base": base,
                    "ratio": measured / base,
                    "cpu_seconds": cpu,
                    "touched": large.spill.used,
                    "state_gb": large.spill.used * large.spill.row_bytes / 1e9,
                    "disk_gb": large.spill.disk_bytes / 1e9,
                    **memory(),
                }
            )
            print({k: round(v, 4) if isinstance(v, float) else v for k, v in found["parts"][-1].items()}, flush=True)
        found["peak_rss_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        found["data_gb"] = (everyone.x.nbytes + everyone.y.nbytes) / 1e9
        found["finite"] = bool(int(large.state.broken) < 0)
        del large
    ratios = [part["ratio"] for part in found["parts"]]
    found["median_ratio"], found["largest_ratio"] = statistics.median(ratios), max(ratios)
    print(f"median ratio {found['median_ratio']:.3f}, largest {found['largest_ratio']:.3f}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "long", "again"))
    parser.add_argument("--rounds", type=int, help="of a repetition (table: 512), of the run (2250, 400)")
    parser.add_argument("--repeat", type=int, default=5, help="repetitions of the table")
    parser.add_argument("--clients", type=int, default=10**6, help="of the long run")
    parser.add_argument(
        "--hidden", type=int, default=220, help="units in the two hidden layers of the long run's model"
    )
    parser.add_argument("--steps", type=int, default=20, help="local steps of the long run")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the files of the long run lie")
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    prepare_jax()
    start = machine()
    if given.what == "table":
        found = table([10**3, 10**4, 10**5, 10**6], given.rounds or 512, given.repeat)
    else:
        rounds = given.rounds or (2250 if given.what == "long" else 400)
        again = rounds if given.what == "again" else 0
        found = long(given.clients, rounds, again, given.hidden, given.steps, given.folder)
    found["machine"] = {"before": start, "after": machine()}
    written = json.loads(given.json.read_text()) if given.json.exists() else {}
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(written | {given.what: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
