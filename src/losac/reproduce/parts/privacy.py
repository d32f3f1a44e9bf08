"""What a defence costs and what it buys: accuracy and recovered rows, against ε, with the same clipping and noise.

Softmax regression on digits, clients of eight rows. For the accuracy there are 1000 of them, of which 100 take part in
each of 100 rounds, every client in ten; for the recovery two of ten are attacked that all take part in ten rounds. So
every client sends the same number of uploads in both, and one ε holds for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from losac import privacy
from losac.algorithms import gaussian, qsgd, random_k, top_k
from losac.attacks.attack import Data
from losac.attacks.audit import Plan, audit
from losac.data import FederatedData
from losac.history import sweep
from losac.models import softmax_regression
from losac.reproduce.parts.leakage import Method, problem
from losac.reproduce.parts.privacy_findings import conclude
from losac.reproduce.problems import paper_data
from losac.reproduce.study import Job, Options, Study
from losac.task import Task, classification

ROWS, CLIENTS, SAMPLED, UPLOADS = 8, 1000, 100, 10
"""n_i, N and S of the runs for accuracy, and in how many rounds a client takes part."""
ROUNDS = UPLOADS * CLIENTS // SAMPLED
NOISES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
PLACES: tuple[Any, ...] = ("client", "server")
METHODS = (
    Method("fedavg", 5), Method("scaffold", 5), Method("mime_svrg", 5), Method("losac", 1), Method("losac", 5),
    Method("losac", 5, 5),
)  # fmt: skip
COMPRESSED = {
    "10 % largest": top_k(0.1, error_feedback=False),
    "10 % at random": random_k(0.1, error_feedback=False),
    "8 bits": qsgd(127),
}
"""Compression by itself, of which some expect protection."""


def jobs(options: Options) -> list[Job]:
    """Return three jobs for each method: what is recovered, what is learnt, and what that is worth."""
    seeds = list(options.seeds[:1] if options.quick else options.seeds)
    noises = list(NOISES[::2] if options.quick else NOISES)
    methods = [METHODS[k] for k in (0, 3)] if options.quick else METHODS
    return [
        Job(
            function,
            {"method": list(method), "noises": noises, "seeds": seeds}
            | ({"quick": options.quick} if function is accuracy else {}),
            f"Privacy: {what} with {method.name}, T = {method.steps}, M = {method.blocks}",
            cost,
        )
        for method in methods
        for function, what, cost in ((recovery, "recovery", 1.0), (accuracy, "accuracy", 2.0), (budgets, "ε", 0.1))
    ]


def recovery(method: list[Any], noises: list[float], seeds: list[int]) -> list[dict[str, Any]]:
    """Attack a method under noise of several sizes, and under compression."""
    made = Method(*method).make(ROWS)
    knows = Data((784,), (0.0, 1.0), 10, (28, 28))
    plan = Plan(("inverting", "rowspace"), ("paper",), rounds=UPLOADS)
    bounds = clips(problem("mnist", "softmax", ROWS, seeds[0])[0], made)
    found: list[dict[str, Any]] = []
    defences = [("noise", z, None) for z in noises] + [(name, None, one) for name, one in COMPRESSED.items()]
    for name, z, transform in defences:
        for seed in seeds:
            task, means = problem("mnist", "softmax", ROWS, seed)
            chosen = made.replace(uploads=(transform,)) if z is None else protected(made, bounds, z)
            one = audit(task, chosen, knows, plan, clients=(0, 1), class_means=means, seed=seed)
            found.append({"defence": name, "noise": z, "seed": seed, "psnr": dict(one.psnr), "labels": one.labels,
                          "error": one.error})  # fmt: skip
    return found


def accuracy(method: list[Any], noises: list[float], seeds: list[int], quick: bool) -> list[dict[str, Any]]:
    """Train with noise of several sizes at the clients, all at once; else also at the server, and under compression."""
    made = Method(*method).make(ROWS)
    task = _task()
    bounds = clips(problem("mnist", "softmax", ROWS, seeds[0])[0], made)
    groups: list[tuple[str, list[float | None], list[Any]]] = [
        (where, [*noises], [protected(made, bounds, z, where) for z in noises]) for where in PLACES
    ]
    groups += [(name, [None], [made.replace(uploads=(one,))]) for name, one in COMPRESSED.items()]
    groups = [("nothing", [None], [made]), *(groups[:1] if quick else groups)]
    found = []
    for where, sizes, chosen in groups:
        runs = sweep(
            task, chosen[0], {"uploads": [one.uploads for one in chosen]}, seeds, rounds=ROUNDS,
            clients_per_round=SAMPLED, sampling=schedule(), eval_every=ROUNDS, loss_every=ROUNDS,
        )  # fmt: skip
        for place, z in enumerate(sizes):
            members = runs.members[place * len(seeds) : (place + 1) * len(seeds)]
            reached = [None if run.diverged is not None else run.final("accuracy") for run in members]
            found.append({"where": where, "noise": z, "accuracy": reached})
    return found


def clips(task: Task, method: Any) -> list[tuple[float, ...]]:
    """Return the median norm of every part of the first upload, phase by phase: what to clip at.

    Of methods that send changes of what they keep, the first upload is the largest.
    """
    return [tuple(phase.values()) for phase in privacy.typical_norms(task, method, rounds=1)]


def protected(method: Any, bounds: list[tuple[float, ...]], noise: float, where: Any = "client") -> Any:
    """Return the method with clipped and noisy uploads; a method's own phase is its last."""
    other = bounds[0][0] if len(bounds) > 1 else None
    return method.replace(uploads=(gaussian(bounds[-1], noise, noise_at=where, other_clip=other),))


