"""Lying clients against robust aggregation: what is left of the accuracy.

    python benchmarks/robust.py digits --seeds 0,1,2
    python benchmarks/robust.py digits --partition sorted --drift
    LOSAC_DATA_DIR=path/to/data python benchmarks/robust.py har --rounds 60

The yardstick: a rule *holds* against an attack if it ends at most five points below the plain mean of a federation in
which the liars do not take part at all. All methods take the step 12/(TL) by losac.tuning.suggest's rule, nothing is
tuned, and a rule is told how many clients lie. The accuracy is the mean of the last five evaluations and of the seeds.
With --drift it says instead how far φ is from κ Σ y, relative to κ Σ |y|, after 20, 40 and 60 rounds of LoSAC.

All rules and all attacks are one compiled program for each method: a number chooses.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import losac
import losac.algorithms as A
from losac import _random
from losac._settings import Number, node, number
from losac.algorithms.aggregation import Aggregator, aggregate
from losac.simulation import RunOptions
from losac.simulation import attackers as lies
from losac.simulation.sweep import run_members
from losac.trees import map_trees
from losac.tuning.steps import LENGTH, curvature

CLIENTS, SAMPLED, LIARS, STEPS, BLOCKS = 20, 10, 2, 10, 5
HOLDS = 0.05


def rules(f: int) -> dict[str, tuple[Any, ...]]:
    """Return the rules by name, told that f of the uploads of a round may be lies."""
    return {
        "mean": (),
        "median": (A.coordinate_median(),),
        "trimmed mean": (A.trimmed_mean(f),),
        "geometric median": (A.geometric_median(),),
        "Krum": (A.krum(f),),
        "multi-Krum": (A.multi_krum(f),),
        "clipping": (A.centred_clipping(start="zero"),),
        "mixing, trimmed mean": (A.nearest_mixing(f), A.trimmed_mean(f)),
        "buckets, geometric median": (A.bucketing(2), A.geometric_median()),
    }


def attacks(f: int) -> dict[str, Any]:
    """Return the attacks by name; all liars are the same clients."""
    return {
        "none": None,
        "sign flip ×10": lies.sign_flip(f, scale=10.0),
        "label flip": lies.label_flip(f),
        "ALIE, z = 1.5": lies.alie(f, z=1.5),
        "inner product, ε = 0.5": lies.inner_product(f),
        "mimic": lies.mimic(f),
        "record ×(−10)": lies.sign_flip(f, scale=10.0, about="record"),
        "record, ALIE, z = 1.5": lies.alie(f, z=1.5, about="record"),
    }


def methods(eta: float) -> dict[str, Any]:
    """Return the methods that are compared."""
    return {
        "LoSAC": A.losac(eta, STEPS, BLOCKS, scaling="exact"),
        "LoSAC-lean": A.losac_lean(eta, STEPS, BLOCKS),
        "SCAFFOLD": A.scaffold(eta, STEPS, BLOCKS),
        "FedAvg": A.fedavg(eta, STEPS, BLOCKS),
    }


class AnyRule(Aggregator):
    """One of several rules, by a number."""

    which: Number = number(default=0.0)
    rules: tuple[Any, ...] = node(default=())

    def weigh(self, uploads: Any, active: Any) -> Any:
        """Weigh as the chosen rule does."""

        def by(stages: Any) -> Any:
            shares = aggregate(stages, _random.any_key(), uploads, active, ()).shares / active.sum()
            return jnp.broadcast_to(shares, uploads.shape)

        return jax.lax.switch(self.which.astype(int), [lambda s=stages: by(s) for stages in self.rules])


class AnyLie(lies.Attackers):
    """One of several attacks, by a number."""

    which: Number = number(default=0.0)
    lies: tuple[Any, ...] = node(default=())

    def labels(self, y: Any, liar: Any) -> Any:
        """Turn the labels around if that is the attack."""
        for k, one in enumerate(self.lies):
            y = jnp.where(self.which == k, one.labels(y, liar), y) if isinstance(one, lies.LabelFlip) else y
        return y

    def corrupt(self, key: Any, uploads: Any, lie: Any, active: Any, recorded: Any) -> Any:
        """Lie as the chosen attack does."""
        found = uploads
        for k, one in enumerate(self.lies):
            sent = one.corrupt(key, uploads, lie, active, recorded)
            found = map_trees(lambda a, b, k=k: jnp.where(self.which == k, b, a), found, sent)
        return found


def accuracy(run: losac.History) -> float:
    """Return the mean of the last evaluations; that of guessing for a run that left the finite numbers."""
    return 0.0 if run.diverged is not None else float(np.mean(run.metric("accuracy")[-5:]))


def measure(task: losac.Task, name: str, seeds: list[int], rounds: int, chosen: Any) -> dict[str, Any]:
    """Return a method's accuracies by attack and rule, as lists over the seeds."""
    eta = LENGTH / curvature(task, clients_per_round=SAMPLED) / STEPS
    method = methods(eta)[name]
    table, attack = {k: v for k, v in rules(LIARS).items() if not chosen or k in chosen}, attacks(LIARS)
    if type(method).record is A.Algorithm.record:
        attack = {key: one for key, one in attack.items() if not key.startswith("record")}
    told = [one for one in attack.values() if one is not None]
    which = [method.replace(aggregation=(AnyRule(float(k), tuple(table.values())),)) for k in range(len(table))]
    jobs = [(one, seed) for one in which for seed in seeds]
    options = {"rounds": rounds, "clients_per_round": SAMPLED, "eval_every": 5}
    found: dict[str, Any] = {}
    for k, attack_name in enumerate(attack):
        liars = AnyLie(LIARS, which=float(k - 1), lies=tuple(told))
        runs = run_members(task, jobs, RunOptions(**options, attackers=liars))
        scores = iter([accuracy(run) for run in runs])
        found[attack_name] = {rule: [next(scores) for _ in seeds] for rule in table}
        print(
            name, attack_name, {k: round(float(np.mean(v)), 3) for k, v in found[attack_name].items()}, file=sys.stderr
        )
    liars = lies.sign_flip(LIARS).names(CLIENTS)
    honest = [i for i in range(CLIENTS) if i not in liars]
    alone = losac.classification(task_model(task), task.data.subset(honest))
    without = run_members(
        alone, [(method, seed) for seed in seeds], RunOptions(**options | {"clients_per_round": SAMPLED - 1})
    )
    return {"eta": eta, "without liars": [accuracy(run) for run in without], "attacks": found}


