"""FedAvg and SCAFFOLD with torch.func: gradients of all sampled clients at once by vmap over stacked models."""

from __future__ import annotations

import time

import numpy as np
import torch
from protocol import Job, serve
from torch.func import functional_call, grad, vmap
from torch_models import faster_threads, loss_of, make_model, mean_loss, synchronize, tensors


class Vectorised:
    """One run; the models of a round lie stacked."""

    plan = "clients and batches"

    def __init__(self, job: Job) -> None:
        self.job, self.model, self.round = job, make_model(job), 0
        self.x, self.y = tensors(job)
        self.server = {k: p.detach().clone() for k, p in self.model.named_parameters()}
        loss = loss_of(job)
        self.gradients = vmap(grad(lambda p, x, y: loss(functional_call(self.model, p, (x,)), y)))
        self.offsets = torch.from_numpy(np.array(job.offsets))
        if job.method == "scaffold":
            self.c = {k: torch.zeros_like(p) for k, p in self.server.items()}
            self.kept = {k: torch.zeros(job.clients, *p.shape) for k, p in self.server.items()}

    @torch.no_grad()
    def check(self, rounds: int) -> float:
        self.run(rounds)
        for k, p in self.model.named_parameters():
            p.copy_(self.server[k])
        loss = mean_loss(self.job, self.model, self.x, self.y)
        self.about = faster_threads(self.run)
        return loss

    @torch.no_grad()
    def run(self, rounds: int) -> float:
        began = time.perf_counter()
        for _ in range(rounds):
            self._one()
            self.round += 1
        synchronize()
        return time.perf_counter() - began

    def _one(self) -> None:
        job, r = self.job, self.round % len(self.job.schedule)
        clients = torch.from_numpy(job.schedule[r]).long()
        local = {k: p.expand(job.sampled, *p.shape) for k, p in self.server.items()}
        if job.method == "scaffold":
            mine = {k: a[clients] for k, a in self.kept.items()}
            shift = {k: self.c[k] - mine[k] for k in mine}
        for t in range(job.steps):
            rows = self._rows(r, t, clients)
            g = self.gradients(local, self.x[rows], self.y[rows])
            if job.method == "scaffold":
                g = {k: g[k] + shift[k] for k in g}
            local = {k: p - job.rate * g[k] for k, p in local.items()}
        if job.method == "scaffold":
            per_step = 1 / (job.steps * job.rate)
            for k, p in local.items():
                change = (self.server[k] - p) * per_step - self.c[k]
                self.kept[k][clients] = mine[k] + change
                self.c[k] = self.c[k] + change.sum(0) / job.clients
        self.server = {k: p.mean(0) for k, p in local.items()}

    def _rows(self, r: int, t: int, clients: torch.Tensor) -> torch.Tensor:
        job, first = self.job, self.offsets[clients][:, None]
        if job.orders is not None:
            return first + torch.from_numpy(job.orders[r, :, t * job.batch : (t + 1) * job.batch])
        return first + torch.from_numpy(job.blocks_drawn[r, :, t])[:, None] * job.batch + torch.arange(job.batch)


if __name__ == "__main__":
    serve(Vectorised)
