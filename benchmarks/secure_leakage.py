"""What a server that sees sums only recovers: the leakage audit against sums over S = 1, 2, 5 and 10 clients.

    LOSAC_DATA_DIR=… python benchmarks/secure_leakage.py --json benchmarks/results/secure_leakage.json

MNIST, ten clients of 8 rows each (and of one), logistic regression and 2NN, all in each of ten rounds, one block,
η n_i = 0.05: the setting of the study on leakage. The sum over a group is attacked as the uploads of one client with
the rows of all. The table has the median PSNR of the rows by the strongest attack, and the share with 20 dB or more.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

from losac.attacks.audit import audit
from losac_reproduction.studies.leakage import KNOWN, PLAN, Attacked, problem

METHODS = [
    Attacked("dsgd", 1), Attacked("fedavg", 5), Attacked("scaffold", 5), Attacked("losac", 1), Attacked("losac", 5),
]  # fmt: skip
GROUPS = (1, 2, 5, 10)
MODELS = {"softmax": "logistic", "2nn": "2NN"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else []
    done = {(one["model"], one["rows"], one["method"], one["steps"], one["sum"], one["seed"]) for one in found}
    for model in arguments.models:
        for rows in arguments.rows:
            for seed in range(arguments.seeds):
                task, means = problem("mnist", model, rows, seed)
                for method in METHODS:
                    for size in GROUPS:
                        if (model, rows, method.name, method.steps, size, seed) in done:
                            continue
                        plan = replace(PLAN, attacks=() if rows * size == 1 else PLAN.attacks, printed=())
                        began = time.time()
                        one = audit(
                            task, method.make(rows), KNOWN, plan, clients=range(size), class_means=means, seed=seed,
                            summed=True,
                        )  # fmt: skip
                        attacks = {name: value for name, value in one.psnr.items() if name != "class mean"}
                        best = max(attacks, key=lambda name: attacks[name])
                        found.append({
                            "model": model, "rows": rows, "method": method.name, "steps": method.steps, "sum": size,
                            "seed": seed, "attack": best, "psnr": one.psnr[best], "recognised": one.recognised[best],
                            "class mean": one.psnr["class mean"], "labels": one.labels, "seconds": time.time() - began,
                        })  # fmt: skip
                        print(found[-1], flush=True)
                        if arguments.json:
                            arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


def table(found: list[dict]) -> str:
    """Return the table of the page: a line for each method, a column for each number of clients in the sum."""
    settings = list(dict.fromkeys((one["model"], one["rows"]) for one in found))
    heads = [f"{MODELS[model]}, {rows} row{'s' * (rows > 1)}, S = {n}" for model, rows in settings for n in GROUPS]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for method in METHODS:
        cells = [f"{method.name}, T = {method.steps}"]
        for model, rows in settings:
            for size in GROUPS:
                key = {"model": model, "rows": rows, "method": method.name, "steps": method.steps, "sum": size}
                ones = [one for one in found if key.items() <= one.items()]
                psnr, share = (sum(one[name] for one in ones) / len(ones) for name in ("psnr", "recognised"))
                cells.append(f"{psnr:.0f} ({100 * share:.0f} %)")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
