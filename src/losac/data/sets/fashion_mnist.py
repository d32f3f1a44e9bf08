"""Fashion-MNIST: 70,000 grey pictures of clothes in the format of MNIST.

H. Xiao, K. Rasul, R. Vollgraf, *Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms*,
2017. MIT licence. The checksums are those of torchvision and of the authors' repository.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from losac.data.formats import read_idx
from losac.data.sets.kept import KeptSet, PublicFile
from losac.data.tables import Table, pixels

_BASE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
_FILES = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
LABELS = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def table(files: Mapping[str, Path], rng: np.random.Generator, *, flatten: bool = True) -> Table:
    """Pixels in [0, 1], as rows of 784 or, with `flatten=False`, as images of 28 x 28 x 1."""
    read = [read_idx(files[name]) for name in _FILES]
    train, test = ((pixels(x, flatten), y.astype(np.int32)) for x, y in (read[:2], read[2:]))
    return Table(*train, 10, test=test, label_names=LABELS)


FASHION_MNIST = KeptSet(
    "fashion_mnist",
    "28x28 pictures of clothes; 60,000/10,000 rows, 10 classes",
    tuple(PublicFile(name, (f"{_BASE}{name}",), f"md5:{md5}") for name, md5 in _FILES.items()),
    table,
    "MIT licence; cite Xiao et al., 2017",
)
