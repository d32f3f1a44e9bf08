"""EMNIST: handwritten digits and letters, in NIST's splits; without writers (see :mod:`losac.data.sets.femnist`).

G. Cohen, S. Afshar, J. Tapson, A. van Schaik, *EMNIST: an extension of MNIST to handwritten letters*, 2017. The
checksum is that of torchvision.
"""

import gzip
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from losac._checks import check_choice
from losac.data.formats import idx_array
from losac.data.sets.kept import KeptSet, PublicFile
from losac.data.tables import Table, pixels

Split = Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"]
_CLASSES = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
_ARCHIVE = "gzip.zip"


def table(
    files: Mapping[str, Path], rng: np.random.Generator, *, split: Split = "balanced", flatten: bool = True
) -> Table:
    """Pixels in [0, 1], upright, as rows of 784 or, with `flatten=False`, as images of 28 x 28 x 1."""
    check_choice("split", split, get_args(Split))
    with zipfile.ZipFile(files[_ARCHIVE]) as archive:

        def read(part: str, kind: str) -> NDArray[Any]:
            name = next(n for n in archive.namelist() if n.endswith(f"emnist-{split}-{part}-{kind}-ubyte.gz"))
            return idx_array(gzip.decompress(archive.read(name)), name)

        def rows(part: str) -> tuple[NDArray[Any], NDArray[Any]]:
            upright = read(part, "images-idx3").transpose(0, 2, 1)  # the files hold transposed pictures
            labels = read(part, "labels-idx1").astype(np.int32)
            return pixels(upright, flatten), labels - (split == "letters")  # letters count from 1

        return Table(*rows("train"), _CLASSES[split], test=rows("test"))


EMNIST = KeptSet(
    "emnist",
    "28x28 handwritten digits and letters in NIST's splits; balanced: 112,800/18,800 rows, 47 classes",
    (
        PublicFile(
            _ARCHIVE,
            ("https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",),
            "md5:58c8d27c78d21e728a6bc7b3cc06412e",
        ),
    ),
    table,
    "cite Cohen et al., 2017",
)
