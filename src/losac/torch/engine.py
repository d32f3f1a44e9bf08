"""The rounds of a federation simulated with PyTorch, and what is measured of its model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac.algorithms.contract import Algorithm, Federation, Received
from losac.federation.arrays import as_numpy, border
from losac.federation.eager import EagerWorker, plain
from losac.federation.shapes import decode
from losac.federation.torch import start_params, start_state, torch_worker
from losac.federation.work import Assignment, Kept, Message
from losac.simulation import setup
from losac.simulation.client import averages_by_weight, summed
from losac.simulation.costs import lot
from losac.simulation.engine import Measured
from losac.simulation.sampling import Sampler, draw_clients
from losac.task import Task
from losac.torch import together
from losac.torch.costs import costs
from losac.torch.courses import Clients, Courses
from losac.torch.trees import over_clients, tensors, torch
from losac.trees import Tree, map_trees


class State(NamedTuple):
    """All that changes from round to round; what is kept for the clients leads with their number N."""

    round: int
    server: Tree
    model_state: Tree
    kept: Kept
    rows: Tree


class Engine:
    """One run.

    Args:
      module: the model, on its device and in the run's dtype; only called.
      loss, metrics: of outputs and targets, means over a batch.
      task: the data, the weights, the reduction and the regulariser; its loss is not used.
      algorithm: the method.
      plan: the number of clients per round, the dtype, the clients' own numbers of steps.
      seed: of everything random but the first model, which is the module's.
      vectorize: whether the clients of a round work at once; None: where they can.
    """

    def __init__(
        self, module: Any, loss: Any, metrics: Any, task: Task, algorithm: Algorithm, plan: setup.Plan, seed: int,
        vectorize: bool | None,
    ) -> None:  # fmt: skip
        assert task.regularizer is not None
        pytorch, data, one = torch(), task.data, next(module.parameters())
        self.task, self.plan, self.seed, self.device = task, plan, seed, one.device
        self.algorithm: Any = setup.cast_numbers(algorithm, plan.dtype)
        self.sizes, self.clients = np.asarray(data.sizes), data.num_clients
        self.steps = np.stack([setup.step_counts(p, algorithm, self.sizes, plan) for p in algorithm.phases()])
        self.weights = (self.clients * task.client_weights).astype(plan.dtype)
        self.regularizer = setup.cast_numbers(task.regularizer, plan.dtype)

        def examples(x: Any, y: Any) -> tuple[Any, Any]:
            x, y = (pytorch.tensor(np.asarray(a), device=self.device) for a in (x, y))
            x, y = (a.to(one.dtype) if a.is_floating_point() else a for a in (x, y))
            return x, y if y.is_floating_point() or y.dtype == pytorch.bool else y.long()

        options = {"metrics": metrics, "regularizer": task.regularizer, "reduction": task.reduction}
        x, y = examples(data.x, data.y)
        self.whole = torch_worker(algorithm, module, loss, x, y, **options)
        self.workers = [
            self.whole.simulated(int(start), int(rows), None if plan.local_steps is None else int(plan.local_steps[i]))
            for i, (start, rows) in enumerate(zip(data.offsets, self.sizes))
        ]
        self.test: EagerWorker | None = None
        if isinstance(task.test, tuple):
            self.test = torch_worker(algorithm, module, loss, *examples(*task.test), **options)
        self.params, model_state = start_params(module), start_state(module)
        self.costs = costs(self.algorithm, self.params, model_state, self.clients, plan.sampled)
        self.network = together.Model(module, loss, x, y)
        first = tensors(self.workers[0].start(self.params), self.device)
        row = tensors(border(self.algorithm.at(0).init_server_row(self.params), plan.dtype), self.device)
        self.here = Federation(self.clients, plan.sampled, map_trees(float, task.regularizer).prox)
        self.alone = self._alone(vectorize, algorithm, first, model_state)
        self.state = State(
            0, self._own(self.algorithm.at(0).init(self.params)), model_state, self._spread(first), self._spread(row)
        )
        self.broken = -1

    def _alone(self, vectorize: bool | None, algorithm: Algorithm, first: Kept, model_state: Tree) -> str:
        """Return why the clients work one after the other; empty where they work at once."""
        if vectorize is False:
            return "it was asked for"
        why = "the module keeps a state (batch statistics), which each client's steps renew" if model_state else ""
        why = why or together.why_not(self.network, algorithm, self.params, first, self.here)
        if vectorize and why:
            raise ValueError(f"vectorize=True: {why}; leave vectorize out, and the clients work one after the other")
        return why

    def run(self, sampler: Sampler, stops: Sequence[int], live: bool, history: Callable[[], Any]) -> Iterator[Measured]:
        """Run to each of the rounds in ``stops`` and evaluate there; the first may be the present round."""
        for stop in stops:
            visits = [np.zeros(0, int)]
            while self.state.round < stop:
                r = self.state.round
                ids, active = draw_clients(
                    sampler, self.seed, r, 1, self.clients, self.plan.sampled, history() if live else None
                )
                visits.append(ids[0][active[0]])
                self.one_round(visits[-1])
            values = {name: np.asarray([value]) for name, value in self.evaluate().items()}
            yield Measured(np.asarray([stop]), values, [np.concatenate(visits)], self.broken)

    def one_round(self, ids: np.ndarray) -> None:
        """Run all phases of one round."""
        r, server = self.state.round, self.state.server
        key = jax.random.fold_in(jax.random.key(self.seed), r)
        now = self.algorithm.at(jnp.asarray(r, jnp.int32))
        steps = now.draw_steps(jax.random.uniform(jax.random.fold_in(key, 2**31 - 1), (), jnp.float32))
        for place, phase in enumerate(now.phases()):
            phase_key = jax.random.fold_in(key, place)
            if phase.chance is not None and not bool(lot(phase_key) < phase.chance):
                continue
            who = np.arange(self.clients) if phase.clients == "all" else ids
            random_steps = int(steps) if steps is not None and phase is now else None
            content = self._own(_broadcast(place, self.algorithm, r, server))
            message = Message(content, self.state.model_state)
            weights = self.weights[who] if averages_by_weight(phase) else np.ones(len(who), self.plan.dtype)
            work = self._one_by_one if self.alone else self._at_once
            total, change = work(place, who, message, random_steps, weights)
            count = np.asarray(weights.sum(), self.plan.dtype)
            transforms = now.transforms_of(phase)
            if any(transform.on_the_sum for transform in transforms):
                total = summed(transforms, jax.random.fold_in(phase_key, 2**31 - 3), total)
            static, received = (place, self.clients, self.plan.sampled), Received(total, count)
            server = self._own(_update(static, self.algorithm, self.regularizer, r, server, received))
            model_state = self._own(map_trees(lambda s, d, n=count: s + d / n, self.state.model_state, change))
            self.state = self.state._replace(server=server, model_state=model_state)
        self.state = self.state._replace(round=r + 1)
        finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(self.parameters()))
        self.broken = r + 1 if self.broken < 0 and not finite else self.broken

    def _one_by_one(
        self, place: int, who: np.ndarray, message: Message, steps: int | None, weights: np.ndarray
    ) -> tuple[Tree, Tree]:
        """Let each client work by itself; return the sums of what they sent."""
        r, kept, rows = self.state.round, self.state.kept, self.state.rows
        now = self.algorithm.at(jnp.asarray(r, jnp.int32))
        total: Any = None
        for slot, i in enumerate(who.tolist()):
            at = (self.seed, r, place, i, slot, self.clients, self.plan.sampled, float(self.weights[i]), steps)
            result = self.workers[i].work(Assignment(*at), message, _row(kept, i))
            _put(kept, i, result.kept)
            content = decode(now, place, result.upload.content)
            if now.phases()[place] is now:
                content, row = now.receive(_row(rows, i), content)
                _put(rows, i, row)
            sent = map_trees(lambda a, w=weights[slot]: np.asarray(w * a), (content, result.upload.model_state))
            total = sent if total is None else map_trees(np.add, total, sent)
        content, change = total
        return content, change

    def _at_once(
        self, place: int, who: np.ndarray, message: Message, steps: int | None, weights: np.ndarray
    ) -> tuple[Tree, Tree]:
        """Let all clients of a phase work at once; return the sum of what they sent."""
        now = plain(self.algorithm, self.state.round)
        phase, kept, rows = now.phases()[place], self.state.kept, self.state.rows
        counts = self.steps[place][who] if steps is None else np.full(len(who), steps)
        clients = Clients(who, self.task.data.offsets[:-1][who], self.sizes[who], counts)
        courses = Courses(phase.draw, (self.seed, self.state.round, place), clients, int(self.sizes.max()))
        share = np.ones(len(who), self.plan.dtype) if averages_by_weight(phase) else self.weights[who]
        share = (share / self.sizes[who] if self.task.reduction == "mean" else share).astype(self.plan.dtype)
        turn = together.Turn(now, phase, self.here, courses, share)
        ids = torch().tensor(who, device=self.device)
        content = tensors(message.content, self.device)
        self.network.module.train()
        sent, state = together.work(self.network, turn, content, map_trees(lambda a: a[ids], kept.state), kept.table)
        map_trees(lambda a, v: a.__setitem__(ids, v), kept.state, state)
        if phase is now and now.server_rows:
            mine = map_trees(lambda a: a[ids], rows)
            sent, mine = over_clients(now.receive, mine, sent)
            map_trees(lambda a, v: a.__setitem__(ids, v), rows, mine)
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
        return copied._replace(round=self.state.round)

    def adopt(self, given: Any) -> None:
        """Go on from a state of an earlier run, after checking that it fits."""
        structure: Any = jax.tree.structure(self.state)
        if not isinstance(given, State) or jax.tree.structure(given) != structure:
            raise ValueError("the given state is of another algorithm or module than this run")
        for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(self.state), jax.tree.leaves(given)):
            if np.shape(a) != np.shape(b):
                where = jax.tree_util.keystr(path)
                raise ValueError(f"the given state has shape {np.shape(b)} at {where}; expected {np.shape(a)}")
        self.state = given._replace(
            round=int(given.round), kept=tensors(given.kept, self.device), rows=tensors(given.rows, self.device)
        )

    def evaluate(self) -> dict[str, float]:
        """Return the training loss (and objective), and the metrics on the test data or else on the training data."""
        task, params, model_state = self.task, *self.model()
        assert task.regularizer is not None
        p = task.client_weights if task.reduction == "sum" else task.client_weights / self.sizes
        found = self._on_the_training_rows(p, params, model_state)
        values = {"loss": found.pop("loss")}
        if task.is_composite:
            values["objective"] = values["loss"] * float((p * self.sizes).sum()) + float(task.regularizer.value(params))
        if self.test is not None:
            found = self.test.evaluate(params, model_state)
            values["test_loss"] = found.pop("loss")
        return dict(sorted((values | found).items()))

    def _on_the_training_rows(self, p: np.ndarray, params: Tree, model_state: Tree) -> dict[str, float]:
        """Return the means over all rows, those of client i weighted by p_i."""
        if np.ptp(p) <= 1e-12 * p.max():
            return self.whole.evaluate(params, model_state)
        shares = p * self.sizes / (p * self.sizes).sum()
        found = [worker.evaluate(params, model_state) for worker in self.workers]
        return {name: float(sum(s * one[name] for s, one in zip(shares, found))) for name in found[0]}

    def _own(self, tree: Tree) -> Tree:
        return border(tree, self.plan.dtype)

    def _spread(self, tree: Tree) -> Tree:
        """Return a copy for every client."""
        return map_trees(lambda a: a.expand(self.clients, *a.shape).clone(), tree)


@partial(jax.jit, static_argnums=0)
def _broadcast(place: int, algorithm: Algorithm, round_index: Any, server: Tree) -> Tree:
    return algorithm.at(round_index).phases()[place].broadcast(server)


@partial(jax.jit, static_argnums=0)
def _update(
    static: tuple[int, int, int], algorithm: Algorithm, regularizer: Any, round_index: Any, server: Tree,
    received: Received,
) -> Tree:  # fmt: skip
    place, clients, sampled = static
    here = Federation(clients, sampled, regularizer.prox)
    return algorithm.at(round_index).phases()[place].update(here, server, received)


def _row(tree: Tree, i: int) -> Tree:
    """Return what is kept for one client, as NumPy arrays."""
    return map_trees(lambda a: a[i].cpu().numpy(), tree)


def _put(tree: Tree, i: int, row: Tree) -> None:
    """Keep something for one client."""
    map_trees(lambda a, v: a.__setitem__(i, torch().tensor(np.asarray(v), device=a.device)), tree, row)
