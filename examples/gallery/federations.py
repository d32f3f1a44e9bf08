"""HAR and ESR as fair federations: each person or recording is used for training, for tuning or for judging."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

import losac


class Federation(NamedTuple):
    """Clients for training, clients for choosing settings, and clients for judging."""

    train: losac.FederatedData
    validation: losac.FederatedData
    test: losac.FederatedData


def by_client(data: losac.FederatedData, seed: int) -> Federation:
    """Split by whole clients: of ten, six are for training, two for tuning and two for judging."""
    order = np.random.default_rng(seed).permutation(data.num_clients)
    at = [round(0.6 * len(order)), round(0.8 * len(order))]
    return Federation(*(data.subset(np.sort(part)) for part in np.split(order, at)))


def har(seed: int = 0, windows: int | None = None) -> Federation:
    """Smartphone motion: a client is a person with 30 % of their windows, which overlap by half anyway.

    With ``windows``, every person has that many windows instead, and every seed uses the same compiled program.
    """
    data = losac.data.load("har", partition="group", seed=seed)
    if windows is None:
        return by_client(losac.hold_out(data, 0.3, seed=seed)[1], seed)
    rng = np.random.default_rng(seed)
    rows = np.concatenate([np.sort(rng.choice(size, windows, replace=False)) + start
                           for size, start in zip(data.sizes, data.offsets)])  # fmt: skip
    offsets = windows * np.arange(data.num_clients + 1)
    some = replace(data, x=data.x[rows], y=data.y[rows], offsets=offsets, groups=None, test=None)
    return by_client(some, seed)


def esr(seed: int = 0, multiclass: bool = False, preprocessing: str = "row-max") -> Federation:
    """Seconds of EEG, seizure or not (or one of five kinds): a client is a recording.

    Rows are prepared as in the paper's reproduction (``row-max``) or kept as recorded (``none``). Then the logarithm of
    its spectrum replaces a row, which suits a linear model. Scales come from the training recordings.
    """
    options = {"split": "recording", "preprocessing": preprocessing, "multiclass": multiclass}
    data = losac.data.load("esr", partition="group", seed=seed, **options)
    spectrum = np.log1p(np.abs(np.fft.rfft(data.x, axis=1)))[:, :60].astype("float32")
    parts = by_client(replace(data, x=spectrum, test=None), seed)
    centre, scale = parts.train.x.mean(0), parts.train.x.std(0)
    return Federation(*(replace(part, x=(part.x - centre) / scale) for part in parts))


def linear_task(found: Federation) -> losac.Task:
    """Return a linear model on the training clients, with one output for two classes, else one for each.

    Its metrics are computed on the tuning clients.
    """
    classes = found.train.num_classes or 2
    model = losac.models.softmax_regression(found.train.x.shape[1], 1 if classes == 2 else classes)
    return losac.classification(model, found.train, test=(found.validation.x, found.validation.y))
