r"""The privacy accountant: (ε, δ) of a run with uploads protected by :class:`losac.algorithms.gaussian`.

The guarantee protects a *client*: it compares two federations that differ in all of the data of one client (replaced,
not removed: N, and which clients were asked when, are public). There are two adversaries.

``"server"``: sees every single upload. Each upload is a Gaussian mechanism: with every part divided by C_k√K, it has a
norm of at most 1, replacing the data moves it by at most 2, and the noise has the standard deviation z. This gives a
multiplier of z/2. A client's state is a function of its data and of what it sent (which the adversary has seen), so
uploads compose for any algorithm. Every upload counts, in all phases, including rounds that did not count in the end.
Sampling does not help, because the server knows which clients it asked. Noise at the server does not protect from it.

``"outside"``: sees what the server sends, in all rounds, and no single upload. This also describes the server itself
under secure aggregation with noise at the clients. The adversary is neither a client nor cooperates with one.

- Noise at the server: the sum has one noise of multiplier z/2. Every client's part of it is a function of its data and
  of what all have seen, so rounds compose for methods with and without client state.
- Noise at the clients, no client state: the noises of the S replies add up, to z√S/2. Count the *fewest* replies.
- Noise at the clients, with client state (LoSAC, SCAFFOLD, FedDyn, error feedback, …): each state remembers the
  client's own noise, which the adversary has not seen, and later uploads contain it again. The noises of several rounds
  are then not independent given what was seen, and the sum over S is not proven to help. We count z/2, the value of the
  client's own noise alone.
- Sampling: if clients keep no state, a uniform sample without replacement amplifies the privacy (Wang, Balle,
  Kasiviswanathan 2019, for replaced records), as long as the adversary does not know the sample. It follows from the
  run's seed, which must be random and secret. With state, a contribution depends on earlier, hidden samples, and the
  theorem does not apply directly: the rounds of a client are composed without amplification. Phases that ask all
  clients are not amplified either. In a federation absent clients are replaced by present ones: give as ``clients`` the
  fewest that were ever present. A round that is tried again asks the same sample: for methods of two phases, rounds
  that were tried again are not amplified.

Phases of one round that ask the same sample are composed within the round.

Composition is exact: R Gaussian mechanisms of multiplier m are one of m/√R (J. Dong, A. Roth, W. J. Su, *Gaussian
differential privacy*, 2022), with the ε(δ) of B. Balle, Y.-X. Wang (ICML 2018). Amplified rounds are composed by
Rényi divergences, an upper bound. Both are computed by Google's dp-accounting: ``pip install 'losac[privacy]'``.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from losac._checks import POSITIVE, check_count, check_number, is_number, is_whole, shown
from losac._devices import prepare_jax
from losac._extras import need
from losac._seeds import check_seed
from losac.algorithms.contract import Algorithm
from losac.algorithms.parts import parts
from losac.algorithms.privacy import Gaussian
from losac.simulation.engines.resident import ResidentEngine, precision
from losac.simulation.options import SimulationOptions
from losac.simulation.program.setup import check_algorithm
from losac.simulation.program.uploads import round_uploads
from losac.simulation.sampling import draw_clients, make_sampler
from losac.task import Task
from losac.trees import squared_norm

Adversary = Literal["server", "outside"]

LARGEST = 1e4
"""The largest noise multiplier in the search."""


class Releases(NamedTuple):
    """What an adversary sees of one client, as Gaussian mechanisms: their number, and the noise multiplier of each.

    In each round ``sampled`` of them apply to the same uniform sample, and are hidden in it; the rest are ``plain``.
    """

    multiplier: float
    plain: int
    sampled: int
    rounds: int


def epsilon(
    algorithm: Algorithm,
    *,
    rounds: int,
    clients: int,
    clients_per_round: int | None = None,
    adversary: Adversary = "server",
    delta: float = 1e-5,
    participations: int | None = None,
    fewest: int | None = None,
) -> float:
    """Return ε of the (ε, δ)-differential privacy of every client.

    Args:
      algorithm: the method, with :class:`losac.algorithms.gaussian` among the transforms of its uploads.
      rounds: the number of rounds, including those that were tried and did not count.
      clients, clients_per_round: N and S; by default S = N.
      adversary: ``"server"`` or ``"outside"``; see above.
      delta: δ.
      participations: the largest number of rounds that a client takes part in; all by default. With this number the
        sample is not assumed secret, so you can count it after the run.
      fewest: the number of replies below which a round does not count; 1 by default, as in a federation's rules. In the
        simulator all answer: give S.

    >>> import losac
    >>> method = losac.algorithms.fedavg(0.1, uploads=(losac.algorithms.gaussian(1.0, 1.0),))
    >>> round(epsilon(method, rounds=10, clients=1000, clients_per_round=50), 1)
    46.2
    >>> round(epsilon(method, rounds=10, clients=1000, clients_per_round=50, adversary="outside", fewest=50), 2)
    0.35
    """
    if not is_number(delta) or not 0 < delta < 1:
        raise ValueError(f"delta={shown(delta)} must be a number in (0, 1), far below 1/N")
    noise = gaussian_of(algorithm)
    if not float(noise.noise_multiplier) > 0:
        raise ValueError("noise_multiplier=0 only clips, which gives no differential privacy: no finite ε holds")
    sampled = clients if clients_per_round is None else clients_per_round
    seen = releases(
        algorithm, noise, rounds, clients, sampled, adversary, participations, 1 if fewest is None else fewest
    )
    return _epsilon(seen, clients, sampled, delta)


def noise_multiplier_for(algorithm: Algorithm, *, epsilon: float, **run: Any) -> float:
    """Return the smallest noise multiplier z, to four digits, with which a run is (ε, δ)-differentially private.

    Args:
      algorithm: as for :func:`epsilon`; its own noise multiplier is ignored.
      epsilon: ε.
      run: all other arguments of :func:`epsilon`.

    >>> import losac
    >>> method = losac.algorithms.scaffold(0.1, uploads=(losac.algorithms.gaussian(1.0, noise_at="server"),))
    >>> round(noise_multiplier_for(method, epsilon=8.0, rounds=100, clients=20, adversary="outside"), 2)
    12.0
    """
    check_number("epsilon", epsilon, POSITIVE)

    def enough(z: float) -> bool:
        return _with_multiplier(algorithm, z, run) <= epsilon

    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if high > LARGEST:
            raise ValueError(f"epsilon={epsilon} is out of reach: even noise_multiplier={LARGEST:g} is not enough")
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def typical_norms(
    task: Task, algorithm: Algorithm, *, rounds: int = 5, clients_per_round: int | None = None, seed: int = 0
) -> list[dict[str, float]]:
    """Return the median norm of every part of the clients' uploads, phase by phase, for choosing ``clip``.

    The algorithm is simulated for some rounds without the transforms of its uploads. A median of private data is not
    private: measure it on public data of the same kind.

    Args:
      task: the problem.
      algorithm: the method.
      rounds, clients_per_round, seed: as for :func:`losac.simulate`.

    >>> import losac
    >>> data = losac.data.load("digits", clients=10, partition="sorted")
    >>> task = losac.classification(losac.models.softmax_regression(64, 10), data)
    >>> [list(phase) for phase in typical_norms(task, losac.algorithms.losac(1e-5, 2, 5), rounds=2)]
    [['x', 'phi']]
    """
    prepare_jax()
    check_algorithm(algorithm)
    seed = check_seed(seed)
    check_count("rounds", rounds)
    options = SimulationOptions.of(
        task, rounds=rounds, clients_per_round=clients_per_round, seed=seed, loss_every=rounds, gradients="formed"
    )
    n, sampled = task.data.num_clients, options.sampled
    sampler = make_sampler("uniform", n, sampled, algorithm.partial)
    seen: list[dict[str, list[np.ndarray]]] = [{} for _ in algorithm.phases()]
    with precision(options.dtype):
        engine = ResidentEngine(task, algorithm.replace(uploads=()), options)
        ids = draw_clients(sampler, seed, 0, rounds, n, sampled)[0]
        for r, _ in enumerate(engine.run(sampler, range(rounds), True, lambda: None)):
            for found, uploads in zip(seen, round_uploads(engine.shape, engine.problem, engine.state, ids[r])):
                for name, part in parts(uploads).items():
                    found.setdefault(name, []).append(np.asarray(jax.vmap(squared_norm)(part)) ** 0.5)
    return [{name: float(np.median(norms)) for name, norms in found.items()} for found in seen]


def gaussian_of(algorithm: Algorithm) -> Gaussian:
    """Return the Gaussian mechanism among the transforms of an algorithm's uploads; there must be exactly one."""
    check_algorithm(algorithm)
    found = [transform for transform in algorithm.transforms() if isinstance(transform, Gaussian)]
    if len(found) != 1:
        raise ValueError(
            f"{algorithm.label} has {len(found)} gaussian transforms among its uploads', and one is counted: use "
            "uploads=(losac.algorithms.gaussian(clip, noise_multiplier), …)"
        )
    return found[0]


