"""Where jobs run, as a value that every command passes on whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from losac._checks import check_choice, check_count, check_text, shown
from losac._options import about

Place = Literal["local", "ray", "slurm"]
_OWN = {"address": "ray", "slurm": "slurm", "shared": "slurm"}
"""Options of one place only."""
_WAYS = "auto, HOST:PORT or ray://HOST:PORT"


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Where independent jobs run: in this process, in others, on a Ray cluster, or on Slurm.

    Args:
      on: ``"local"``, ``"ray"`` or ``"slurm"``.
      jobs: how many run at once. By default 1 on this machine, which is this process; on Ray as many as the cluster
        has room for; 16 on Slurm.
      address: of the Ray cluster; ``"auto"`` finds the one that this machine is part of.
      cpus, gpus: what one job takes on Ray or Slurm; by default one CPU and no GPU.
      slurm: parameters of ``sbatch`` as ``NAME=VALUE``, such as ``"partition=short"`` and ``"mem=8G"``. ``time`` is in
        minutes, 1440 by default.
      shared: a folder that all nodes of Slurm see, for the jobs' files; by default in the user's cache.

    >>> Workers().here, Workers(jobs=2).here, Workers(on="ray", address="auto").here
    (True, False, False)
    >>> Workers(on="ray")
    Traceback (most recent call last):
    ...
    ValueError: on='ray' needs the address of the cluster: auto, HOST:PORT or ray://HOST:PORT
    """

    on: Place = field(default="local", metadata=about("Where the jobs run: local, ray or slurm."))
    jobs: int | None = field(
        default=None,
        metadata=about(
            "Jobs at once.", min=1, default="1; in reproduce one per core, at most 8; all that fit on ray; 16 on slurm"
        ),
    )
    address: str | None = field(default=None, metadata=about(f"Ray cluster: {_WAYS}."))
    cpus: int | None = field(default=None, metadata=about("CPUs of a job on ray or slurm.", min=1, default="1"))
    gpus: int | None = field(default=None, metadata=about("GPUs of a job on ray or slurm.", min=0, default="0"))
    slurm: tuple[str, ...] = field(
        default=(), metadata=about("Parameters of sbatch, such as partition=short,mem=8G,time=60 (minutes).")
    )
    shared: str | None = field(
        default=None, metadata=about("Folder that all nodes of slurm see.", default="in the user's cache")
    )

    def __post_init__(self) -> None:
        check_choice("on", self.on, ("local", "ray", "slurm"))
        for name, least in (("jobs", 1), ("cpus", 1), ("gpus", 0)):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least)
        for name, place in _OWN.items():
            if getattr(self, name) and self.on != place:
                raise ValueError(f"{name}={shown(getattr(self, name))} is for on={place!r}, not for {self.on!r}")
        for name in ("cpus", "gpus"):
            if getattr(self, name) is not None and self.on == "local":
                raise ValueError(f"{name}={getattr(self, name)} is for on='ray' and 'slurm'; leave it out")
        if self.on == "ray":
            self._check_address()
        _ = self.sbatch

    def _check_address(self) -> None:
        if self.address is None:
            raise ValueError(f"on='ray' needs the address of the cluster: {_WAYS}")
        if not re.fullmatch(r"auto|(?:ray://)?[\w.\-\[\]:]+:\d+", check_text("address", self.address)):
            raise ValueError(f"address={self.address!r} must be {_WAYS}")

    @property
    def here(self) -> bool:
        """Whether the jobs run in this process, one after the other."""
        return self.on == "local" and self.jobs in (None, 1)

    @property
    def sbatch(self) -> Mapping[str, Any]:
        """The parameters of ``sbatch`` by name."""
        found: dict[str, Any] = {}
        for text in self.slurm:
            name, equals, value = str(text).partition("=")
            if not (equals and name.isidentifier() and value):
                raise ValueError(f"slurm={text!r} must be NAME=VALUE, such as partition=short")
            found[name] = int(value) if value.isdecimal() else value
        return found

    def at_least(self, jobs: int) -> Self:
        """Return it with a number of jobs at once on this machine, if none is chosen."""
        return replace(self, jobs=jobs) if self.on == "local" and self.jobs is None else self
