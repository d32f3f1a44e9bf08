"""The names that hostile inputs in Python are written with: tiny data, and calls with one argument of many."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd

import losac
from losac.simulation import Layout


def names(folder: Path) -> dict[str, Any]:
    """Return the names; ``folder`` is for files."""
    A, M, names_folder = losac.algorithms, losac.models, folder
    x = np.random.default_rng(0).normal(size=(24, 3)).astype("float32")
    y, labels = x.sum(1), np.arange(24) % 3
    parts = [(x[i : i + 6], y[i : i + 6]) for i in range(0, 24, 6)]
    data = losac.FederatedData.from_clients(parts)
    task = losac.regression(M.linear(3), data)
    method, weights = A.fedavg(0.01), np.zeros(3, np.float32)
    labelled = losac.FederatedData.from_clients([(x, labels)] * 4, num_classes=3)
    wide = losac.regression(M.linear(5), losac.FederatedData.from_clients([(np.ones((2, 5)), np.ones(2))] * 4))
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4], "b": [0.0, 1, 0, 1], "y": [0, 1, 0, 1], "who": list("ppqq")})
    csv = folder / "t.csv"
    frame.to_csv(csv, index=False)
    pipe = folder / "pipe.npz"
    os.mkfifo(pipe)
    noisy = A.fedavg(0.1, uploads=(A.gaussian(1.0, 1.0),))

    def mean_error(params: Any, batch: Any) -> Any:
        return ((batch[0] @ params - batch[1]) ** 2).mean()

    def empty_error(params: Any, batch: Any) -> Any:
        return mean_error(params["w"], batch) + (params["e"] ** 2).sum()

    def run(task: Any = task, algorithm: Any = method, **options: Any) -> Any:
        return losac.simulate(task, algorithm, **{"rounds": 1, **options})

    def sweep(grid: Any, **options: Any) -> Any:
        return losac.sweep(task, method, grid, **{"rounds": 1, **options})

    def tune(space: Any, **options: Any) -> Any:
        return losac.tune(task, method, space, **{"rounds": 1, **options})

    def losing(loss: Any, params: Any = weights, **options: Any) -> Any:
        return losac.Task(loss, params, data, **options)

    def epsilon(**options: Any) -> Any:
        return losac.privacy.epsilon(noisy, **{"rounds": 10, "clients": 10, **options})

    def read(source: Any = frame, **options: Any) -> Any:
        return losac.data.read(source, **{"target": "y", "client": "who", **options})

    def fit(**options: Any) -> Any:
        return losac.sklearn.FederatedClassifier(**{"rounds": 1, "n_clients": 4, **options}).fit(x, labels)

    runs = iter(range(10**6))

    def record(folder: Any = None, task: Any = task, **options: Any) -> Any:
        place = names_folder / f"run{next(runs)}" if folder is None else folder
        return losac.runs.record(task, method, place, **{"rounds": 1, **options})

    attacked = losac.classification(M.softmax_regression(3, 3), labelled)

    dsgd = A.dsgd(0.1)

    def audit(task: Any = attacked, algorithm: Any = dsgd, **options: Any) -> Any:
        own = {k: options.pop(k) for k in tuple(options) if k in losac.attacks.Plan.__dataclass_fields__}
        plan = losac.attacks.Plan(**{"attacks": (), "printed": (), "rounds": 1, **own})
        return losac.attacks.audit(task, algorithm, losac.attacks.Data((3,), None, 3), plan, **options)

    found = {
        "A": A, "jnp": jnp, "M": M, "R": losac.report, "FD": losac.FederatedData, "Layout": Layout,
        "attacked": attacked,
        "tested": losac.FederatedData.from_clients(parts, test=(x, y)),
        "single": losac.FederatedData.from_clients([(x[:1], y[:1])] * 2),
        "wide_targets": losac.FederatedData.from_clients([(x, np.ones((24, 2)))] * 2),
        "numbered": pd.DataFrame({0: [1.0, 2, 3, 4], 1: [0, 1, 0, 1], 2: list("ppqq")}),
    }  # fmt: skip
    return {**globals(), **locals(), **found}


class Late(dict[str, Any]):
    """Names, some of which are made only where an input uses them: finished runs, and PyTorch."""

    def __missing__(self, name: str) -> Any:
        if name == "history":
            self[name] = self["run"](rounds=2)
        elif name == "kept":
            self[name] = self["run"](rounds=2, keep_state=True)
        elif name == "swept":
            self[name] = self["sweep"]({"step_size": [0.01]})
        elif name == "torch":
            import torch

            self[name] = torch
        elif name == "torched":
            self._torched()  # imports parts of PyTorch, which on a busy machine takes longer than any input may
            self[name] = self._torched
        else:
            raise KeyError(name)
        return self[name]

    def prepare(self, wanted: Collection[str]) -> None:
        """Make the names that an input uses."""
        for name in wanted:
            with contextlib.suppress(KeyError):
                self[name]

    def _torched(self, **options: Any) -> Any:
        torch = self["torch"]

        def loss(outputs: Any, y: Any) -> Any:
            return ((outputs[:, 0] - y) ** 2).mean()

        first = {"module": torch.nn.Linear(3, 1), "loss": loss, "data": self["data"], "algorithm": self["method"]}
        chosen = {**first, **options}
        given = [chosen.pop(name) for name in first]
        return losac.torch.simulate(*given, **{"rounds": 1, **chosen})
