"""Every random stream of losac, by name. No other file derives a key or seeds a generator.

A run follows from its seed. Each name below is a function in this file, and each arrow folds in one number::

    seed ── run_key ─┬─ evaluation_key                     models that are random when evaluated
                     └─ round_key(r) ─┬─ steps_uniform     the random number of local steps
                                      └─ phase_key(k) ─┬─ chance_uniform    whether the phase takes place
                                                       ├─ sum_noise_key     noise on the sum of the uploads
                                                       ├─ aggregation_key ── stage_key(n)    how uploads are grouped
                                                       ├─ lie_key           what lying clients draw
                                                       ├─ common_key(N)     what all clients of the phase share
                                                       └─ client_key(i) ─┬─ own_steps       how many local steps
                                                                         ├─ block_key(t)    the block of step t
                                                                         ├─ pass_key(e)     the row order of pass e
                                                                         ├─ model_key(t)    dropout in step t
                                                                         └─ noise_key ── transform_key(n)

The server samples clients with :func:`sampling_generator`, and data sets are drawn and dealt with NumPy generators
from seeds of their own. Only :func:`secret_key` does not depend on a seed.

Changing a function here changes the results of every run that uses it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from losac.trees import Array, Scalar

_LAST = 2**31 - 1
"""The largest number to fold in. Rounds, phases, clients, steps and passes count up from 0 and never come near it."""

Generator = np.random.Generator


def _fold(key: Array, number: Scalar) -> Array:
    from jax.random import fold_in  # loaded late: losac.data draws with NumPy alone

    return fold_in(key, number)


def _split(key: Array, shape: int | tuple[int, ...]) -> Array:
    from jax.random import split

    return split(key, shape)


def _uniform(key: Array) -> Array:
    from jax import numpy, random

    return random.uniform(key, (), numpy.float32)


# A run, from its seed


def run_key(seed: Scalar) -> Array:
    """Return the key of a run: a function of the seed."""
    from jax.random import key

    return key(seed)


def weights_key(seed: Scalar) -> Array:
    """Return the key of the initial weights x⁰: a function of the seed."""
    return run_key(seed)


def any_key() -> Array:
    """Return a key whose value affects no result, such as for tracing shapes."""
    return run_key(0)


def evaluation_key(run: Array) -> Array:
    """Return the key for evaluating the model: a function of the run, the same in every round."""
    return _fold(run, _LAST)


def round_key(run: Array, round_index: Scalar) -> Array:
    """Return the key of a round: a function of the run and the round."""
    return _fold(run, round_index)


def steps_uniform(of_round: Array) -> Array:
    """Return the uniform number behind a round's random number of local steps: a function of the round."""
    return _uniform(_fold(of_round, _LAST))


def phase_key(of_round: Array, phase_index: Scalar) -> Array:
    """Return the key of a phase: a function of the round and the phase's index in it."""
    return _fold(of_round, phase_index)


def chance_uniform(of_phase: Array) -> Array:
    """Return the uniform number that decides whether a phase with a chance takes place: a function of the phase."""
    return _uniform(_fold(of_phase, _LAST - 1))


def sum_noise_key(of_phase: Array) -> Array:
    """Return the key of the noise that the server adds to the sum of the uploads: a function of the phase."""
    return _fold(of_phase, _LAST - 2)


def aggregation_key(of_phase: Array) -> Array:
    """Return the key of the stages of an aggregation: a function of the phase."""
    return _fold(of_phase, _LAST - 3)


def stage_key(of_aggregation: Array, stage_index: Scalar) -> Array:
    """Return the key of one stage: a function of the aggregation's key and the stage's index."""
    return _fold(of_aggregation, stage_index)


def bucket_order(of_stage: Array, count: int) -> Array:
    """Return random numbers whose order deals uploads to groups: a function of the stage's key."""
    from jax import numpy, random

    return random.uniform(of_stage, (count,), numpy.float32)


def lie_key(of_phase: Array) -> Array:
    """Return the key of what lying clients draw together: a function of the phase."""
    return _fold(of_phase, _LAST - 4)


