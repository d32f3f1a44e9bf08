"""The models of the jobs in PyTorch, with the exported first weights, and the loss that all are compared by."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from protocol import Job
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)  # until faster_threads has tried both: many threads on a busy machine take minutes


class Matrix(nn.Module):
    """The prediction ⟨X, D⟩."""

    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.zeros(64, 64))

    def forward(self, d: torch.Tensor) -> torch.Tensor:
        return d.flatten(1) @ self.x.flatten()


def make_model(job: Job) -> nn.Module:
    """Return the job's model with its first weights."""
    if job.model == "matrix":
        return Matrix().to(DEVICE)
    if job.model == "cnn":
        layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                  nn.Linear(14 * 14 * 64, 128), nn.ReLU(), nn.Linear(128, 10)]  # fmt: skip
    elif job.model == "cnn5":
        layers = [nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                  nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                  nn.Linear(7 * 7 * 64, 300), nn.ReLU(), nn.Linear(300, 10)]  # fmt: skip
    elif job.model == "2nn":
        layers = [nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)]
    else:
        layers = [nn.Linear(784, 10)]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), job.weights, strict=True):
            parameter.copy_(torch.from_numpy(_own_order(weight, job.model)))
    return model.to(DEVICE)


def _own_order(weight: np.ndarray, model: str) -> np.ndarray:
    """Turn a weight with channels and outputs last into PyTorch's order."""
    if weight.ndim == 4:
        return weight.transpose(3, 2, 0, 1).copy()
    side = {"cnn": 14, "cnn5": 7}.get(model, 0)
    if side and len(weight) == side * side * 64:
        weight = weight.reshape(side, side, 64, -1).transpose(2, 0, 1, 3).reshape(side * side * 64, -1)
    return weight.T.copy()


def tensors(job: Job) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all inputs and targets; images with channels first."""
    x, y = torch.from_numpy(job.x), torch.from_numpy(job.y)
    if job.model == "cnn":
        x = x.permute(0, 3, 1, 2).contiguous()
    elif job.model == "cnn5":
        x = x.reshape(-1, 1, 28, 28)
    return x.to(DEVICE), (y.long() if job.model != "matrix" else y).to(DEVICE)


def loss_of(job: Job) -> Any:
    """Return the loss of a batch: cross-entropy, or the squared error of the low-rank job."""
    return nn.functional.mse_loss if job.model == "matrix" else nn.functional.cross_entropy


@torch.no_grad()
def mean_loss(job: Job, model: nn.Module, x: torch.Tensor, y: torch.Tensor, chunk: int = 1000) -> float:
    """Return the mean loss over the rows that are judged."""
    rows = torch.from_numpy(job.judged())
    parts = [rows[i : i + chunk] for i in range(0, len(rows), chunk)]
    return float(sum(len(p) * loss_of(job)(model(x[p]), y[p]).item() for p in parts) / len(rows))


def synchronize() -> None:
    """Wait for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def faster_threads(run: Callable[[int], float]) -> str:
    """Let PyTorch use one thread or all cores, whichever runs a round faster; say which."""
    cores = len(os.sched_getaffinity(0))
    seconds = {}
    for threads in (1, cores):
        torch.set_num_threads(threads)
        seconds[threads] = run(1)
        if seconds[threads] < 1:
            seconds[threads] = min(run(1) for _ in range(2))
    threads = min(seconds, key=lambda n: seconds[n])
    torch.set_num_threads(threads)
    return f"{threads} thread{'s' * (threads > 1)}, the faster of 1 and {cores}"
