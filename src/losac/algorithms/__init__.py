"""The algorithms, each one small file of pure functions; ``losac.algorithms.names()`` lists them."""

from losac.algorithms.contract import Algorithm, Federation, Local, LocalMethod, Phase, Received
from losac.algorithms.dsgd import Dsgd as dsgd
from losac.algorithms.fedavg import Fedavg as fedavg
from losac.algorithms.fedsaga import Fedsaga as fedsaga
from losac.algorithms.losac import Losac as losac
from losac.algorithms.scaffold import Scaffold as scaffold
from losac.algorithms.transform import Transform

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Federation",
    "Local",
    "LocalMethod",
    "Phase",
    "Received",
    "Transform",
    "dsgd",
    "fedavg",
    "fedsaga",
    "losac",
    "names",
    "scaffold",
]

ALGORITHMS: dict[str, type[Algorithm]] = {a.__name__.lower(): a for a in (dsgd, fedavg, fedsaga, losac, scaffold)}
"""The public list."""


def names() -> tuple[str, ...]:
    """Return the names of all algorithms."""
    return tuple(ALGORITHMS)
