"""``losac.adapters.federate``: federated averaging of low-rank adapters by one of the known rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import jax
import numpy as np

from losac import _random
from losac._checks import check_choice, check_count
from losac._devices import prepare_jax
from losac.adapters.ledger import Ledger
from losac.adapters.lora import Lora
from losac.adapters.rules import average, residual, stacked, truncated
from losac.adapters.steps import PARTS, clients_work, only, with_parts
from losac.algorithms import fedavg
from losac.algorithms.contract import Algorithm
from losac.history import History
from losac.history.conditions import conditions
from losac.history.measured import NOBODY, Measurements
from losac.history.recorder import Recorder
from losac.simulation.engines.intervals import ends, pieces
from losac.simulation.engines.resident import ResidentEngine, precision
from losac.simulation.engines.schedule import empty_schedule, fill
from losac.simulation.follow import follow, header
from losac.simulation.options import SimulateKeywords, SimulationOptions, read_options
from losac.simulation.placement.layout import Layout
from losac.simulation.program import rounds as program
from losac.simulation.program.cache import tracked
from losac.simulation.program.costs import Costs
from losac.simulation.sampling import Sampler
from losac.task import Task, check_task
from losac.trees import Tree, map_trees

RULES: Mapping[str, str] = {
    "fedit": "FedIT: the means of A and of B, whose product is not the mean product",
    "ffa": "FFA-LoRA: A stays as it is drawn, the mean of B",
    "fedsa": "FedSA-LoRA: the mean of A; every client keeps its own B",
    "flora": "FLoRA: the exact mean product is merged into the frozen weights, and new adapters begin",
    "rolora": "RoLoRA: B in one round, A in the next",
    "fedex": "FedEx-LoRA: the means of A and of B, and their error is merged into the frozen weights",
    "flexlora": "FlexLoRA: the mean product, cut to rank r",
}
"""The rules by name."""

MERGING = ("flora", "fedex")
"""The rules that change the frozen weights."""

_evaluate = tracked(static=1)(program.evaluate)


@dataclass(frozen=True, eq=False)
class Adapted:
    """The outcome of :func:`federate`.

    Attributes:
      history: what was measured. Its ``params`` are the shared adapters.
      task: the task with its frozen weights as they are now: FLoRA and FedEx-LoRA change them.
      model: the model with adapters.
      personal: by client, the parameters that it keeps for itself (FedSA-LoRA's B); empty for the other rules.
    """

    history: History
    task: Task
    model: Lora
    personal: Mapping[int, Tree]

    def params_of(self, client: int) -> Tree:
        """Return the trained parameters that a client uses: the shared ones, and its own where it keeps some."""
        return _joined(self.model, self.history.params, self.personal.get(client))

    def merged(self) -> Tree:
        """Return the parameters of the model without adapters, in its own structure."""
        return self.model.merged(self.history.params, self.task.frozen)


def federate(
    task: Task, model: Lora, algorithm: Algorithm, rule: str = "fedit", **options: Unpack[SimulateKeywords]
) -> Adapted:
    """Simulate the federated averaging of low-rank adapters.

    Clients take the local steps of FedAvg; the rule says what is sent, and how the server averages. Other methods, such
    as SCAFFOLD and LoSAC, run on adapters by :func:`losac.simulate`; with ``lora(…, train="b")`` their averages are
    exact too.

    Bytes count what a rule has to send: adapters as two factors, and what is merged into the frozen weights as stacked
    factors, which a client that was not there receives when it comes back, or as a whole matrix where that is smaller.

    Args:
      task: of the model.
      model: made by :func:`losac.adapters.lora` with ``train="both"``.
      algorithm: :func:`losac.algorithms.fedavg`, with its local steps.
      rule: one of :data:`RULES`. With FedSA-LoRA, which has no common model, the history measures the mean of the B's;
        :meth:`Adapted.params_of` has each client's.
      options: those of :func:`losac.simulate` that say what to run, and ``dtype``.

    >>> import losac
    >>> data = losac.data.load("digits", clients=5)
    >>> model = losac.adapters.lora(losac.models.two_nn(64, 10, hidden=16), rank=2)
    >>> task = losac.classification(model, data)
    >>> found = federate(task, model, losac.algorithms.fedavg(1e-3, 5, 5), "fedex", rounds=4, eval_every=4)
    >>> bool(found.history.final("loss") < found.history.metrics["loss"][0])
    True
    """
    prepare_jax()
    check_choice("rule", rule, RULES)
    _check(check_task(task), model, algorithm)
    run, compute = read_options(federate, None, None, options)
    checked = SimulationOptions.of(task, run, compute)
    check_count("rounds", checked.run.rounds)
    checked = checked.with_compute(layout=Layout(1, 1), gradients="formed")
    with precision(checked.dtype, checked.compute.matmul):
        engine = RuleEngine(task, model, algorithm, rule, checked)
        about = conditions(task, checked.conditions() | {"rule": rule})
        head = header(engine, algorithm, checked.seed, engine.problem.resident.steps, about)
        recorder = Recorder(head._replace(price=engine.priced(head.price)), 0, checked.run.rounds)
        history = follow(engine, recorder, False, None, ())
        now = replace(task, frozen=map_trees(np.asarray, engine.frozen))
        return Adapted(history, now, model, engine.personal)


def _check(task: Task, model: Any, algorithm: Any) -> None:
    if not isinstance(model, Lora) or "a" in model.frozen:
        raise TypeError("model must be made by losac.adapters.lora(…, train='both')")
    if task.frozen is not model.frozen:
        raise ValueError("the task is of another model: make it with losac.classification(model, data)")
    if task.state is not None:
        raise ValueError("the model has a state (batch statistics), which no rule for adapters averages")
    if type(algorithm) is not fedavg or algorithm.transforms() or algorithm.weighting != "loss":
        raise TypeError("algorithm must be losac.algorithms.fedavg(…), without uploads=… and with weighting='loss'")
    if algorithm.server_step != 1.0:
        raise ValueError(f"server_step={algorithm.server_step} must be 1: the rule is the server's step")


class RuleEngine(ResidentEngine):
    """One run of a rule: a round of local steps, then what the rule does with the clients' factors."""

    def __init__(self, task: Task, model: Lora, algorithm: Algorithm, rule: str, options: SimulationOptions) -> None:
        super().__init__(task, algorithm, options)
        self.model_, self.rule, self.personal = model, rule, dict[int, Tree]()
        self.costs = (Costs(0, 0, 1, 0),)
        self.steps: dict[str, Any] = {parts: with_parts(algorithm, parts, options.dtype) for parts in PARTS}
        if rule in MERGING:  # what is added would be lost in shorter numbers
            wide = map_trees(lambda a: a.astype(options.dtype), self.frozen["base"])
            self._freeze({**self.frozen, "base": wide})
        self.ledger = Ledger(rule, model, self.state.server, self.frozen)
        self._first = self.state.server

    @property
    def frozen(self) -> Tree:
        """The frozen weights as they are now."""
        return self.problem.resident.frozen

    def _freeze(self, frozen: Tree) -> None:
        self.problem = self.problem._replace(resident=self.problem.resident._replace(frozen=frozen))

    def priced(self, gradients: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        """Return the prices of rounds: the gradients of a meter, and the ledger's bytes."""

        def price(measured: Measurements, first: int) -> np.ndarray:
            return gradients(measured, first) + self.ledger.between(first, measured.rounds.tolist())

        return price

    def run(
        self, sampler: Sampler, stops: Sequence[int], live: bool, history: Callable[[], Any]
    ) -> Iterator[Measurements]:
        """Run to each of the rounds in ``stops`` and evaluate there."""
        for piece in pieces(int(self.state.round), stops, 1):
            visits = NOBODY
            if piece.length:
                schedule, seen = empty_schedule(1, 1, self.options.sampled), history() if live else None
                clients = self.task.data.num_clients
                (visits,) = fill(schedule, [piece], sampler, self.options.seed, clients, seen)
                self.one_round(visits.ids)
            values = _evaluate(self.shape, self.problem, self.state) if piece.stop else {}
            metrics = {name: np.asarray(value)[None] for name, value in values.items()}
            whole = self.whole(*self.model()) if self.whole and piece.stop else {}
            broken = -1 if all(np.isfinite(a).all() for a in jax.tree.leaves(self.model()[0])) else piece.first + 1
            yield Measurements(metrics=metrics, visits=[visits], broken=broken, whole=whole, **ends([piece]))

    def one_round(self, ids: np.ndarray) -> None:
        """Let some clients work, and average what they send."""
        round_index, x = int(self.state.round), self.state.server
        parts = {"ffa": "b", "rolora": "ba"[round_index % 2]}.get(self.rule, "both")
        starts = [_joined(self.model_, x, self.personal.get(i)) for i in ids.tolist()]
        together = map_trees(lambda *a: jax.numpy.stack(a), *starts)
        problem = self.problem._replace(algorithm=self.steps[parts])
        found = clients_work(self.shape.client, problem, self.state.key, round_index, together, ids)
        sent = [map_trees(lambda a, k=k: a[k], found) for k in range(len(ids))]
        self.ledger.add(round_index, ids, parts)
        x, frozen = self._averaged(sent, ids, round_index)
        x = only(parts, x, self.state.server)
        self._freeze(frozen)
        self.state = self.state._replace(round=self.state.round + 1, server=x)

    def _averaged(self, sent: list[Tree], ids: np.ndarray, round_index: int) -> tuple[Tree, Tree]:
        """Return the shared parameters and the frozen weights after a round."""
        p = [1 / len(sent)] * len(sent)
        mean, model, frozen = average(sent, p), self.model_, self.frozen
        pairs = [model.factors(own, frozen) for own in sent]
        if self.rule == "fedsa":
            self.personal |= {i: _own(model, own) for i, own in zip(ids.tolist(), sent)}
            share = len(self.personal) / self.task.data.num_clients
            everyone = average(list(self.personal.values()), [share / len(self.personal)] * len(self.personal))
            start = map_trees(lambda a: (1 - share) * a, _own(model, self._first))
            return _joined(model, mean, map_trees(lambda a, b: a + b, everyone, start)), frozen
        if self.rule == "flora":
            fresh = self._fresh(round_index + 1)
            return {**mean, **{name: fresh[name] for name in model.adapted}}, model.added(stacked(pairs, p), frozen)
        if self.rule == "fedex":
            return mean, model.added(residual(pairs, p), frozen)
        if self.rule == "flexlora":
            rank = pairs[0][model.adapted[0]]["a"].shape[0]
            return {**mean, **truncated(stacked(pairs, p), rank)}, frozen
        return mean, frozen

    def _fresh(self, number: int) -> Tree:
        """Return new adapters, drawn from the seed, so that they need not be sent."""
        key = _random.round_key(_random.weights_key(self.options.seed), number)
        return map_trees(lambda a: a.astype(self.options.dtype), self.model_.init(key))


def _own(model: Lora, params: Tree) -> Tree:
    """Return what a client keeps for itself: B, and what is trained besides adapters."""
    pairs = {name: {"b": params[name]["b"]} for name in model.adapted}
    return {**{name: part for name, part in params.items() if name not in model.adapted}, **pairs}


def _joined(model: Lora, params: Tree, own: Tree | None) -> Tree:
    """Return the shared parameters with a client's own in their places."""
    if own is None:
        return params
    pairs = {name: {**params[name], **own[name]} for name in model.adapted}
    return {**params, **own, **pairs}
