"""A short name of an algorithm with its settings; server, clients and checkpoints compare it to see if they agree."""

from __future__ import annotations

import hashlib

from losac._settings import plain_setting
from losac.algorithms.contract import Algorithm


def fingerprint(algorithm: Algorithm) -> str:
    """Return the algorithm's name and a digest of its settings; functions other than schedules count by their names.

    >>> import losac, numpy
    >>> one, other = losac.algorithms.fedavg(0.1), losac.algorithms.fedavg(numpy.float32(0.1))
    >>> fingerprint(one) == fingerprint(one), fingerprint(one) == fingerprint(other)
    (True, True)
    """
    return f"{algorithm.label} {hashlib.sha256(repr(plain_setting(algorithm)).encode()).hexdigest()[:12]}"
