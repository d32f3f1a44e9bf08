r"""What noise is worth: the (ε, δ) of a run whose uploads pass through :class:`losac.algorithms.gaussian`.

What is protected is a *client*: the guarantee compares two federations that differ in all of the data of one client
(replaced, not removed: N, and who was asked when, are public). There are two adversaries.

``"server"``: sees every single upload. Each is a Gaussian mechanism: a part divided by C_k√K, the upload has a norm of
at most 1, replacing the data moves it by at most 2, and the noise has the standard deviation z: a multiplier of z/2. A
client's state is a function of its data and of what it sent (which the adversary has seen), so that uploads compose,
whatever the algorithm keeps. Every upload counts, those of all phases and those of rounds that did not count in the
end. Sampling does not help: the server knows whom it asked. Noise at the server is no protection from it.

``"outside"``: sees what the server sends, in all rounds, and no single upload; also the server itself under secure
aggregation with noise at the clients. It is neither a client nor in league with one.

- Noise at the server: the sum has one noise of multiplier z/2. Every client's part of it is a function of its data and
  of what all have seen, so that rounds compose for methods with and without client state.
- Noise at the clients, no client state: the noises of the S replies add up, to z√S/2. Count the *fewest* replies.
- Noise at the clients, with client state (LoSAC, SCAFFOLD, FedDyn, error feedback, …): each state remembers the
  client's own noise, which the adversary has not seen, and which comes back in later uploads. The noises of several
  rounds are then not independent given what was seen, and the sum over S is not proven to help: z/2 is counted, what
  the client's own noise is worth alone.
- Sampling: where clients keep no state, a uniform sample without replacement amplifies the privacy (Wang, Balle,
  Kasiviswanathan 2019, for replaced records), if the adversary does not know it: the run's seed, from which it follows,
  must be random and secret. With state a contribution depends on earlier, hidden samples, and the
  theorem does not apply as it stands: rounds in which a client took part are composed without amplification. Phases
  that ask all clients are not amplified either. In a federation absent clients are replaced by present ones: count as
  clients the fewest that were ever there. A round that is tried again asks the same sample: for methods of two phases
  tried rounds are not amplified.

Phases of one round that ask the same sample are composed inside it.

Composition is exact: R Gaussian mechanisms of multiplier m are one of m/√R (J. Dong, A. Roth, W. J. Su, *Gaussian
differential privacy*, 2022), whose ε(δ) is that of B. Balle, Y.-X. Wang (ICML 2018). Amplified rounds are composed by
Rényi divergences, an upper bound. Both are computed by Google's dp-accounting: ``pip install 'losac[privacy]'``.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from losac._devices import prepare_jax
from losac._extras import need
from losac.algorithms.contract import Algorithm
from losac.algorithms.privacy import Gaussian, parts
from losac.history.simulate import make_plan
from losac.simulation.engine import Engine, precision
from losac.simulation.sampling import draw_clients, make_sampler
from losac.simulation.uploads import round_uploads
from losac.task import Task
from losac.trees import squared_norm

Adversary = Literal["server", "outside"]

LARGEST = 1e4
"""The largest noise multiplier that is looked for."""


class Releases(NamedTuple):
    """What an adversary sees of one client, in Gaussian mechanisms: so many in all, each of so many noise multipliers.

    ``sampled`` of them happen in each round to the same uniform sample, and are hidden in it; the rest are ``plain``.
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
      algorithm: with a :class:`losac.algorithms.gaussian` among its uploads' transforms.
      rounds: how many, tried ones that did not count included.
      clients, clients_per_round: N and S; by default S = N.
      adversary: ``"server"`` or ``"outside"``; see above.
      delta: δ.
      participations: in how many rounds a client takes part at most; all of them by default. Who is asked is no secret
        for those that use this number, so that it may be counted after the run.
      fewest: replies below which a round does not count; 1 by default, as in a federation's rules; S in the simulator,
        where all answer.

    >>> import losac
    >>> method = losac.algorithms.fedavg(0.1, uploads=(losac.algorithms.gaussian(1.0, 1.0),))
    >>> round(epsilon(method, rounds=10, clients=1000, clients_per_round=50), 1)
    46.2
    >>> round(epsilon(method, rounds=10, clients=1000, clients_per_round=50, adversary="outside", fewest=50), 2)
    0.35
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta} must be a number in (0, 1), far below 1/N")
    noise = gaussian_of(algorithm)
    if not float(noise.noise_multiplier) > 0:
        raise ValueError("noise_multiplier=0 only clips, which is no differential privacy: no ε bounds what is seen")
    sampled = clients if clients_per_round is None else clients_per_round
    seen = releases(
        algorithm, noise, rounds, clients, sampled, adversary, participations, 1 if fewest is None else fewest
    )
    return _epsilon(seen, clients, sampled, delta)


