"""A long run between real processes with random kills: does it end, with the right sums and without growing?

    python benchmarks/soak.py soak --rounds 100 --hostile --json benchmarks/results/soak.json

A federation with TLS on the embedded data trains LoSAC; every half a minute or so a SuperNode (with or without its
disk), the SuperLink or the server's process is killed with SIGKILL and started again. With ``--hostile`` one more
client lies in most of what it sends (``benchmarks/hostile``), until two rounds before the end. At the end the server's
sum is compared with what the clients hold, and the model with the simulator's where no client lost its disk. About half
a minute per kill and ten seconds per round.
"""

import argparse
import json
import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

from losac.deploy.app import write_app
from losac.deploy.demo import conclude, hurt, read_log, round_of
from losac.deploy.local import LocalFederation
from losac.federation.status import read_status

KINDS = {"node": 5, "node without its disk": 2, "superlink": 1, "server": 1}


def size(folder: Path) -> tuple[int, int]:
    """Return the number and the bytes of a folder's files."""
    files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(files), sum(files)


def measure(federation: LocalFederation, out: Path) -> dict[str, Any]:
    """Return the memory of the processes and the files of clients and server."""
    memory = {}
    for name, pid in federation.processes().items():
        if pid is not None:
            process = psutil.Process(pid)
            memory[name] = process.memory_info().rss // 2**20
            if name == "superexec":
                memory["server"] = sum(child.memory_info().rss for child in process.children()) // 2**20
    states = federation.folder.root / "state"
    return {"round": round_of(out), "memory_mb": memory, "client_files": size(states), "server_files": size(out)}


def is_over(out: Path) -> bool:
    """Whether the server says that the run has ended; the file costs less than asking Flower."""
    told = read_status(out)
    return told is not None and str(told["state"]).startswith(("finished", "ended"))


def lying(federation: LocalFederation, log: Path | None) -> LocalFederation:
    """Start the last node again: hostile, with a log of its lies, or honest."""
    own = Path(__file__).resolve().parent / "hostile"
    path = os.pathsep.join(filter(None, [str(own), os.environ.get("PYTHONPATH", "")]))
    extra = {} if log is None else {"LOSAC_HOSTILE": str(log.resolve()), "PYTHONPATH": path}
    liar = LocalFederation(federation.folder.root, environment=extra, timeout=180)
    liar.restart(liar.names[-1])
    return liar


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two kills, on average")
    parser.add_argument("--deadline", type=int, default=45, help="seconds that clients have; more on a busy machine")
    parser.add_argument("--minutes", type=float, default=1e9, help="after these, two more rounds and the end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--recovery", default="resync")
    parser.add_argument("--hostile", action="store_true", help="one more client, which lies")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rng, nodes = random.Random(arguments.seed), arguments.nodes + arguments.hostile
    app, out = arguments.folder / "soak_app", arguments.folder.resolve() / "results"
    write_app(
        app, algorithm="losac", settings={"step_size": 2e-4, "local_steps": 5, "blocks": 3}, data="digits",
        model="softmax", partition="dirichlet:0.3", clients=nodes, clients_per_round=2 + arguments.hostile,
        rounds=arguments.rounds,
    )  # fmt: skip
    config = (app / "pyproject.toml").read_text().replace("deadline = 120", f"deadline = {arguments.deadline}")
    config = config.replace('recovery = "resync"', f'recovery = "{arguments.recovery}"')
    config = config.replace("patience = 300", f"patience = {arguments.deadline}")  # a liar may never say who it is
    (app / "pyproject.toml").write_text(config.replace("attempts = 20", "attempts = 100"))
    lies = arguments.folder / "lies.txt"
    began, kills, samples, last = time.time(), dict.fromkeys(KINDS, 0), [], arguments.rounds - 2
    ends = began + 60 * arguments.minutes
    with LocalFederation(arguments.folder / "federation", nodes, timeout=180) as federation:
        if arguments.hostile:
            lying(federation, lies)
        run = federation.submit(app, {"out": str(out)})
        while not is_over(out):
            until = time.time() + rng.expovariate(1 / arguments.every)
            while time.time() < min(until, ends) and round_of(out) < last:
                if is_over(out):
                    break
                time.sleep(2)
            if round_of(out) >= last or time.time() > ends:
                break
            what = rng.choices(list(KINDS), list(KINDS.values()))[0]
            kills[what] += 1
            if what.startswith("node"):
                number = rng.randrange(arguments.nodes)
                federation.kill(f"node-{number}")
                if "disk" in what:
                    shutil.rmtree(federation.folder.state(number), ignore_errors=True)
                federation.restart(f"node-{number}")
            else:
                run = hurt(federation, what, app, out, run)
            samples.append(measure(federation, out))
            print(f"{time.time() - began:6.0f} s, round {samples[-1]['round']}: {what} killed and back", flush=True)
        if arguments.hostile:
            lying(federation, None)
            run = hurt(federation, "server", app, out, run)  # a new one asks all nodes at once who they are
        if round_of(out) < last:
            federation.stop_run(run)
            run = federation.resume(run, {"rounds": round_of(out) + 2})
        status = federation.wait(run, 3600)["status"]
        samples.append(measure(federation, out))
    outcome = conclude(app, out)
    found = {
        "status": status, "rounds": outcome.rounds, "void": outcome.void, "kills": kills,
        "invariant": outcome.invariant, "accuracy": outcome.accuracy, "simulated": outcome.simulated,
        "seconds": time.time() - began, "first": samples[0], "last": samples[-1],
        "lies": Counter(lies.read_text().splitlines()) if lies.exists() else {},
        "answered": sum(len(line["answered"]) for line in read_log(out)),
    }  # fmt: skip
    print(json.dumps(found, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