def lies(key: Array, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """Return what liars draw: a function of the key of a part of their uploads."""
    from jax import random

    return random.normal(key, shape, dtype)


def common_key(of_phase: Array, clients: Scalar) -> Array:
    """Return the key that all clients of a phase share: a function of the phase and of the number N of clients."""
    return _fold(of_phase, clients)


# A client's work in a phase


def client_key(of_phase: Array, client: Scalar) -> Array:
    """Return a client's key in a phase: a function of the phase and the client's index, from 0 to N − 1.

    It is also the key of the model's own randomness in the client's full gradient.
    """
    return _fold(of_phase, client)


def own_steps(of_client: Array, least: Scalar, most: Scalar) -> Array:
    """Return a client's random number of local steps, uniform from least to most: a function of the client's key."""
    from jax import numpy

    drawn = numpy.floor(_uniform(_fold(of_client, _LAST - 1)) * (most - least + 1)).astype(numpy.int32)
    return numpy.minimum(least + drawn, most)


def block_key(of_client: Array, step: Scalar) -> Array:
    """Return the key of the block that a step uses: a function of the client's key and the step."""
    return _fold(of_client, step)


def pass_key(of_client: Array, pass_index: Scalar) -> Array:
    """Return the key of the order of the rows in one pass over the data: a function of the client's key and the pass.

    The same numbers as :func:`block_key`: a phase draws blocks or batches, never both.
    """
    return _fold(of_client, pass_index)


def model_key(of_client: Array, step: Scalar) -> Array:
    """Return the key of the model's own randomness (dropout) in a step: a function of the client's key and the step."""
    return _fold(_fold(of_client, step), 1)


def noise_key(of_client: Array) -> Array:
    """Return the key of all transforms of a client's upload: a function of the client's key."""
    return _fold(of_client, _LAST)


def transform_key(of_noise: Array, transform_index: Scalar) -> Array:
    """Return the key of one transform: a function of a noise key (or a secret one) and the transform's index."""
    return _fold(of_noise, transform_index)


def part_key(of_transform: Array, part_index: Scalar) -> Array:
    """Return the key of one part of an upload: a function of a transform's key and the part's index."""
    return _fold(of_transform, part_index)


def secret_key() -> Array:
    """Return a new key from the operating system's generator; it depends on no seed and is not kept."""
    import jax

    shape = jax.random.key_data(any_key()).shape
    data = np.frombuffer(os.urandom(4 * int(np.prod(shape))), np.uint32).reshape(shape)
    return jax.random.wrap_key_data(jax.numpy.asarray(data))


def seed_of(key: Array) -> Array:
    """Return a key as one whole number, to seed a generator of another library such as PyTorch."""
    from jax.random import key_data

    return key_data(key).reshape(-1)[-1]


# Several draws from one key


def leaf_key(key: Array, leaf_index: Scalar) -> Array:
    """Return the key of one leaf of a tree: a function of the tree's key and the leaf's index."""
    return _fold(key, leaf_index)


def leaf_keys(key: Array, count: int) -> Array:
    """Return the keys of all leaves of a tree: a function of the tree's key and the number of leaves."""
    return _split(key, count)


def row_keys(key: Array, count: int) -> Array:
    """Return a key for each row of a batch: a function of the batch's key and its length."""
    return _split(key, count)


def layer_keys(key: Array) -> Array:
    """Return the key of all later layers and the key of the next layer's initial weights: a function of a key."""
    return _split(key, 2)


def flax_params_key(of_model: Array) -> Array:
    """Return what a Flax module gets as its key ``params`` in training: a function of the model's key in the step."""
    return _fold(of_model, 1)


def trial_key(key: Array, trial: Scalar) -> Array:
    """Return the key of one trial model when a metric is tried out: a function of the try's key and the trial."""
    return _fold(key, trial)


def direction_keys(count: int) -> Array:
    """Return the keys of the leaves of the first direction of a power iteration, always the same."""
    return _split(run_key(0), count)


# Personalisation and attacks


def personal_key(seed: Scalar, client: Scalar) -> Array:
    """Return a client's key in personalisation: a function of the seed and the client's index."""
    return _fold(run_key(seed), client)


def personal_step_key(of_client: Array, step: Scalar) -> Array:
    """Return the key of a step of personalisation: a function of the client's key and the step."""
    return _fold(of_client, step)


def personal_step_keys(of_step: Array) -> Array:
    """Return the keys of a step's rows and of the model's own randomness in it: a function of the step's key."""
    return _split(of_step, 2)


def start_keys(seed: Scalar, shape: tuple[int, ...]) -> Array:
    """Return the keys of an attack's starts: a function of the seed and their number, for each client and restart."""
    return _split(run_key(seed), shape)


def guess_keys(of_start: Array) -> Array:
    """Return the keys of an attack's first guess of the rows and of the labels: a function of the start's key."""
    return _split(of_start, 2)


# NumPy's generators: sampling of clients, data and searches


def sampling_generator(seed: int, round_index: int) -> Generator:
    """Return the generator that samples the clients of a round: a function of the seed and the round."""
    return np.random.default_rng([seed, round_index])


def spares_generator(seed: int, round_index: int, tick: int) -> Generator:
    """Return the generator that replaces absent clients: a function of the seed, the round and the attempt."""
    return np.random.default_rng([seed, round_index, tick])


def rows_generator(seed: int) -> Generator:
    """Return the generator of a loaded data set's rows: a function of the data's seed."""
    return np.random.default_rng([seed, 0])


def partition_generator(seed: int) -> Generator:
    """Return the generator that deals a data set's rows to clients: a function of the data's seed."""
    return np.random.default_rng([seed, 1])


def shared_generator(seed: int) -> Generator:
    """Return the generator of what all clients of a synthetic data set share: a function of the data's seed."""
    return np.random.default_rng([seed, _LAST + 1])


def client_generator(seed: int, client: int) -> Generator:
    """Return the generator of a client's synthetic rows, or a group's: a function of the data's seed and its index."""
    return np.random.default_rng([seed, client])


def liars_generator(seed: int) -> Generator:
    """Return the generator that chooses which clients lie: a function of the attackers' seed."""
    return np.random.default_rng([seed, _LAST + 2])


def held_out_generator(seed: int) -> Generator:
    """Return the generator that sets rows or clients aside: a function of a seed."""
    return np.random.default_rng(seed)


def dealing_generator(seed: int) -> Generator:
    """Return the generator that deals rows to the clients of a scikit-learn estimator: a function of its seed."""
    return np.random.default_rng(seed)


def search_generator(seed: int) -> Generator:
    """Return the generator of a search's points: a function of the search's seed."""
    return np.random.default_rng(seed)


def trial_generator(seed: int) -> Generator:
    """Return the generator of the rows on which a metric is tried out: a function of the try's number."""
    return np.random.default_rng(seed)
