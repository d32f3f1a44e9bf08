"""Jobs on a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable
from typing import Any

from losac._extras import need
from losac.jobs.engine import JobEngine, Lost
from losac.jobs.travel import JobReply, Sender, SentCall, sender, serve
from losac.jobs.workers import Workers

_SECONDS_BETWEEN_LOOKS = 5.0


class RayEngine(JobEngine):
    """A Ray cluster, given its address; a program that has connected to one already keeps its connection."""

    def __init__(self, workers: Workers) -> None:
        super().__init__(workers)
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self.ray: Any = need("ray", "on='ray'", "ray")
        self.own = not self.ray.is_initialized()
        if self.own:
            try:
                self.ray.init(address=workers.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise ValueError(
                    f"there is no Ray cluster at {workers.address}, or this machine is not part of it: "
                    f"{_first_line(error)}; start one with ray start --head, or use ray://HOST:10001 from outside"
                ) from error
        self.cpus, self.gpus = workers.cpus or 1, workers.gpus or 0
        self.sender = self.ray.put(sender(self.cpus))
        self.function = self.ray.remote(max_retries=0, num_cpus=self.cpus, num_gpus=self.gpus)(_served)

    @property
    def at_once(self) -> int:
        """How many jobs the cluster has room for."""
        if self.workers.jobs is not None:
            return self.workers.jobs
        return self._room()

    def _room(self) -> int:
        there = self.ray.cluster_resources()
        room = int(there.get("CPU", 0) // self.cpus)
        return min(room, int(there.get("GPU", 0) // self.gpus)) if self.gpus else room

    def store(self, key: str, content: bytes) -> Any:
        """Put a shared argument into the object store."""
        return self.ray.put(content)

    def start(self, name: str, message: SentCall) -> Any:
        """Submit a task; Ray resolves references that are arguments of their own."""
        keys = {each: key for each, (key, _) in message.shared.items()}
        places = [place for _, place in message.shared.values()]
        return self.function.options(name=name).remote(self.sender, message.content, keys, message.reads_data, *places)

    def ended(self, jobs: Collection[Any]) -> Iterable[tuple[Any, JobReply | Lost]]:
        """Wait for a task; refuse to wait for a cluster without a node that could run one."""
        finished: list[Any] = []
        while not finished:
            finished, _ = self.ray.wait(list(jobs), num_returns=1, timeout=_SECONDS_BETWEEN_LOOKS)
            if not finished and self._room() < 1:
                wanted = f"{self.cpus} CPUs" + (f" and {self.gpus} GPUs" if self.gpus else "")
                raise ValueError(
                    f"the Ray cluster at {self.workers.address} has no node with {wanted} left; add a node, and give "
                    "the command again"
                )
        return [(job, self._reply(job)) for job in finished]

    def _reply(self, job: Any) -> JobReply | Lost:
        errors = self.ray.exceptions
        try:
            return self.ray.get(job)
        except errors.RayTaskError as error:  # the worker could not even read the call
            hint = "; is losac installed on every node?" if "No module named" in str(error) else ""
            last = str(error).strip().splitlines()[-1]
            return JobReply(error=f"the worker cannot read the job: {last}{hint}", trace=str(error), host="a node")
        except errors.RayError as error:
            return Lost(f"with a node of the cluster: {_told(error)}")

    def stop(self, jobs: Collection[Any]) -> None:
        """Cancel tasks."""
        for job in jobs:
            self.ray.cancel(job, force=True)

    def close(self) -> None:
        """Leave the cluster as it was."""
        if self.own:
            self.ray.shutdown()


def _served(sent: Sender, content: bytes, keys: dict[str, str], reads_data: bool, *places: Any) -> JobReply:
    import ray

    address: Any = ray.util
    shared = {name: (key, place) for (name, key), place in zip(keys.items(), places)}
    reply = serve(sent, content, shared, reads_data)
    return reply._replace(host=f"{reply.host} ({address.get_node_ip_address()})")


def _told(error: Exception) -> str:
    """Return what Ray says of a lost task: the line with the node, or else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    named = [line for line in lines if "node" in line.lower() and ("IP" in line or "ip" in line)]
    return (named or lines or [type(error).__name__])[0]


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
