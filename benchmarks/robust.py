"""Lying clients against robust aggregation: what is left of the accuracy.

    python benchmarks/robust.py digits --seeds 0,1 --rounds 60
    python benchmarks/robust.py digits --partition sorted --drift
    LOSAC_DATA_DIR=path/to/data python benchmarks/robust.py har --rounds 60

The yardstick: a rule *holds* against an attack if it ends at most five points below the plain mean of a federation in
which the liars do not take part at all. All methods take the step 12/(TL) by losac.tuning.suggest's rule, nothing is
tuned, and a rule is told how many clients lie. The accuracy is the mean of the last five evaluations and of the seeds.
With --drift it says instead how far φ is from κ Σ y, relative to κ Σ |y|, after 20, 40 and 60 rounds of LoSAC, walked
in NumPy.

All rules and all attacks are one compiled program for each method: a number chooses.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import losac
import losac.algorithms as A
from losac import _random
from losac._settings import Number, node, number
from losac.algorithms.aggregation import Aggregator, accepted, aggregate, told
from losac.algorithms.contract import Federation, Local, Received
from losac.algorithms.walk import Step, walk
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

    def start(self, upload: Any, clients: int) -> Any:
        """Remember what each would."""
        return tuple(one.start(upload, clients) for one in self.lies)

    def learn(self, memory: Any, key: Any, uploads: Any, present: Any) -> Any:
        """Learn as each would."""
        return tuple(one.learn(own, key, uploads, present) for one, own in zip(self.lies, memory, strict=True))

    def corrupt(self, key: Any, uploads: Any, present: Any, recorded: Any, memory: Any = ()) -> Any:
        """Lie as the chosen attack does."""
        found = uploads
        for k, (one, own) in enumerate(zip(self.lies, memory, strict=True)):
            sent = one.corrupt(key, uploads, present, recorded, own)
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


class Softmax(NamedTuple):
    """Softmax regression in NumPy on one client's rows: gradients of the sum of the losses, from one of its blocks."""

    x: np.ndarray
    y: np.ndarray

    def gradient(self, j: int) -> Any:
        """Return the gradient on block j as a function of the weights."""
        x, y = (np.array_split(a, BLOCKS)[j] for a in (self.x, self.y))

        def of(w: np.ndarray) -> np.ndarray:
            score = np.exp((z := x @ w) - z.max(1, keepdims=True))
            share = score / score.sum(1, keepdims=True) - (y[:, None] == np.arange(w.shape[1]))
            return BLOCKS * x.T @ share

        return of


def drift(data: losac.FederatedData, method: Any, lie: Any, rounds: int = 60, every: int = 20) -> list[float]:
    """Return how far φ is from κ Σ y of the clients' own books, relative to κ Σ |y|, every so many rounds of LoSAC."""
    rng, liars = np.random.default_rng(0), lies.sign_flip(LIARS).names(CLIENTS)
    clients = [Softmax(np.c_[x, np.ones(len(x))].astype(np.float64), y) for x, y in map(data.client, range(CLIENTS))]
    zero = np.zeros((clients[0].x.shape[1], int(data.y.max()) + 1))
    server, tables = method.init(zero), [dict.fromkeys(range(BLOCKS), zero) for _ in clients]
    here, found = Federation(CLIENTS, SAMPLED, lambda x, step: x), []
    judge = jax.jit(partial(method_sums, method, lie))
    for r in range(1, rounds + 1):
        ids = rng.choice(CLIENTS, SAMPLED, replace=False)
        blocks, sent = rng.integers(0, BLOCKS, (SAMPLED, STEPS)), []
        local = Local(*here, BLOCKS, STEPS, lambda x: x, 0, None)
        for i, drawn in zip(ids, blocks):
            steps = [Step(clients[i].gradient(j), j) for j in drawn.tolist()]
            sent.append(walk(method, local, server, (), steps, tables[i]).upload)
        uploads = map_trees(lambda *a: np.stack(a), *sent)
        there = lies.Present(ids, np.isin(ids, liars), np.ones(SAMPLED, bool))
        total, shares = map_trees(np.asarray, judge(_random.lie_key(_random.run_key(r)), uploads, there))
        server = method.update(here, server, Received(total, np.float64(SAMPLED)))
        for k, i in enumerate(ids) if method.acknowledges else ():
            used = accepted(sent[k], map_trees(lambda a, k=k: a[k], told(shares, method.recorded)))
            _, change = method.record(local, sent[k], used, ())
            visited = np.unique(blocks[k]).tolist()
            tables[i] |= {j: tables[i][j] + change / len(visited) for j in visited}
        if r % every == 0:
            held = np.stack([sum(table.values()) for table in tables]) / (CLIENTS * BLOCKS)
            found.append(float(np.linalg.norm(server.phi - held.sum(0)) / np.linalg.norm(np.abs(held).sum(0))))
    return found


def method_sums(method: Any, lie: Any, key: Any, uploads: Any, present: Any) -> Any:
    """Return what the server uses of some uploads after the lies, and the shares."""
    sent = uploads if lie is None else lie.corrupt(key, uploads, present, method.recorded)
    return tuple(aggregate(method.aggregation, key, sent, present.active, method.recorded))


def drifts(data: losac.FederatedData, eta: float) -> None:
    """Print a table of drifts: lies about Δφ by rule, and the same without liars where clients are told nothing."""
    lied = {name: one for name, one in attacks(LIARS).items() if name.startswith("record")}
    print("| rule | clients are told | attack | 20 rounds | 40 | 60 |\n|---|---|---|---|---|---|")
    cases = [(name, True, attack) for attack in lied for name in rules(LIARS) if name not in ("median", "Krum")]
    cases += [(name, said, "none") for said in (True, False) for name in ("trimmed mean", "geometric median")]
    for name, said, attack in cases:
        stages = rules(LIARS)[name]
        stages = stages if said else (*stages[:-1], stages[-1].replace(acknowledged=False))
        method = A.losac(eta, STEPS, BLOCKS, scaling="exact", aggregation=stages).at(0)
        row = " | ".join(f"{value:.2g}" for value in drift(data, method, lied.get(attack)))
        print(f"| {name} | {'yes' if said else 'no'} | {attack} | {row} |", flush=True)


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
    parser.add_argument("--eta", type=float, help="the step for --drift; by the rule if it is not given")
    parser.add_argument("--drift", action="store_true", help="how far φ is from κ Σ y, for LoSAC")
    parser.add_argument("--json", help="where to keep the numbers; what is there already is not measured again")
    given = parser.parse_args()
    kept: dict[str, Any] = {}
    if given.json and given.rules:
        parser.error("--json keeps whole tables: leave out --rules")
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
            drifts(data, given.eta or LENGTH / curvature(task, clients_per_round=SAMPLED) / STEPS)
            continue
        for name in given.methods.split(","):
            key = f"{partition} {name}; {given.rounds} rounds; seeds {given.seeds}; rows {given.rows}"
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