def drift(task: losac.Task, rule: float, told: bool, attack: float) -> list[float]:
    """Return how far φ is from κ Σ y of the clients' own books, relative to κ Σ |y|."""
    eta = LENGTH / curvature(task, clients_per_round=SAMPLED) / STEPS
    menu = AnyRule(rule, tuple(rules(LIARS).values()), acknowledged=told)
    method = methods(eta)["LoSAC"].replace(aggregation=(menu,))
    lie = AnyLie(LIARS, which=attack, lies=tuple(one for one in attacks(LIARS).values() if one is not None))
    found, state = [], None
    for _ in range(3):
        run = losac.simulate(
            task, method, rounds=20, clients_per_round=SAMPLED, eval_every=20, attackers=lie, keep_state=True,
            layout=losac.simulation.Layout(SAMPLED, 1), state=state,
        )  # fmt: skip
        state = run.state
        held = [y.sum(1) / (CLIENTS * BLOCKS) for y in jax.tree.leaves(state.store.table)]
        phi = jax.tree.leaves(state.server.phi)
        apart = np.sqrt(sum(((p - y.sum(0)) ** 2).sum() for p, y in zip(phi, held)))
        found.append(float(apart / np.sqrt(sum((np.abs(y).sum(0) ** 2).sum() for y in held))))
    return found


