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
from losac.models.trained import Trained

__all__ = [
    "Convolutional",
    "Dense",
    "Function",
    "Inner",
    "Model",
    "Trained",
    "cnn",
    "freeze",
    "from_equinox",
    "from_flax",
    "from_nnx",
    "linear",
    "logistic_regression",
    "softmax_regression",
    "two_nn",
]
