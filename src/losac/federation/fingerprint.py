"""A short name of an algorithm with its settings; server, clients and checkpoints compare it to see if they agree."""

from __future__ import annotations

import hashlib

from losac._settings import plain_setting
from losac.algorithms.contract import Algorithm


def fingerprint(algorithm: Algorithm, frozen: str = "") -> str:
    """Return the algorithm's name and a digest of its settings; functions other than schedules count by their names.

    ``frozen`` is the digest of the model's frozen weights, empty if it has none: they never travel, so each side has
    its own copy, and all must be the same.

    >>> import losac, numpy
    >>> one, other = losac.algorithms.fedavg(0.1), losac.algorithms.fedavg(numpy.float32(0.1))
    >>> fingerprint(one) == fingerprint(one), fingerprint(one) == fingerprint(other)
    (True, True)
    """
    own = f"{algorithm.label} {hashlib.sha256(repr(plain_setting(algorithm)).encode()).hexdigest()[:12]}"
    return f"{own} on frozen {frozen}" if frozen else own