def drifts(task: losac.Task) -> None:
    """Print a table of drifts: lies about Δφ by rule, and the same without liars and without the acknowledgement."""
    names, lied = list(rules(LIARS)), [name for name, one in attacks(LIARS).items() if one is not None]
    print("| rule | told | attack | 20 rounds | 40 | 60 |\n|---|---|---|---|---|---|")
    cases = [(rule, True, attack) for attack in ("record ×(−10)", "record, ALIE, z = 1.5") for rule in names]
    cases += [(rule, told, "none") for told in (True, False) for rule in ("trimmed mean", "geometric median")]
    for rule, told, attack in cases:
        number = -1.0 if attack == "none" else float(lied.index(attack))
        found = drift(task, float(names.index(rule)), told, number)
        row = " | ".join(f"{value:.2g}" for value in found)
        print(f"| {rule} | {'yes' if told else 'no'} | {attack} | {row} |", flush=True)


def task_model(task: losac.Task) -> Any:
    """Return the model of a task."""
    return losac.models.softmax_regression(int(np.prod(task.data.x.shape[1:])), int(task.data.y.max()) + 1)


def page(name: str, found: dict[str, Any]) -> str:
    """Return a method's table; what holds by the yardstick is in bold."""
    bar = float(np.mean(found["without liars"]))
    names = list(found["attacks"]["none"])
    lines = [f"**{name}**: {100 * bar:.1f} without the liars", "", f"| attack | {' | '.join(names)} |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for attack, row in found["attacks"].items():
        means = [float(np.mean(row[rule])) for rule in names]
        cells = (f"**{100 * m:.1f}**" if m >= bar - HOLDS else f"{100 * m:.1f}" for m in means)
        lines.append(f"| {attack} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=("digits", "har", "mnist"))
    parser.add_argument("--partition", default="sorted,iid")
    parser.add_argument("--methods", default="LoSAC,LoSAC-lean,SCAFFOLD,FedAvg")
    parser.add_argument("--rules", default="", help="all by default")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--rows", type=int, help="use only the first rows of each client")
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--drift", action="store_true", help="how far φ is from κ Σ y, for LoSAC")
    parser.add_argument("--json", help="where to keep the numbers; what is there already is not measured again")
    given = parser.parse_args()
    kept: dict[str, Any] = {}
    if given.json:
        try:
            with open(given.json) as file:
                kept = json.load(file)
        except FileNotFoundError:
            pass
    chosen = [rule.strip() for rule in given.rules.split(";") if rule]
    for partition in given.partition.split(","):
        data = losac.data.load(given.data, clients=CLIENTS, partition=partition)
        if given.rows:
            data = shortened(data, given.rows)
        shape = int(np.prod(data.x.shape[1:])), int(data.y.max()) + 1
        task = losac.classification(losac.models.softmax_regression(*shape), data)
        print(f"\n### {given.data}, {partition}\n")
        if given.drift:
            drifts(task)
            continue
        for name in given.methods.split(","):
            key = f"{partition} {name}"
            if key not in kept:
                kept[key] = measure(task, name, [int(s) for s in given.seeds.split(",")], given.rounds, chosen)
                if given.json:
                    with open(given.json, "w") as file:
                        json.dump(kept, file, indent=1)
            print(page(name, kept[key]) + "\n", flush=True)


def shortened(data: losac.FederatedData, rows: int) -> losac.FederatedData:
    """Return data with at most so many rows of each client, drawn evenly from its rows."""
    picked = [data.client(i) for i in range(data.num_clients)]
    parts = [tuple(a[np.linspace(0, len(a) - 1, min(rows, len(a))).astype(int)] for a in one) for one in picked]
    return losac.FederatedData.from_clients(parts, test=data.test)


if __name__ == "__main__":
    main()
