"""What tables and figures call the methods, and which of them are the same."""

from losac.algorithms import ALGORITHMS

NAMES = {name: kind.title for name, kind in ALGORITHMS.items()} | {
    "fedsaga": "FedSaga (1/S)",
    "losac_exact": "LoSAC (exact)",
    "losac_rule": "LoSAC (by rule)",
}
"""The algorithms, and the variants of LoSAC, by name."""

SAME = {"feddualavg": "fedavg", "fedmid": "fedavg", "fednova": "fedavg", "fedavg_momentum": "fedcm"}
"""Methods that are another one if nothing is regularised and all clients take the same number of steps, up to the names
of their settings. Each of them counts once."""
SAME_WORDS = "FedDualAvg, FedMiD and (if all clients take equally many steps) FedNova are FedAvg, and FedAvg-M is FedCM"


def name_of(method: str) -> str:
    """Return what tables call a method; one that has been added since is called by its own name.

    >>> name_of("mime_svrg"), name_of("fedown")
    ('MimeSVRG', 'fedown')
    """
    return NAMES.get(method, method)
