"""Small clients to attack, and public rows that no client holds."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from losac import _random
from losac.attacks.attack import Data
from losac.data import FederatedData

IMAGES = ("digits", "mnist")
"""Data sets of square grey images."""


class Ground(NamedTuple):
    """The setting of an attack.

    Args:
      clients: their rows.
      data: what the attacker knows of the rows, from those that no client holds.
      class_means: of the rows that no client holds, [classes, …]; None if a class has none of them.
    """

    clients: FederatedData
    data: Data
    class_means: np.ndarray | None


def cut(data: FederatedData, rows: int, seed: int = 0) -> Ground:
    """Leave every client some rows, drawn at random; all others, and the test part, are public.

    Args:
      data: labelled rows at clients.
      rows: how many each client keeps.
      seed: of the draw.

    >>> from losac.data import load
    >>> ground = cut(load("digits", clients=4), 8)
    >>> ground.clients.sizes, ground.data.image, ground.class_means.shape
    (array([8, 8, 8, 8]), (8, 8), (10, 64))
    """
    if data.num_classes is None:
        raise ValueError(f"{data.name!r} has no labels, and attacks are on classifiers; use digits, mnist or another")
    if not 1 <= rows <= data.sizes.min():
        raise ValueError(
            f"samples={rows} must be at least 1, and at most {data.sizes.min()}, which is what the smallest client has"
        )
    rng = _random.held_out_generator(seed)
    parts = [start + rng.permutation(int(size))[:rows] for start, size in zip(data.offsets, data.sizes)]
    held = np.zeros(len(data), bool)
    held[np.concatenate(parts)] = True
    x, y = data.x[~held], data.y[~held]
    if data.test is not None:
        x, y = np.concatenate([x, data.test[0]]), np.concatenate([y, data.test[1]])
    clients = FederatedData.from_partition(
        data.x, data.y, parts, test=data.test, name=data.name, num_classes=data.num_classes
    )
    shape = tuple(data.x.shape[1:])
    box = (float(x.min()), float(x.max())) if len(x) else None
    side = math.isqrt(math.prod(shape))
    image = (side, side) if data.name in IMAGES else None
    missing = set(range(data.num_classes)) - set(y.tolist())
    means = None if missing else np.stack([x[y == c].mean(0) for c in range(data.num_classes)])
    return Ground(clients, Data(shape, box, data.num_classes, image), means)
