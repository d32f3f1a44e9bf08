"""pfl-research: its simulated backend and its algorithms on PyTorch.

The planned clients are given by a user sampler. In the check their data holds the rows of the planned batches in order
(pfl does not shuffle); the timed rounds take one pass over the clients' own data, as many steps on batches as large.
SCAFFOLD is pfl's own; its control variates have the wrong sign, so it is timed but its loss does not agree.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.algorithm.scaffold import SCAFFOLD, SCAFFOLDParams
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.user_state import InMemoryUserStateStorage
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from protocol import Job, serve
from torch_models import faster_threads, loss_of, make_model, mean_loss, synchronize, tensors


class Simulation:
    """FederatedAveraging or SCAFFOLD on SimulatedBackend."""

    plan = "clients and batches"

    def __init__(self, job: Job) -> None:
        self.job, self.round, self.slot, self.as_planned = job, 0, 0, True
        self.module, self.loss = make_model(job), loss_of(job)
        self.x, self.y = tensors(job)
        self.module.loss = lambda x, y: self.loss(self.module(x), y)
        self.module.metrics = lambda x, y: {"loss": Weighted(self.module.loss(x, y).item(), 1)}
        self.model = PyTorchModel(self.module, torch.optim.SGD, torch.optim.SGD(self.module.parameters(), 1.0))
        users = FederatedDataset(self._dataset, self._next_user)
        self.backend = SimulatedBackend(training_data=users, val_data=users)
        self.algorithm = SCAFFOLD() if job.method == "scaffold" else FederatedAveraging()
        self.storage = InMemoryUserStateStorage() if job.method == "scaffold" else None
        self.done = 0

    def _next_user(self) -> tuple[int, int, int]:
        user = (self.round, self.slot, int(self.job.clients_of(self.round)[self.slot]))
        self.slot += 1
        if self.slot == self.job.sampled:
            self.round, self.slot = self.round + 1, 0
        return user

    def _dataset(self, user: tuple[int, int, int]) -> PyTorchTensorDataset:
        round_index, slot, client = user
        if self.as_planned:
            rows: Any = torch.from_numpy(self.job.planned_rows(round_index, slot))
        else:
            rows = slice(int(self.job.offsets[client]), int(self.job.offsets[client + 1]))
        return PyTorchTensorDataset((self.x[rows], self.y[rows]), user_id=str(client))

    def _rounds(self, rounds: int) -> None:
        self.done += rounds
        given = {"central_num_iterations": self.done, "evaluation_frequency": 10**9, "val_cohort_size": 0}
        given |= {"train_cohort_size": self.job.sampled}
        train = NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=self.job.rate, local_batch_size=self.job.batch
        )
        if self.storage is None:
            params = NNAlgorithmParams(**given)
        else:
            more = {"population": self.job.clients, "use_gradient_as_control_variate": False}
            params = SCAFFOLDParams(**given, **more, user_state_storage=self.storage)
        self.algorithm.run(params, self.backend, self.model, train, send_metrics_to_platform=False)

    def check(self, rounds: int) -> float:
        self._rounds(rounds)
        loss = mean_loss(self.job, self.module, self.x, self.y)
        self.as_planned = False
        wrong = "; its control variates have the wrong sign" if self.storage is not None else ""
        self.about = f"{faster_threads(self.run)}; timed on batches in its own order{wrong}"
        return loss

    def run(self, rounds: int) -> float:
        began = time.perf_counter()
        self._rounds(rounds)
        synchronize()
        return time.perf_counter() - began


if __name__ == "__main__":
    serve(Simulation)