def keeps_state(algorithm: Algorithm) -> bool:
    """Whether a client's upload depends on its earlier rounds.

    >>> import losac
    >>> keeps_state(losac.algorithms.losac(0.1)), keeps_state(losac.algorithms.mime_svrg(0.1))
    (True, False)
    """
    state = jax.tree.leaves(algorithm.at(0).init_client(np.zeros(1)))
    return bool(algorithm.table or state or any(transform.feeds_back for transform in algorithm.transforms()))


def releases(
    algorithm: Algorithm, noise: Gaussian, rounds: int, clients: int, sampled: int, adversary: Adversary,
    participations: int | None, fewest: int,
) -> Releases:  # fmt: skip
    """Return what an adversary sees of one client."""
    _check_counts(rounds, clients, sampled, participations, fewest)
    z, own = float(noise.noise_multiplier), rounds if participations is None else participations
    everybody = sum(phase.clients == "all" for phase in algorithm.phases())
    some = len(algorithm.phases()) - everybody
    if adversary not in get_args(Adversary):
        raise ValueError(f"adversary={adversary!r} must be 'server' or 'outside'")
    if adversary == "server":
        if noise.on_the_sum:
            raise ValueError(
                "noise_at='server' is added after the server has seen every upload: it does not protect from the "
                "server; use noise_at='client', or adversary='outside'"
            )
        return Releases(z / 2, some * own + everybody * rounds, 0, rounds)
    if getattr(algorithm, "weighting", "loss") == "average":
        raise ValueError(
            f"{algorithm.label} weighs the uploads in their sum, and a client's share of it may exceed its bound: use "
            "weighting='loss'"
        )
    stateful = keeps_state(algorithm) or algorithm.server_rows
    multiplier = z / 2 if noise.on_the_sum or stateful else z * math.sqrt(fewest) / 2
    if stateful or participations is not None or sampled == clients:
        return Releases(multiplier, some * own + everybody * rounds, 0, rounds)
    return Releases(multiplier, everybody * rounds, some, rounds)


