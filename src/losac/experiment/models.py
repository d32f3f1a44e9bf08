"""Models by name, or of the user's own, fitted to the data's shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from losac import models
from losac._own import call_own, is_own, load_own, raised, taken
from losac._settings import nearest
from losac.task import Task, classification, regression

if TYPE_CHECKING:
    from losac.data import FederatedData

_PICTURES: dict[str, Callable[..., Any]] = {
    "cnn": models.cnn,
    "lenet": models.lenet,
    "fedavg_cnn": models.fedavg_cnn,
    **{f"resnet{depth}": partial(models.resnet, depth) for depth in (8, 18, 20)},
    **{f"resnet{depth}_batch": partial(models.resnet, depth, norm="batch") for depth in (8, 18, 20)},
}
_SEQUENCES = ("gru", "lstm", "transformer", "causal_transformer")
_CLASSIFIERS = ("softmax", "2nn", "logistic", *_PICTURES, *_SEQUENCES)


def model_on(name: str, data: FederatedData) -> tuple[Any, Callable[..., Task]]:
    """Return a named model and the function that makes its task; the error says which models suit the data."""
    labelled = data.num_classes is not None
    if name == "auto":
        name = "softmax" if labelled else "linear"
    if is_own(name):
        return _own_model(name, data), classification if labelled else regression
    if name not in (*_CLASSIFIERS, "linear"):
        known = ["auto", *_CLASSIFIERS, "linear"]
        raise ValueError(
            f"unknown model {name!r}{nearest(name, known)}; known are {', '.join(known)}, and your own as FILE.py:NAME"
        )
    if not labelled and name != "linear":
        raise ValueError(f"{data.name!r} has no labels, so the model {name!r} does not suit it; use linear")
    if not labelled:
        return models.Inner(data.x.shape[1:]), regression
    if name == "linear":
        raise ValueError(f"{data.name!r} has labels, so use one of {', '.join(_CLASSIFIERS)} instead of linear")
    if name == "logistic" and data.num_classes != 2:
        raise ValueError(f"{data.name!r} has {data.num_classes} classes, but logistic takes only two; use softmax")
    return _classifier(name, data), classification


def wrapped(model: Any, data: FederatedData, augment: str | None, precision: str | None) -> Any:
    """Return a model with changed pictures in training (``flip,crop:4``) and 16-bit numbers inside, as asked for."""
    if augment is not None:
        flip, crop = False, 0
        for part in augment.split(","):
            word, _, pixels = part.strip().partition(":")
            if word not in ("flip", "crop") or (word == "flip") == bool(pixels) or not (pixels or "0").isdecimal():
                raise ValueError(f"augment {augment!r} is not of the form flip, crop:PIXELS or flip,crop:PIXELS")
            flip, crop = (True, crop) if word == "flip" else (flip, int(pixels))
        model = models.augmented(model, _image_shape(data.x.shape[1:]), flip=flip, crop=crop)
    return model if precision is None else models.mixed(model, precision)  # type: ignore[arg-type]


def made_of(text: str, data: FederatedData) -> tuple[Any, tuple[str, ...] | None]:
    """Return a user's object, or what a function or class of his makes, with the arguments that it takes by name.

    These are among ``inputs``, ``shape``, ``classes`` and ``data``; None: nothing was called.
    """
    found = load_own(text)
    if not isinstance(found, type) and (not callable(found) or hasattr(found, "init")):
        return found, None
    offered = {"inputs": math.prod(data.x.shape[1:]), "shape": data.x.shape[1:], "data": data}
    offered |= {} if data.num_classes is None else {"classes": data.num_classes}
    return call_own(text, found, offered), tuple(taken(text, found, offered))


def adapter_of(module: Any) -> str | None:
    """Return the function of losac.models that makes a model of a module of Flax or Equinox; None for other objects."""
    of = [kind.__module__ for kind in type(module).__mro__]
    known = {"flax.linen": "from_flax", "flax.nnx": "from_nnx", "equinox": "from_equinox"}
    return next((name for package, name in known.items() if any(each.startswith(package) for each in of)), None)


def _own_model(text: str, data: FederatedData) -> Any:
    found, _ = made_of(text, data)
    adapter = adapter_of(found)
    if adapter is None:
        return found
    try:
        return getattr(models, adapter)(found, *([data.x[:1]] if adapter == "from_flax" else []))
    except Exception as error:
        raise ValueError(f"{text} {raised(error)}") from error


def _classifier(name: str, data: FederatedData) -> Any:
    shape, classes = data.x.shape[1:], int(data.num_classes or 0)
    inputs = math.prod(shape)
    if name == "2nn":
        return models.two_nn(inputs, classes)
    if name == "logistic":
        return models.logistic_regression(inputs)
    if name in _PICTURES:
        return _PICTURES[name](shape=_image_shape(shape), classes=classes)
    if name in _SEQUENCES:
        return _of_sequences(name, data, classes)
    return models.softmax_regression(inputs, classes)


def _of_sequences(name: str, data: FederatedData, classes: int) -> Any:
    if data.x.ndim != 2 or data.x.dtype.kind not in "iu":
        raise ValueError(f"{name} needs rows of whole numbers (tokens), but rows are {data.x.dtype} {data.x.shape[1:]}")
    tokens = max(classes, int(data.x.max()) + 1)
    if name in ("gru", "lstm"):
        return models.Recurrent(tokens, classes, cell=name)  # type: ignore[arg-type]
    return models.Transformer(tokens, classes, data.x.shape[1], causal=name.startswith("causal"))


def _image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (height, width, channels); a flat row of a square number of pixels counts as a grey image."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    side = math.isqrt(math.prod(shape))
    if side * side != math.prod(shape) or side < 4:
        raise ValueError(f"the model needs images, but rows have shape {shape}; use 2nn or softmax")
    return side, side, 1
