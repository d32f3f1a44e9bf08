"""Flower's client, in a separate file because Ray's worker processes import it by name."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from protocol import Job
from torch_models import loss_of, make_model


@lru_cache(maxsize=1)
def opened(path: str) -> tuple[Job, Any]:
    """Return the job and a model, once per process."""
    job = Job(path, in_memory=False)
    return job, make_model(job)


def make_client(path: str) -> ClientApp:
    """Return the client: one pass over its shuffled rows in batches."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        job, model = opened(path)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        i = int(context.node_config["partition-id"])
        rows = slice(int(job.offsets[i]), int(job.offsets[i + 1]))
        x, y = torch.from_numpy(job.x[rows].copy()), torch.from_numpy(job.y[rows].astype("int64"))
        optimizer, loss = torch.optim.SGD(model.parameters(), lr=job.rate), loss_of(job)
        for part in torch.randperm(len(x)).split(job.batch):
            optimizer.zero_grad()
            loss(model(x[part]), y[part]).backward()
            optimizer.step()
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(x)})}
        return Message(content=RecordDict(content), reply_to=message)

    return app
