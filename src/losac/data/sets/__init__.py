"""Published data sets, one module each: files, checksums, reader, licence and citation."""

from losac.data.sets.cifar import CIFAR10, CIFAR100
from losac.data.sets.emnist import EMNIST
from losac.data.sets.fashion_mnist import FASHION_MNIST
from losac.data.sets.femnist import FEMNIST
from losac.data.sets.kept import KeptSet
from losac.data.sets.libsvm import LIBSVM
from losac.data.sets.shakespeare import SHAKESPEARE
from losac.data.sets.stackoverflow import STACKOVERFLOW

SETS: dict[str, KeptSet] = {
    kept.name: kept for kept in (FASHION_MNIST, CIFAR10, CIFAR100, EMNIST, FEMNIST, SHAKESPEARE, STACKOVERFLOW, *LIBSVM)
}
"""The data sets in published files, by name."""
