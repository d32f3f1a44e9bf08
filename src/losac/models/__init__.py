"""Models: an ``init(key) -> params`` and a call ``model(params, x) -> outputs``, nothing else.

Models compare by value: a second task with the same model reuses the compiled program of the first. Any object with
these two methods works too, and so does any pair of plain functions. ``from_flax``, ``from_nnx`` and ``from_equinox``
make models from modules of Flax and Equinox; ``freeze`` trains a part of a model.
"""

from losac.models.adapters import from_equinox, from_flax, from_nnx
from losac.models.built import (
    Convolutional,
    Dense,
    Function,
    Inner,
    Model,
    cnn,
    linear,
    logistic_regression,
    softmax_regression,
    two_nn,
)
from losac.models.built import Start as Start
from losac.models.frozen import freeze
from losac.models.pictures import ConvNet, fedavg_cnn, lenet
from losac.models.resnet import ResNet, resnet
from losac.models.sequences import Recurrent, Transformer
from losac.models.trained import Trained
from losac.models.wrapped import Mixed, augmented, mixed

__all__ = [
    "ConvNet",
    "Convolutional",
    "Dense",
    "Function",
    "Inner",
    "Mixed",
    "Model",
    "Recurrent",
    "ResNet",
    "Trained",
    "Transformer",
    "augmented",
    "cnn",
    "fedavg_cnn",
    "freeze",
    "from_equinox",
    "from_flax",
    "from_nnx",
    "lenet",
    "linear",
    "logistic_regression",
    "mixed",
    "resnet",
    "softmax_regression",
    "two_nn",
]