def noise_multiplier_for(algorithm: Algorithm, *, epsilon: float, **run: Any) -> float:
    """Return the smallest noise multiplier z, to four digits, with which a run is (ε, δ)-differentially private.

    Args:
      algorithm: as for :func:`epsilon`, whatever its noise multiplier.
      epsilon: ε.
      run: all else as for :func:`epsilon`.

    >>> import losac
    >>> method = losac.algorithms.scaffold(0.1, uploads=(losac.algorithms.gaussian(1.0, noise_at="server"),))
    >>> round(noise_multiplier_for(method, epsilon=8.0, rounds=100, clients=20, adversary="outside"), 2)
    12.0
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon={epsilon} must be a positive number")

    def enough(z: float) -> bool:
        return _with_multiplier(algorithm, z, run) <= epsilon

    low, high = 0.0, 1.0
    while not enough(high):
        low, high = high, 2 * high
        if high > LARGEST:
            raise ValueError(f"epsilon={epsilon} is out of reach: not even noise_multiplier={LARGEST:g} gives it")
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def typical_norms(
    task: Task, algorithm: Algorithm, *, rounds: int = 5, clients_per_round: int | None = None, seed: int = 0
) -> list[dict[str, float]]:
    """Return the median norm of every part of the clients' uploads, phase by phase, for choosing ``clip``.

    The algorithm is simulated without the transforms of its uploads, for so many rounds. A median of private data is
    not private itself: measure it on public data of the same kind.

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
    n = task.data.num_clients
    sampled = n if clients_per_round is None else clients_per_round
    sampler = make_sampler("uniform", n, sampled, algorithm.partial)
    plan = make_plan(task, sampled, "float32", None, None, rounds, gradients="formed")
    seen: list[dict[str, list[np.ndarray]]] = [{} for _ in algorithm.phases()]
    with precision(plan.dtype):
        engine = Engine(task, algorithm.replace(uploads=()), plan, seed)
        ids = draw_clients(sampler, seed, 0, rounds, n, sampled)[0]
        for r, _ in enumerate(engine.run(sampler, range(rounds), True, lambda: None)):
            for found, uploads in zip(seen, round_uploads(engine.shape, engine.problem, engine.state, ids[r])):
                for name, part in parts(uploads).items():
                    found.setdefault(name, []).append(np.asarray(jax.vmap(squared_norm)(part)) ** 0.5)
    return [{name: float(np.median(norms)) for name, norms in found.items()} for found in seen]


def gaussian_of(algorithm: Algorithm) -> Gaussian:
    """Return the Gaussian mechanism that an algorithm's uploads pass through; there must be exactly one."""
    found = [transform for transform in algorithm.transforms() if isinstance(transform, Gaussian)]
    if len(found) != 1:
        raise ValueError(
            f"{algorithm.label} has {len(found)} gaussian transforms among its uploads', and one is counted: use "
            "uploads=(losac.algorithms.gaussian(clip, noise_multiplier), …)"
        )
    return found[0]


def keeps_state(algorithm: Algorithm) -> bool:
    """Whether a client's upload depends on rounds in which it took part before.

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
    """Return ε, the smaller of what composition alone and what amplification by sampling give."""
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
    if rounds < 1:
        raise ValueError(f"rounds={rounds} must be at least 1")
    if not 1 <= sampled <= clients:
        raise ValueError(f"clients_per_round={sampled} must lie between 1 and the number of clients, {clients}")
    if not 1 <= fewest <= sampled:
        raise ValueError(f"fewest={fewest} must lie between 1 and clients_per_round={sampled}")
    if participations is not None and not 0 <= participations <= rounds:
        raise ValueError(f"participations={participations} must lie between 0 and rounds={rounds}")


def _dp_accounting() -> Any:
    need("dp_accounting.rdp", "the privacy accountant", "privacy")
    return need("dp_accounting", "the privacy accountant", "privacy")
