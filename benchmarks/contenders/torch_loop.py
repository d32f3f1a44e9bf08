"""FedAvg, SCAFFOLD and LoSAC as most people write them in PyTorch: loops over clients and steps, autograd, SGD.

Gradients are means over a batch and the step is scaled to match; φ, y and the control variates are then those of the
paper divided by one number, which changes nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from protocol import Job, serve
from torch_models import faster_threads, loss_of, make_model, mean_loss, synchronize, tensors


class Loop:
    """One run; where the job is a sweep, one member of it, and the seconds times their number."""

    plan = "clients and batches"

    def __init__(self, job: Job) -> None:
        self.job, self.model, self.loss = job, make_model(job), loss_of(job)
        self.x, self.y = tensors(job)
        self.server = [p.detach().clone() for p in self.model.parameters()]
        self.local = list(self.model.parameters())
        self.optimizer = torch.optim.SGD(self.local, lr=job.rate)
        self.round = 0
        zeros = [torch.zeros_like(p) for p in self.server]
        self.control = zeros
        if job.method == "scaffold":
            self.kept = [[torch.zeros_like(z) for z in zeros] for _ in range(job.clients)]
        if job.method == "losac":
            self.kept = [[torch.zeros(job.blocks, *z.shape) for z in zeros] for _ in range(job.clients)]

    def check(self, rounds: int) -> float:
        self._rounds(rounds)
        with torch.no_grad():
            self._begin()
        loss = mean_loss(self.job, self.model, self.x, self.y)
        self.about = faster_threads(self.run)
        if self.job.members > 1:
            self.about += f"; extrapolated: one member, times {self.job.members}"
        return loss

    def run(self, rounds: int) -> float:
        began = time.perf_counter()
        self._evaluate_member()
        self._rounds(rounds)
        self._evaluate_member()
        synchronize()
        return (time.perf_counter() - began) * self.job.members

    def _evaluate_member(self) -> None:
        if self.job.members > 1:
            with torch.no_grad():
                self._begin()
            mean_loss(self.job, self.model, self.x, self.y)

    def _rounds(self, rounds: int) -> None:
        one = {"fedavg": self._fedavg, "scaffold": self._scaffold, "losac": self._losac}[self.job.method]
        for _ in range(rounds):
            one()
            self.round += 1

    def _begin(self) -> None:
        for p, s in zip(self.local, self.server):
            p.copy_(s)

    def _gradient(self, slot: int, t: int) -> None:
        rows = self.job.rows_of(self.round, slot, t)
        self.optimizer.zero_grad()
        self.loss(self.model(self.x[rows]), self.y[rows]).backward()

    def _train(self, slot: int, correct: Callable[[], None] | None = None) -> None:
        with torch.no_grad():
            self._begin()
        for t in range(self.job.steps):
            self._gradient(slot, t)
            if correct is not None:
                correct()
            self.optimizer.step()

    def _fedavg(self) -> None:
        total = [torch.zeros_like(s) for s in self.server]
        for slot in range(self.job.sampled):
            self._train(slot)
            for a, p in zip(total, self.local):
                a += p.detach()
        self.server = [a / self.job.sampled for a in total]

    def _scaffold(self) -> None:
        job = self.job
        moved, changed = ([torch.zeros_like(s) for s in self.server] for _ in range(2))
        for slot, client in enumerate(job.clients_of(self.round)):
            mine = self.kept[client]

            @torch.no_grad()
            def correct(mine: list[torch.Tensor] = mine) -> None:
                for p, c, ci in zip(self.local, self.control, mine):
                    p.grad += c - ci

            self._train(slot, correct)
            with torch.no_grad():
                for k, p in enumerate(self.local):
                    new = mine[k] - self.control[k] + (self.server[k] - p) / (job.steps * job.rate)
                    moved[k] += p - self.server[k]
                    changed[k] += new - mine[k]
                    mine[k] = new
        self.server = [s + m / job.sampled for s, m in zip(self.server, moved)]
        self.control = [c + d / job.clients for c, d in zip(self.control, changed)]

    def _losac(self) -> None:
        job = self.job
        moved, changed = ([torch.zeros_like(s) for s in self.server] for _ in range(2))
        prox = job.strength * job.rate * job.clients * job.blocks / job.sampled if job.model == "matrix" else None
        for slot, client in enumerate(job.clients_of(self.round)):
            table, phi = self.kept[client], [c.clone() for c in self.control]
            with torch.no_grad():
                self._begin()
            for t in range(job.steps):
                j = int(job.blocks_drawn[self.round % len(job.schedule), slot, t])
                self._gradient(slot, t)
                with torch.no_grad():
                    for k, p in enumerate(self.local):
                        change = p.grad - table[k][j]
                        p -= job.rate * (phi[k] / job.clients + change)
                        phi[k] += change
                        table[k][j] = p.grad
                        if prox is not None:
                            p.copy_(shrink(p, prox))
            with torch.no_grad():
                for k, p in enumerate(self.local):
                    moved[k] += p - self.server[k]
                    changed[k] += phi[k] - self.control[k]
        self.server = [s + m / job.clients for s, m in zip(self.server, moved)]
        self.control = [c + job.clients / job.sampled * d for c, d in zip(self.control, changed)]


def shrink(x: torch.Tensor, threshold: float) -> torch.Tensor:
    """Return prox of the nuclear norm: singular values less the threshold."""
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    return (u * torch.clamp(s - threshold, min=0)) @ v


if __name__ == "__main__":
    serve(Loop)
