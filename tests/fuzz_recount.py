"""Bytes and gradients of a run, counted again from the definitions of the methods, in NumPy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from fuzz_compositions import Composition
from losac._compat import enable_x64
from losac.algorithms.compression import Qsgd, RandomK, TopK, _Sparsifier
from losac.algorithms.fixed_point import FixedPoint
from losac.algorithms.power_sgd import PowerSgd
from losac.simulation.sampling import make_sampler


class Phase(NamedTuple):
    """One exchange: models and scalars down and up, gradients per local step, and over all local rows."""

    down: int = 1
    up: int = 1
    per_step: int = 1
    full: int = 0
    scalars_down: int = 0
    scalars_up: int = 0
    everyone: bool = False


GRADIENT = Phase(1, 1, 0, 1)
PHASES: dict[str, tuple[Phase, ...]] = {
    "fednova": (Phase(scalars_up=1),),
    "delta_sgd": (Phase(per_step=2),),
    "padamfed": (Phase(2, 2),),
    "padamfed_vr": (Phase(3, 2, 2),),
    "pp_marina": (GRADIENT._replace(everyone=True), Phase(2, 1, 2)),
    "dasha_pp": (Phase(2, 1, 2),),
    "locodl": (Phase(scalars_up=1),),
    "fedspeed": (Phase(per_step=2),),
    "fedexp": (Phase(scalars_up=1),),
    "fedmid": (Phase(scalars_up=1),),
    "feddualavg": (Phase(scalars_down=1, scalars_up=1),),
    "ghbm": (Phase(2),),
    "local_svrg": (GRADIENT._replace(everyone=True), Phase(3, 1, 2)),
    "fedlin": (GRADIENT._replace(everyone=True), Phase(2)),
    "scaffold_momentum": (Phase(3, 2),),
    "fedavg_momentum": (Phase(2),),
    "tamuna": (Phase(), Phase(1, 0, 0)),
    "mfl": (Phase(2, 2),),
    "fedcm": (Phase(2),),
    "mime_svrg": (GRADIENT, Phase(2, 1, 2)),
    "mime": (GRADIENT, Phase(3, 1, 2)),
    "mime_lite": (Phase(2, 2, 1, 1),),
    "scaffold": (Phase(2, 2),),
    "losac": (Phase(2, 2),),
    "losac_lean": (Phase(2),),
}
"""What is not one model each way and one gradient per step (docs/algorithms.md: sent, received, computed)."""


MEASURING = Phase(2, 1, 0, 2)
"""The curvature of an automatic step, in the first three rounds."""


def phases_of(c: Composition) -> tuple[Phase, ...]:
    """Return the exchanges of a round of the composition's method."""
    if c.algorithm.settings()["step_size"] == "auto":
        return MEASURING, Phase(2, scalars_down=1)
    phases = PHASES.get(c.name, (Phase(),))
    if c.name == "scaffold" and c.algorithm.settings()["option"] == 1:
        return (phases[0]._replace(full=1),)  # c_i⁺ = g_i(x) over all local rows
    return phases


class Spent(NamedTuple):
    """Totals after some rounds."""

    bytes_up: float
    bytes_down: float
    gradients: float


def recount(c: Composition, stops: list[int]) -> list[Spent]:
    """Return what the clients sent, received and computed up to each of the rounds in ``stops``."""
    clients, sampled, seed = c.task.data.num_clients, c.run["clients_per_round"], c.run["seed"]
    sampler = make_sampler(c.run.get("sampling", "uniform"), clients, sampled)
    totals, found = np.zeros(3), {}
    for r in range(max(stops) + 1):
        found[r] = Spent(*totals)
        ids = np.asarray(sampler(r, np.random.default_rng([seed, r]), None))
        totals = totals + one_round(c, r, ids)
    return [found[r] for r in stops]


def one_round(c: Composition, r: int, ids: np.ndarray) -> np.ndarray:
    """Return bytes up and down and gradients of a round."""
    sizes = c.task.data.sizes
    word = 8 if c.run["dtype"] == "float64" else 4
    with enable_x64(False):
        leaves = [np.shape(leaf) for leaf in jax.tree.leaves(c.task.init_params(jax.random.key(0)))]
    model = sum(map(math.prod, leaves))
    found = np.zeros(3)
    phases = phases_of(c)
    for place, phase in enumerate(phases):
        own = place == len(phases) - 1 if c.name != "tamuna" else place == 0
        if (phase.everyone and not takes_place(c, r, place)) or (phase is MEASURING and r >= 3):
            continue
        who = range(len(sizes)) if phase.everyone else ids.tolist()
        for i in who:
            up = upload_bytes(c, phase, leaves, word, own)
            down = word * (phase.down * model + phase.scalars_down + (told(c, phase, len(leaves)) if own else 0))
            rows = local_rows(c, r, i) if phase.per_step else 0.0
            found += (up, down, phase.per_step * rows + phase.full * sizes[i])
    return found


def told(c: Composition, phase: Phase, arrays: int) -> int:
    """Return how many numbers a client is told of what a robust server used: one for each array that it records."""
    if not c.algorithm.acknowledges:
        return 0
    return len(c.algorithm.recorded) * arrays or phase.up * arrays + phase.scalars_up


