"""The jobs that are timed, and who takes part. Standard library only: every environment can read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

PEERS = ("losac", "torch_vmap", "torch_loop", "fedjax", "pfl", "flower")


@dataclass(frozen=True)
class Job:
    """One federated job.

    Args:
      title: what tables call it.
      data: ``mnist`` (sorted by label, then cut), ``images`` (synthetic, of CIFAR-10's shape) or ``lowrank``.
      clients, sampled: N and S.
      model: ``2nn``, ``softmax``, ``cnn`` (pfl's, for images), ``cnn5`` (5 × 5 filters 32 and 64, a dense layer of 300:
        996,206 parameters, for MNIST) or ``matrix``.
      method: ``fedavg``, ``scaffold`` or ``losac``.
      step: η, for gradients that are ``factor`` times the mean over a batch.
      steps: T, the local steps.
      blocks: M; a step uses one of M blocks of the client's rows, drawn with replacement.
      batch_size: shuffled batches instead, one pass over them; ``blocks`` then only says how many there are.
      rows: samples of a client.
      members: how many runs a sweep has, 1 if it is not a sweep.
      rounds: rounds in a repetition, where it is not chosen by how long they take.
      check: rounds after which the losses of all contenders are compared.
      contenders: who takes part; the first is what the others are compared with.
    """

    title: str
    data: str
    clients: int
    sampled: int
    model: str
    method: str
    step: float
    rows: int
    steps: int = 5
    blocks: int = 5
    batch_size: int | None = None
    members: int = 1
    rounds: int | None = None
    check: int = 10
    contenders: tuple[str, ...] = PEERS

    @property
    def batch(self) -> int:
        """The rows of one local step."""
        return self.batch_size or self.rows // self.blocks

    @property
    def rate(self) -> float:
        """The step for gradients that are the mean over a batch: η·M·(rows of a block) where f_i is a sum."""
        return self.step * self.blocks * self.batch if self.data == "mnist" else self.step


JOBS = {
    "J1": Job("J1: FedAvg, 2NN on MNIST, N=1000, S=50", "mnist", 1000, 50, "2nn", "fedavg", 4e-4, 60),
    "J2": Job("J2: as J1, softmax regression", "mnist", 1000, 50, "softmax", "fedavg", 4e-4, 60),
    "J3": Job("J3: FedAvg, 2NN, N=100, S=10, blocks of 120", "mnist", 100, 10, "2nn", "fedavg", 1e-4, 600),
    "J4": Job("J4: SCAFFOLD on J1", "mnist", 1000, 50, "2nn", "scaffold", 4e-4, 60,
              contenders=("losac", "torch_vmap", "torch_loop", "pfl")),
    "J1-losac": Job("LoSAC on J1", "mnist", 1000, 50, "2nn", "losac", 4e-4, 60, contenders=("losac", "torch_loop")),
    "J3-losac": Job("LoSAC on J3", "mnist", 100, 10, "2nn", "losac", 1e-4, 600, contenders=("losac", "torch_loop")),
    "images": Job("pfl's CIFAR-10 job: FedAvg, CNN, N=1000, S=50", "images", 1000, 50, "cnn", "fedavg", 0.1, 50,
                  batch_size=10, rounds=1, check=1, contenders=("losac", "torch_vmap", "torch_loop", "fedjax", "pfl")),
    "cnn": Job("FedAvg, CNN of 1 M parameters on MNIST, N=100, S=10, blocks of 12", "mnist", 100, 10, "cnn5", "fedavg",
               2e-5, 600, blocks=50, check=3, contenders=("losac", "torch_loop")),
    "cnn-120": Job("The same CNN, blocks of 120", "mnist", 100, 10, "cnn5", "fedavg", 2e-5, 600, rounds=1, check=1,
                   contenders=("losac", "torch_loop")),
    "lowrank": Job("Low-rank matrices: LoSAC-Prox, 64×64, N=100, S=10", "lowrank", 100, 10, "matrix", "losac", 2e-3,
                   100, contenders=("losac", "torch_loop")),
    "sweep": Job("64 runs of J2: 8 step sizes × 8 seeds", "mnist", 1000, 50, "softmax", "fedavg", 4e-4, 60,
                 members=64, rounds=20, check=20, contenders=("losac", "losac_loop", "torch_loop")),
}  # fmt: skip
SWEPT_STEPS = tuple(4e-4 * 2.0**k for k in range(-7, 1))
SWEPT_SEEDS = tuple(range(8))
STRENGTH, RANK = 0.1, 8
"""λ of the nuclear norm and the rank of the truth, in the low-rank job."""


class Contender(NamedTuple):
    """A script of ``contenders/``, the environment it runs in, and what tables call it."""

    script: str
    environment: str
    title: str


CONTENDERS = {
    "losac": Contender("with_losac.py", "losac", "losac"),
    "losac_loop": Contender("with_losac_loop.py", "losac", "losac.simulate in a loop"),
    "torch_vmap": Contender("torch_vmap.py", "torch", "torch.func.vmap over clients"),
    "torch_loop": Contender("torch_loop.py", "torch", "hand-written PyTorch loop"),
    "fedjax": Contender("with_fedjax.py", "fedjax", "FedJAX 0.0.17"),
    "pfl": Contender("with_pfl.py", "pfl", "pfl 0.6"),
    "flower": Contender("with_flower.py", "flower", "Flower 1.41.0, simulation"),
}
