"""HAR and ESR as honest federations: people, and recordings, that are trained on, tuned on or judged on, never two."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

import losac


class Federation(NamedTuple):
    """Clients to train on, other clients to choose settings by, and others still to judge by."""

    train: losac.FederatedData
    validation: losac.FederatedData
    test: losac.FederatedData


def by_client(data: losac.FederatedData, seed: int) -> Federation:
    """Deal whole clients: of ten, six are trained on, two tuned on and two judged on."""
    order = np.random.default_rng(seed).permutation(data.num_clients)
    at = [round(0.6 * len(order)), round(0.8 * len(order))]
    return Federation(*(data.subset(np.sort(part)) for part in np.split(order, at)))


def har(seed: int = 0) -> Federation:
    """Smartphone motion: a client is a person, with three in ten of their windows, which overlap by half anyway."""
    _, some = losac.hold_out(losac.data.load("har", partition="group", seed=seed), 0.3, seed=seed)
    return by_client(some, seed)


def esr(seed: int = 0, multiclass: bool = False) -> Federation:
    """Seconds of EEG, seizure or not (or one of five kinds): a client is a recording.

    A row becomes the logarithm of its spectrum, on which a linear model can act; scales are learnt from the recordings
    trained on.
    """
    options = {"split": "recording", "preprocessing": "none", "multiclass": multiclass}
    data = losac.data.load("esr", partition="group", seed=seed, **options)
    spectrum = np.log1p(np.abs(np.fft.rfft(data.x, axis=1)))[:, :60].astype("float32")
    parts = by_client(replace(data, x=spectrum, test=None), seed)
    centre, scale = parts.train.x.mean(0), parts.train.x.std(0)
    return Federation(*(replace(part, x=(part.x - centre) / scale) for part in parts))


def linear_task(found: Federation) -> losac.Task:
    """Return softmax regression on the clients trained on; its metrics are of those tuned on."""
    model = losac.models.softmax_regression(found.train.x.shape[1], found.train.num_classes or 2)
    return losac.classification(model, found.train, test=(found.validation.x, found.validation.y))
