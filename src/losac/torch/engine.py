"""The rounds of a federation simulated with PyTorch, and what is measured of its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random
from losac.algorithms.aggregation import accepted, aggregate, told
from losac.algorithms.contract import Algorithm, Federation, Received
from losac.federation.arrays import as_numpy, border
from losac.federation.draws import plain
from losac.federation.eager import EagerWorker, check_means
from losac.federation.shapes import decode
from losac.federation.torch import start_params, start_state, torch_worker
from losac.federation.work import Assignment, Kept, Message
from losac.history.measured import NOBODY, Measurements, Participation
from losac.metrics.declared import is_whole
from losac.simulation.engines.identity import Identity, admitted, fitted, identify
from losac.simulation.engines.intervals import ends, pieces
from losac.simulation.engines.schedule import empty_schedule, fill
from losac.simulation.options import SimulationOptions
from losac.simulation.program import setup
from losac.simulation.program.arrays import cast
from losac.simulation.program.client import averages_by_weight, summed
from losac.simulation.program.costs import drawn_steps
from losac.simulation.sampling import Sampler
from losac.task import Task
from losac.torch import together
from losac.torch.costs import costs
from losac.torch.courses import Courses, PhaseClients
from losac.torch.trees import over_clients, tensors, torch
from losac.trees import Tree, map_trees


class State(NamedTuple):
    """All that changes from round to round; what is kept for the clients leads with their number N.

    ``identity`` says what a returned state belongs to.
    """

    round: int
    server: Tree
    model_state: Tree
    kept: Kept
    rows: Tree
    identity: Any = ()


class Engine:
    """One run.

    Args:
      module: the model, on its device and in the run's dtype; only called.
      loss, metrics: of outputs and targets; the loss is a mean over a batch.
      task: the data, the weights, the reduction and the regulariser; its loss is not used.
      algorithm: the method.
      options: what to run; the seed does not decide the first model, which is the module's.
      vectorize: whether the clients of a round work at once; None: if they can.
    """

    def __init__(
        self, module: Any, loss: Any, metrics: Any, task: Task, algorithm: Algorithm,
        options: SimulationOptions, vectorize: bool | None,
    ) -> None:  # fmt: skip
        assert task.regularizer is not None
        pytorch, data, one = torch(), task.data, next(module.parameters())
        self.task, self.options, self.device, self.loss = task, options, one.device, loss
        self.algorithm: Any = setup.cast_numbers(algorithm, options.dtype)
        self.sizes, self.clients = np.asarray(data.sizes), data.num_clients
        self.steps = setup.all_step_counts(algorithm, self.sizes, options).astype(np.int64)
        self.weights = (self.clients * task.client_weights).astype(options.dtype)
        self.regularizer = setup.cast_numbers(task.regularizer, options.dtype)

        def examples(x: Any, y: Any) -> tuple[Any, Any]:
            x, y = (pytorch.tensor(cast(a, options.dtype), device=self.device) for a in (x, y))
            x, y = (a.to(one.dtype) if a.is_floating_point() else a for a in (x, y))
            return x, y if y.is_floating_point() or y.dtype == pytorch.bool else y.long()

        problem = {"regularizer": task.regularizer, "reduction": task.reduction, "frozen": task.frozen_digest}
        x, y = examples(data.x, data.y)
        self.declared = frozenset(name for name, metric in (metrics or {}).items() if is_whole(metric))
        trained_on = {} if isinstance(task.test, tuple) else dict(metrics or {})
        means = {name: metric for name, metric in trained_on.items() if name not in self.declared}
        self.whole = torch_worker(algorithm, module, loss, x, y, metrics=trained_on, **problem)
        parts = torch_worker(algorithm, module, loss, x, y, metrics=means, **problem)
        self.workers = [
            parts.simulated(int(start), int(rows), None if options.local_steps is None else int(options.local_steps[i]))
            for i, (start, rows) in enumerate(zip(data.offsets, self.sizes))
        ]
        self.test: EagerWorker | None = None
        if isinstance(task.test, tuple):
            uncut = algorithm.replace(blocks=None)  # only for inspection, so fewer rows than blocks will do
            self.test = torch_worker(uncut, module, loss, *examples(*task.test), metrics=metrics, **problem)
        self.params, model_state = start_params(module), start_state(module)
        self.costs = costs(self.algorithm, self.params, model_state, self.clients, options.sampled)
        self.network = together.Network(module, loss, x, y)
        first = tensors(self.workers[0].start(self.params), self.device)
        row = tensors(border(self.algorithm.at(0).init_server_row(self.params), options.dtype), self.device)
        self.here = Federation(self.clients, options.sampled, map_trees(float, task.regularizer).prox)
        self.alone = self._alone(vectorize, algorithm, first, model_state)
        self.state = State(
            0, self._own(self.algorithm.at(0).init(self.params)), model_state, self._spread(first), self._spread(row)
        )
        self.broken = -1
        self.tried_out = False

    @cached_property
    def identity(self) -> Identity:
        """What the states of the run belong to."""
        return identify(self.task, self.algorithm, self.options, "torch", self.loss)

    def _alone(self, vectorize: bool | None, algorithm: Algorithm, first: Kept, model_state: Tree) -> str:
        """Return why the clients work one after the other; empty if they work at once."""
        if vectorize is False:
            return "it was asked for"
        why = "the module keeps a state (batch statistics), which each client's steps renew" if model_state else ""
        why = why or together.why_not(self.network, algorithm, self.params, first, self.here)
        if vectorize and why:
            raise ValueError(f"vectorize=True: {why}; leave vectorize out, and the clients work one after the other")
        return why

    def run(
        self, sampler: Sampler, stops: Sequence[int], live: bool, history: Callable[[], Any]
    ) -> Iterator[Measurements]:
        """Run to each of the rounds in ``stops`` and evaluate there; the first may be the present round."""
        for piece in pieces(self.state.round, stops, 1):
            visits = NOBODY
            if piece.length:
                schedule, seen = empty_schedule(1, 1, self.options.sampled), history() if live else None
                (visits,) = fill(schedule, [piece], sampler, self.options.seed, self.clients, seen)
                self.one_round(visits.ids)
            found = {name: np.asarray([value]) for name, value in self.evaluate().items()} if piece.stop else {}
            values = {name: value for name, value in found.items() if name not in self.declared}
            whole = {name: value for name, value in found.items() if name in self.declared}
            yield Measurements(metrics=values, visits=[visits], broken=self.broken, whole=whole, **ends([piece]))

    def one_round(self, ids: np.ndarray) -> None:
        """Run all phases of one round."""
        r, server = self.state.round, self.state.server
        key = _random.round_key(_random.run_key(self.options.seed), r)
        now = self.algorithm.at(jnp.asarray(r, jnp.int32))
        steps = now.draw_steps(_random.steps_uniform(key))
        for phase_index, phase in enumerate(now.phases()):
            phase_key = _random.phase_key(key, phase_index)
            if phase.chance is not None and not bool(_random.chance_uniform(phase_key) < phase.chance):
                continue
            who = np.arange(self.clients) if phase.clients == "all" else ids
            counts = self._random_steps(phase_index, who, steps) if phase is now else None
            content = self._own(_broadcast(phase_index, self.algorithm, r, server))
            message = Message(content, self.state.model_state)
            weights = self.weights[who] if averages_by_weight(phase) else np.ones(len(who), self.options.dtype)
            work = self._one_by_one if self.alone else self._at_once
            sent, change = work(phase_index, who, message, counts, weights)
            count = np.asarray(weights.sum(), self.options.dtype)
            if not count > 0:
                continue
            total, transforms = sent, now.transforms_of(phase)
            if now.aggregation:
                total = self._judged(phase_index, phase_key, who, sent, counts)
            if any(transform.on_the_sum for transform in transforms):
                total = summed(transforms, _random.sum_noise_key(phase_key), total)
            static, received = (phase_index, self.clients, self.options.sampled), Received(total, count)
            server = self._own(_update(static, self.algorithm, self.regularizer, r, server, received))
            model_state = self._own(map_trees(lambda s, d, n=count: s + d / n, self.state.model_state, change))
            self.state = self.state._replace(server=server, model_state=model_state)
        self.state = self.state._replace(round=r + 1)
        finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(self.parameters()))
        self.broken = r + 1 if self.broken < 0 and not finite else self.broken

    def _random_steps(self, phase_index: int, who: np.ndarray, steps: Any) -> np.ndarray | None:
        """Return the clients' random numbers of steps, the method's or drawn by each; None if they are fixed."""
        if steps is not None:
            return np.full(len(who), int(steps))
        drawn, visits = self.options.run.steps_range, Participation(who, np.full(len(who), self.state.round))
        most = self.steps[phase_index]
        return None if drawn is None else drawn_steps(self.options.seed, phase_index, visits, drawn[0], most)

    def _one_by_one(
        self, phase_index: int, who: np.ndarray, message: Message, steps: np.ndarray | None, weights: np.ndarray
    ) -> tuple[Tree, Tree]:
        """Let each client work alone; return the sums of what they sent, or all of it led by the clients."""
        r, kept, rows = self.state.round, self.state.kept, self.state.rows
        now = self.algorithm.at(jnp.asarray(r, jnp.int32))
        total: Any = None
        everyones: list[Tree] = []
        for slot, i in enumerate(who.tolist()):
            result = self.workers[i].work(self._assignment(phase_index, slot, i, steps), message, _row(kept, i))
            _put(kept, i, result.kept)
            content = decode(now, phase_index, result.upload.content)
            everyones.append(content if now.aggregation else ())
            if now.phases()[phase_index] is now:
                content, row = now.receive(_row(rows, i), content)
                _put(rows, i, row)
            sent = map_trees(lambda a, w=weights[slot]: np.asarray(w * a), (content, result.upload.model_state))
            total = sent if total is None else map_trees(np.add, total, sent)
        content, change = total
        return map_trees(lambda *a: np.stack(a), *everyones) if now.aggregation else content, change

    def _assignment(self, phase_index: int, slot: int, client: int, steps: np.ndarray | None) -> Assignment:
        """Return what the work of a client depends on."""
        sizes = self.clients, self.options.sampled
        weight, own = float(self.weights[client]), None if steps is None else int(steps[slot])
        return Assignment(self.options.seed, self.state.round, phase_index, client, slot, *sizes, weight, own)

    def _judged(self, phase_index: int, phase_key: Any, who: np.ndarray, sent: Tree, steps: np.ndarray | None) -> Tree:
        """Return what the server uses instead of the sum of the uploads; let clients record what it has used."""
        now = self.algorithm.at(jnp.asarray(self.state.round, jnp.int32))
        own = now.phases()[phase_index] is now
        recorded = now.records(sent) if own else ()
        key = _random.aggregation_key(phase_key)
        found = self._own(aggregate(now.aggregation, key, sent, np.ones(len(who), bool), recorded))
        if recorded and now.acknowledges:
            everyones = told(found.shares, recorded)
            for slot, i in enumerate(who.tolist()):
                upload, share = map_trees(lambda a, k=slot: a[k], (sent, everyones))
                task = self._assignment(phase_index, slot, i, steps)
                settled = self.workers[i].settle(task, upload, accepted(upload, share), _row(self.state.kept, i))
                _put(self.state.kept, i, settled)
        return found.total

    def _at_once(
        self, phase_index: int, who: np.ndarray, message: Message, steps: np.ndarray | None, weights: np.ndarray
    ) -> tuple[Tree, Tree]:
        """Let all clients of a phase work at once; return the sum of what they sent, or all of it led by them."""
        now = plain(self.algorithm, self.state.round)
        phase, kept, rows = now.phases()[phase_index], self.state.kept, self.state.rows
        counts = self.steps[phase_index][who] if steps is None else steps
        clients = PhaseClients(who, self.task.data.offsets[:-1][who], self.sizes[who], counts)
        courses = Courses(
            phase.draw, (self.options.seed, self.state.round, phase_index), clients, int(self.sizes.max())
        )
        share = np.ones(len(who), self.options.dtype) if averages_by_weight(phase) else self.weights[who]
        share = (share / self.sizes[who] if self.task.reduction == "mean" else share).astype(self.options.dtype)
        work = together.PhaseWork(now, phase, self.here, courses, share)
        ids = torch().tensor(who, device=self.device)
        content = tensors(message.content, self.device)
        self.network.module.train()
        sent, state = together.work(self.network, work, content, map_trees(lambda a: a[ids], kept.state), kept.table)
        map_trees(lambda a, v: a.__setitem__(ids, v), kept.state, state)
        if phase is now and now.server_rows:
            mine = map_trees(lambda a: a[ids], rows)
            sent, mine = over_clients(now.receive, mine, sent)
            map_trees(lambda a, v: a.__setitem__(ids, v), rows, mine)
        if now.aggregation:
            return self._own(sent), ()
        scale = torch().tensor(weights, device=self.device)
        return self._own(map_trees(lambda a: torch().tensordot(scale.to(a.dtype), a, 1), sent)), ()

    def parameters(self) -> Tree:
        """Return the present model as NumPy arrays."""
        return self._own(self.algorithm.at(self.state.round).model(self.state.server))

    def model(self) -> tuple[Tree, Tree]:
        """Return the parameters and the model's state as NumPy arrays."""
        return self.parameters(), self.state.model_state

    def kept(self) -> State:
        """Return the state as NumPy arrays, a copy."""
        copied: State = map_trees(lambda a: as_numpy(a).copy(), self.state)
        copied = copied._replace(round=self.state.round)
        return copied._replace(identity=self.identity.sealed(copied))

    def adopt(self, given: Any) -> None:
        """Continue from a state of an earlier run, after checking that it is one of this run."""
        taken = admitted(self.identity, given, self.algorithm, self._fit, self._check)
        self.state = taken._replace(
            round=int(taken.round), kept=tensors(taken.kept, self.device), rows=tensors(taken.rows, self.device)
        )

    def _fit(self, given: Any) -> State:
        if not isinstance(given, State):
            raise ValueError(f"state must be the history of an earlier run, or its state, not {type(given).__name__}")
        taken: State = fitted(self.state, given)
        return taken

    def _check(self, state: State) -> None:
        self.algorithm.at(0).check_state(self.here, state.server, state.kept.state, state.kept.table)

    def evaluate(self) -> dict[str, float]:
        """Return the training loss (and objective), and the metrics on the test data or else on the training data."""
        task, params, model_state = self.task, *self.model()
        assert task.regularizer is not None
        p = task.client_weights if task.reduction == "sum" else task.client_weights / self.sizes
        due = self.state.round % self.options.loss_every == 0 or self.broken >= 0
        found = self._on_the_training_rows(p, params, model_state) if due or self.test is None else {}
        values = {"loss": found.pop("loss") if due else float("nan")}
        if task.is_composite:
            values["objective"] = values["loss"] * float((p * self.sizes).sum()) + float(task.regularizer.value(params))
        if self.test is not None:
            found = self.test.evaluate(params, model_state)
            values["test_loss"] = found["loss"]
        return dict(sorted((found | values).items()))

    def _on_the_training_rows(self, p: np.ndarray, params: Tree, model_state: Tree) -> dict[str, float]:
        """Return the means over all rows, those of client i weighted by p_i."""
        if np.ptp(p) <= 1e-12 * p.max():
            return self.whole.evaluate(params, model_state)
        found = [worker.evaluate(params, model_state) for worker in self.workers]

        def means(shares: np.ndarray) -> dict[str, float]:
            return {name: float(sum(s * one[name] for s, one in zip(shares, found))) for name in found[0]}

        values = means(p * self.sizes / (p * self.sizes).sum())
        if self.test is not None or (self.tried_out and not self.declared):
            return values
        whole = self.whole.evaluate(params, model_state)
        if not self.tried_out:
            check_means(whole, means(self.sizes / self.sizes.sum()))
            self.tried_out = True
        return values | {name: whole[name] for name in self.declared}

    def _own(self, tree: Tree) -> Tree:
        return border(tree, self.options.dtype)

    def _spread(self, tree: Tree) -> Tree:
        """Return a copy for every client."""
        return map_trees(lambda a: a.expand(self.clients, *a.shape).clone(), tree)


@partial(jax.jit, static_argnums=0)
def _broadcast(phase_index: int, algorithm: Algorithm, round_index: Any, server: Tree) -> Tree:
    return algorithm.at(round_index).phases()[phase_index].broadcast(server)


@partial(jax.jit, static_argnums=0)
def _update(
    static: tuple[int, int, int], algorithm: Algorithm, regularizer: Any, round_index: Any, server: Tree,
    received: Received,
) -> Tree:  # fmt: skip
    phase_index, clients, sampled = static
    here = Federation(clients, sampled, regularizer.prox)
    return algorithm.at(round_index).phases()[phase_index].update(here, server, received)


def _row(tree: Tree, i: int) -> Tree:
    """Return what is kept for one client, as NumPy arrays."""
    return map_trees(lambda a: a[i].cpu().numpy(), tree)


def _put(tree: Tree, i: int, row: Tree) -> None:
    """Keep something for one client."""
    map_trees(lambda a, v: a.__setitem__(i, torch().tensor(np.asarray(v), device=a.device)), tree, row)