def upload_bytes(c: Composition, phase: Phase, leaves: list[tuple[int, ...]], word: int, own: bool) -> int:
    """Return the bytes of an upload, after its transforms."""
    if c.name == "tamuna":
        if not own:
            return 0
        s, sampled = c.algorithm.settings()["sparsity"] or c.run["clients_per_round"], c.run["clients_per_round"]
        return sum(word * -(-s * math.prod(shape) // sampled) + 4 for shape in leaves)
    shapes = leaves * phase.up + [()] * phase.scalars_up
    arrays = [math.prod(shape) for shape in shapes]
    total = word * sum(arrays)
    for transform in c.algorithm.transforms():
        everywhere = isinstance(transform, FixedPoint) or (phase is MEASURING and isinstance(transform, TopK))
        if not own and not everywhere:
            continue
        if isinstance(transform, Qsgd):
            total = sum(n * (1 if transform.levels <= 127 else 2) + word for n in arrays)
        elif isinstance(transform, _Sparsifier):
            cuts = [sum(arrays)] if transform.over == "model" else arrays
            total = sum(sparse_bytes(transform, n, word) for n in cuts)
        elif isinstance(transform, PowerSgd):
            total = sum(factored_bytes(transform, shape, word) for shape in shapes)
        elif isinstance(transform, FixedPoint):
            total = 8 * sum(arrays)  # whole numbers modulo 2^64, whatever the run's precision
        else:
            total = word * sum(arrays)
    return total


def sparse_bytes(transform: _Sparsifier, size: int, word: int) -> int:
    """Return the bytes of what a sparsifier sends of so many entries: values, and places or the key to draw them."""
    kept = max(1, round(transform.fraction * size))
    values = {None: kept * word, 16: 2 * kept, 8: kept + word}[transform.bits]
    if isinstance(transform, RandomK):
        return values + 8
    choices = [size] + [kept * (low + 1) + ((size - 1) >> low) + 1 for low in [(size // kept).bit_length() - 1]]
    return values + -(-min(choices) // 8)


def factored_bytes(transform: PowerSgd, shape: tuple[int, ...], word: int) -> int:
    """Return the bytes of a matrix as two factors, or of an array whole: each column in a unit of its own."""
    size = math.prod(shape)
    thin = transform.rank * (shape[0] + size // shape[0]) if len(shape) > 1 else size
    kept, columns = (thin, 2 * transform.rank) if thin < size else (size, 1)
    return {None: kept * word, 16: 2 * kept, 8: kept + columns * word}[transform.bits]


def local_rows(c: Composition, r: int, i: int) -> float:
    """Return how many rows client i's local steps go over; a random block counts with the mean of the blocks."""
    n, draw = int(c.task.data.sizes[i]), c.algorithm.draw
    if draw.batch_size is None:
        return local_steps(c, r, i) * n / draw.blocks
    return float(sum(batch_rows(n, draw.batch_size, t) for t in range(int(local_steps(c, r, i)))))


def batch_rows(n: int, batch_size: int, t: int) -> int:
    """Return the rows of the t-th mini-batch of shuffled passes over n rows."""
    per_pass = -(-n // batch_size)
    return min(batch_size, n - (t % per_pass) * batch_size)


def local_steps(c: Composition, r: int, i: int) -> float:
    """Return a client's number of local steps in a round."""
    draw = c.algorithm.draw
    if c.name in ("scaffnew", "tamuna", "locodl"):
        return random_number(c, r, 2**31 - 1, geometric)
    if "local_steps" in c.run:
        return c.run["local_steps"][i]
    if "random_steps" in c.run:
        least, most = map(int, c.run["random_steps"].split(":"))
        with enable_x64(True):
            key = jax.random.key(c.run["seed"])
            for number in (r, c.algorithm.phases().index(c.algorithm), i, 2**31 - 2):
                key = jax.random.fold_in(key, number)
            return least + int(np.float32(jax.random.uniform(key, (), np.float32)) * np.float32(most - least + 1))
    if draw.epochs is not None:
        return draw.epochs * -(-int(c.task.data.sizes[i]) // draw.batch_size)
    return draw.steps


def geometric(uniform: float, c: Composition) -> float:
    """Return a geometric number by inversion, in single precision as the program draws it."""
    p = np.float32(c.algorithm.settings()["probability"])
    return float(1 + np.floor(np.log1p(-np.float32(uniform)) / np.log1p(-p)))


LOTS = {"local_svrg": "refresh", "pp_marina": "probability"}
"""The probability of the first phase, where it takes place by chance."""


def takes_place(c: Composition, r: int, place: int) -> bool:
    """Whether a phase by chance takes place."""
    if c.name not in LOTS:
        return True
    with enable_x64(True):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(c.run["seed"]), r), place)
        drawn = float(jax.random.uniform(jax.random.fold_in(key, 2**31 - 2), (), np.float32))
    return drawn < c.algorithm.settings()[LOTS[c.name]]


def random_number(c: Composition, r: int, fold: int, function: Any) -> float:
    """Return a function of the round's uniform number."""
    with enable_x64(True):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(c.run["seed"]), r), fold)
        return function(float(jax.random.uniform(key, (), np.float32)), c)