def _epsilon(seen: Releases, clients: int, sampled: int, delta: float) -> float:
    """Return ε, the smaller one of composition alone and amplification by sampling."""
    accounting = _dp_accounting()
    count = seen.plain + seen.sampled * seen.rounds
    if count == 0:
        return 0.0
    with np.errstate(divide="ignore"):  # its search may begin where δ is too small for floating-point numbers
        found = float(accounting.get_epsilon_gaussian(seen.multiplier / math.sqrt(count), delta))
    if seen.sampled == 0:
        return found
    event = accounting.GaussianDpEvent(seen.multiplier)
    in_a_round = accounting.SelfComposedDpEvent(event, seen.sampled)
    accountant = accounting.rdp.RdpAccountant(neighboring_relation=accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(accounting.SampledWithoutReplacementDpEvent(clients, sampled, in_a_round), seen.rounds)
    if seen.plain:
        accountant.compose(event, seen.plain)
    return min(found, float(accountant.get_epsilon(delta)))


def _with_multiplier(algorithm: Algorithm, z: float, run: dict[str, Any]) -> float:
    gaussian_of(algorithm)
    uploads = tuple(t.replace(noise_multiplier=z) if isinstance(t, Gaussian) else t for t in algorithm.uploads)
    return epsilon(algorithm.replace(uploads=uploads), **run)


def _check_counts(rounds: int, clients: int, sampled: int, participations: int | None, fewest: int) -> None:
    check_count("rounds", rounds)
    check_count("clients", clients)
    if not is_whole(sampled) or not 1 <= sampled <= clients:
        raise ValueError(f"clients_per_round={shown(sampled)} must lie between 1 and the number of clients, {clients}")
    if not is_whole(fewest) or not 1 <= fewest <= sampled:
        raise ValueError(f"fewest={shown(fewest)} must lie between 1 and clients_per_round={sampled}")
    if participations is not None and (not is_whole(participations) or not 0 <= participations <= rounds):
        raise ValueError(f"participations={shown(participations)} must lie between 0 and rounds={rounds}")


def _dp_accounting() -> Any:
    need("dp_accounting.rdp", "the privacy accountant", "privacy")
    return need("dp_accounting", "the privacy accountant", "privacy")