def budgets(method: list[Any], noises: list[float], seeds: list[int]) -> list[dict[str, Any]]:
    """Return ε for both adversaries and both places of the noise; it does not depend on the data."""
    made = Method(*method).make(ROWS)
    chosen = [(where, z, gaussian(1.0, z, noise_at=where, other_clip=None)) for where in PLACES for z in noises if z]
    return [
        {"where": where, "noise": z, "epsilon": epsilons(made.replace(uploads=(noise,)))} for where, z, noise in chosen
    ]


def epsilons(method: Any) -> dict[str, float]:
    """Return ε for both adversaries; from the server itself noise that it adds is no protection."""
    run = {"rounds": ROUNDS, "clients": CLIENTS, "clients_per_round": SAMPLED, "participations": UPLOADS}
    run["fewest"] = SAMPLED  # in the simulator all answer
    adversaries: tuple[privacy.Adversary, ...] = (
        ("outside",) if method.uploads[-1].on_the_sum else ("server", "outside")
    )
    return {adversary: privacy.epsilon(method, adversary=adversary, **run) for adversary in adversaries}


def schedule() -> list[np.ndarray]:
    """Return who takes part: all clients in turn, in a new order each time, so that each has the same number."""
    rng = np.random.default_rng(0)
    return [part for _ in range(UPLOADS) for part in rng.permutation(CLIENTS).reshape(-1, SAMPLED)]


def _task() -> Task:
    every = paper_data("mnist", 2, "iid")
    x, y = np.asarray(every.x).reshape(len(every.x), -1), np.asarray(every.y)
    order = np.random.default_rng(0).permutation(len(x))[: CLIENTS * ROWS].reshape(CLIENTS, ROWS)
    test = every.test
    assert test is not None
    held = FederatedData.from_clients([(x[mine], y[mine]) for mine in order], num_classes=10, name="mnist")
    return classification(softmax_regression(784, 10), held, test=(np.reshape(test[0], (len(test[0]), -1)), test[1]))


STUDY = Study("privacy", "What a defence costs, and what it buys", jobs, conclude, ("mnist",))
