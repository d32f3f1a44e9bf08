"""The registry of real data sets: their digest, their public addresses, how to read them.

The files are not part of the library: HAR and ESR ask for citation, and HAR forbids commercial use.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from losac.data.esr_csv import read_esr
from losac.data.files import Arrays
from losac.data.formats import read_har, read_idx, read_libsvm

_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_UCI = "https://archive.ics.uci.edu/"
_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    Attributes:
        name: the data set, and the stem of its npz file.
        digest: what `content_digest` gives for its arrays.
        files: each public file's name and its addresses, the first that answers wins.
        read: turns the downloaded files, by name, into the arrays.
        terms: what the authors ask of users.
    """

    name: str
    digest: str
    files: Mapping[str, tuple[str, ...]]
    read: Callable[[Mapping[str, Path]], Arrays]
    terms: str


def _read_mnist(files: Mapping[str, Path]) -> Arrays:
    return {
        f"{letter}_{part}": read_idx(files[f"{stem}-{kind}.gz"])
        for part, stem in (("train", "train"), ("test", "t10k"))
        for letter, kind in (("x", "images-idx3-ubyte"), ("y", "labels-idx1-ubyte"))
    }


def _read_a9a(files: Mapping[str, Path]) -> Arrays:
    x_train, y_train = read_libsvm(files["a9a"], features=123)
    x_test, y_test = read_libsvm(files["a9a.t"], features=123)
    return {"x_train": x_train, "y_train": y_train, "x_test": x_test, "y_test": y_test}


def _read_w8a(files: Mapping[str, Path]) -> Arrays:
    x_train, y_train = read_libsvm(files["w8a"], features=300)
    return {"x_train": x_train, "y_train": y_train}


SOURCES: Mapping[str, Source] = {
    source.name: source
    for source in (
        Source(
            name="mnist",
            digest="7bf19471c397a07c4488f600bdfd9f25edbf8c41c2ecc70e1f93beee515475e6",
            files={
                f"{stem}.gz": tuple(f"{base}{stem}.gz" for base in _MNIST)
                for stem in (
                    "train-images-idx3-ubyte",
                    "train-labels-idx1-ubyte",
                    "t10k-images-idx3-ubyte",
                    "t10k-labels-idx1-ubyte",
                )
            },
            read=_read_mnist,
            terms="free for research (LeCun, Cortes, Burges)",
        ),
        Source(
            name="har",
            digest="a8ca8ddc5b51bffc6256063172f724b47de9d1470d967f9781bb4660c8a765c6",
            files={
                "har.zip": (f"{_UCI}static/public/240/human+activity+recognition+using+smartphones.zip",),
            },
            read=lambda files: read_har(files["har.zip"]),
            terms="cite Anguita et al., 2013; no commercial use",
        ),
        Source(
            name="esr",
            digest="ffdafb2e061e3c0c42a53b53f310af693b6608cf5407e6bd78cc83af2bbf1b5e",
            files={
                "esr.csv": (
                    f"{_UCI}static/public/388/epileptic+seizure+recognition.zip",
                    f"{_UCI}ml/machine-learning-databases/00388/data.csv",
                    "https://web.archive.org/web/20200318000445id_/"
                    "http://archive.ics.uci.edu/ml/machine-learning-databases/00388/data.csv",
                ),
            },
            read=lambda files: read_esr(files["esr.csv"]),
            terms="cite Andrzejak et al., 2001",
        ),
        Source(
            name="a9a",
            digest="0c10a942819c63156f33cd8b8a820a0dcd3ad2af0c9227430e7828fb0054811a",
            files={"a9a": (f"{_LIBSVM}a9a",), "a9a.t": (f"{_LIBSVM}a9a.t",)},
            read=_read_a9a,
            terms="LIBSVM's binary form of UCI Adult (CC BY 4.0)",
        ),
        Source(
            name="w8a",
            digest="8d4d2f18ef5a518363f6892de34542fbe4d06c3fbbd44337c9e6eca1ff77de1f",
            files={"w8a": (f"{_LIBSVM}w8a",)},
            read=_read_w8a,
            terms="cite Platt, 1999",
        ),
    )
}
