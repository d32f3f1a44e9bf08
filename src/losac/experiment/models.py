"""Models by name, fitted to the data's shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from losac import models
from losac._settings import nearest
from losac.task import Task, classification, regression

if TYPE_CHECKING:
    from losac.data import FederatedData

_CLASSIFIERS = ("softmax", "2nn", "cnn", "logistic")


def build_task(model: str, data: FederatedData, reduction: str) -> Task:
    """Return the task of a named model on the data; the error says which models suit the data."""
    if model not in (*_CLASSIFIERS, "linear"):
        known = ["auto", *_CLASSIFIERS, "linear"]
        raise ValueError(f"unknown model {model!r}{nearest(model, known)}; known are {', '.join(known)}")
    options: dict[str, Any] = {"reduction": reduction}
    if data.num_classes is None:
        if model != "linear":
            raise ValueError(f"{data.name!r} has no labels, so the model {model!r} does not suit it; use linear")
        return regression(models.Inner(data.x.shape[1:]), data, **options)
    if model == "linear":
        raise ValueError(f"{data.name!r} has labels, so use one of {', '.join(_CLASSIFIERS)} instead of linear")
    if model == "logistic" and data.num_classes != 2:
        raise ValueError(f"{data.name!r} has {data.num_classes} classes, but logistic takes only two; use softmax")
    return classification(_classifier(model, data.x.shape[1:], data.num_classes), data, **options)


def _classifier(model: str, shape: tuple[int, ...], classes: int) -> models.Model:
    inputs = math.prod(shape)
    if model == "2nn":
        return models.two_nn(inputs, classes)
    if model == "logistic":
        return models.logistic_regression(inputs)
    if model == "cnn":
        return models.cnn(_image_shape(shape), classes)
    return models.softmax_regression(inputs, classes)


def _image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return (height, width, channels); a flat row of a square number of pixels counts as a grey image."""
    if len(shape) == 3:
        return shape[0], shape[1], shape[2]
    side = math.isqrt(math.prod(shape))
    if side * side != math.prod(shape) or side < 4:
        raise ValueError(f"cnn needs images, but rows have shape {shape}; use 2nn or softmax")
    return side, side, 1
