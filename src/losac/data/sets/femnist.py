"""FEMNIST: the handwritten digits and letters of EMNIST by writer, 3,400 clients.

S. Caldas et al., *LEAF: a benchmark for federated settings*, 2018, in the form of TensorFlow Federated, whose checksum
this is. Each writer has rows to train and rows to test.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from losac._checks import check_count, check_flag
from losac.data.sets.kept import KeptSet, PublicFile
from losac.data.sets.tff import BASE, gathered, unpacked
from losac.data.tables import Table

_ARCHIVE = "fed_emnist.tar.bz2"
DIGITS, CLASSES = 10, 62


def table(
    files: Mapping[str, Path],
    rng: np.random.Generator,
    *,
    writers: int | None = None,
    digits: bool = False,
    flatten: bool = True,
) -> Table:
    """Pixels in [0, 1] with ink as 1, as rows of 784 or, with `flatten=False`, as images of 28 x 28 x 1.

    Args:
        files: the published files.
        rng: not used.
        writers: how many to read, in the order of their names; all by default.
        digits: leave out the letters, as FedAvg's and SCAFFOLD's successors often do.
        flatten: see above.
    """
    check_flag("digits", digits)
    if writers is not None:
        check_count("writers", writers)

    def rows(fields: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        ink, y = 1 - np.asarray(fields["pixels"], np.float32), np.asarray(fields["label"], np.int32)
        kept = y < DIGITS if digits else np.ones(len(y), bool)
        x = ink[kept]
        return (x.reshape(len(x), 784) if flatten else x.reshape(len(x), 28, 28, 1)), y[kept]

    archive = files[_ARCHIVE]
    x, y, who = gathered(unpacked(archive, "fed_emnist_train.h5"), None, writers, rows)
    held = gathered(unpacked(archive, "fed_emnist_test.h5"), set(who.tolist()), None, rows)
    return Table(x, y, DIGITS if digits else CLASSES, test=held[:2], groups=who)


FEMNIST = KeptSet(
    "femnist",
    "28x28 handwritten digits and letters by 3,400 writers; 671,585/77,483 rows, 62 classes; needs losac[hdf5]",
    (
        PublicFile(
            _ARCHIVE,
            (f"{BASE}{_ARCHIVE}",),
            "sha256:fe1ed5a502cea3a952eb105920bff8cffb32836b5173cb18a57a32c3606f3ea0",
        ),
    ),
    table,
    "cite Caldas et al., 2018, and Cohen et al., 2017",
    natural=True,
)
