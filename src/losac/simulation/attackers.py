r"""Clients that lie together, in simulations: they work like the others and then send something else.

They know the uploads of all honest clients of the round (μ and σ are their mean and standard deviation, entry by
entry), and their own records stay as if they had told the truth: what a lie adds to the server's sums stays there.

References: M. Fang et al., *Local model poisoning attacks to Byzantine-robust federated learning*, USENIX Security
2020; G. Baruch, M. Baruch, Y. Goldberg, *A little is enough*, NeurIPS 2019 (:class:`Alie`); C. Xie, O. Koyejo,
I. Gupta, *Fall of empires*, UAI 2019 (:class:`InnerProduct`); S. P. Karimireddy, L. He, M. Jaggi, *Byzantine-robust
learning on heterogeneous datasets via bucketing*, ICLR 2022 (:class:`Mimic`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from losac import _random
from losac._checks import is_whole, shown
from losac._settings import POSITIVE, Number, Settings, choice, number
from losac.algorithms.contract import Algorithm
from losac.algorithms.parts import as_rows, parts, replaced
from losac.trees import Array, Tree, map_trees


class Present(NamedTuple):
    """The clients of a round: their numbers, who of them lies, and who is there."""

    clients: Array
    lie: Array
    active: Array


class Seen(NamedTuple):
    """What liars see of one part of the uploads [n, d], and what they remember of the rounds before."""

    uploads: Array
    honest: Array
    lie: Array
    clients: Array
    key: Any
    memory: Any = ()

    def mean(self) -> Array:
        """Return μ."""
        return (self.honest @ self.uploads) / jnp.maximum(self.honest.sum(), 1)

    def deviation(self) -> Array:
        """Return σ, with n − 1 below."""
        squares = self.honest @ (self.uploads - self.mean()) ** 2
        return jnp.sqrt(squares / jnp.maximum(self.honest.sum() - 1, 1))


class Attackers(Settings):
    """Some clients, and the part of their uploads that they lie about.

    Args:
      liars: which clients lie: their numbers, or how many, drawn by ``seed``.
      about: ``"everything"``; ``"model"``, what moves the model only; or ``"record"``, what clients record in their
        control variates (Δφ, Δc), which stays in the server's sum.
      seed: chooses the liars where only their number is given.
    """

    liars: Any = choice()
    about: Literal["everything", "model", "record"] = choice(
        default="everything", choices=("everything", "model", "record"), kw_only=True
    )
    seed: int = choice(default=0, kw_only=True)

    def validate(self) -> None:
        """Liars are a number, or numbers of clients."""
        given = self.liars if isinstance(self.liars, tuple | list) else (self.liars,)
        if not all(is_whole(each) and each >= 0 for each in given):
            raise ValueError(f"{self.label}: liars={shown(self.liars)} must be how many clients lie, or their numbers")

    def names(self, clients: int) -> tuple[int, ...]:
        """Return the numbers of those who lie."""
        if isinstance(self.liars, tuple | list):
            found = tuple(int(each) for each in self.liars)
        elif self.liars <= clients:
            drawn = _random.liars_generator(self.seed).permutation(clients)[: self.liars]
            found = tuple(sorted(drawn.tolist()))
        else:
            found = (clients,)
        if any(each >= clients for each in found):
            raise ValueError(f"{self.label}: liars={shown(self.liars)}, and there are only {clients} clients")
        return found

    def are(self, client: Any, clients: int) -> Any:
        """Whether clients lie."""
        return jnp.isin(jnp.asarray(client), np.asarray(self.names(clients), np.int32))

    def labels(self, y: Array, lies: Any) -> Array:
        """Return the labels that a client trains on."""
        return y

    def start(self, upload: Tree, clients: int) -> Tree:
        """Return what liars remember before the first round; ``upload`` has the shapes of what a client sends."""
        return ()

    def learn(self, memory: Tree, key: Any, uploads: Tree, present: Present) -> Tree:
        """Return what liars remember once they have seen a round; it also decides about this round's lies."""
        return memory

    def corrupt(self, key: Any, uploads: Tree, present: Present, recorded: Sequence[str], memory: Tree = ()) -> Tree:
        """Return uploads led by the clients of a round with those of the liars replaced.

        Args:
          key: of what they draw.
          uploads: as all made them.
          present: the clients of the round.
          recorded: the parts that clients record.
          memory: of the liars, after they have seen these uploads.
        """
        changed = {}
        for index, (name, part) in enumerate(parts(uploads).items()):
            if self.about != "everything" and (self.about == "record") != (name in recorded):
                continue
            rows, back = as_rows(part)
            seen = look(rows, key, index, present, memory[name] if memory else ())
            changed[name] = back(jnp.where(present.lie[:, None], self.lie(seen), rows))
        return replaced(uploads, changed)

    def lie(self, seen: Seen) -> Array:
        """Return what liars send: one row for all, or a row for each client."""
        raise NotImplementedError

    def check(self, algorithm: Algorithm, clients: int) -> None:
        """Refuse what cannot be: liars that are not there, or lies about a record that nobody keeps."""
        self.names(clients)
        keeps = type(algorithm).record is not Algorithm.record
        if self.about == "record" and not keeps:
            raise ValueError(
                f"{algorithm.label}: its clients record nothing of what they send, so attackers cannot lie about="
                "'record'; LoSAC's and SCAFFOLD's do"
            )
        if self.about == "model" and keeps and not algorithm.recorded:
            raise ValueError(
                f"{algorithm.label}: its clients record all that they send, so attackers cannot lie about='model' "
                "alone; use about='everything'"
            )


class SignFlip(Attackers):
    """Liars send −c times what they should: with one liar among n and c > n − 1 the mean turns around."""

    scale: Number = number(default=1.0, domain=POSITIVE)

    def lie(self, seen: Seen) -> Array:
        """Turn the own upload around."""
        return -self.scale * seen.uploads


class Scaled(Attackers):
    """Liars send c times what they should; c = n replaces the model by the liar's."""

    scale: Number = number(default=10.0, domain=POSITIVE)

    def lie(self, seen: Seen) -> Array:
        """Stretch the own upload."""
        return self.scale * seen.uploads


class Noise(Attackers):
    """Liars send Gaussian noise, s times as large as the honest uploads are in the root mean square."""

    scale: Number = number(default=10.0, domain=POSITIVE)

    def lie(self, seen: Seen) -> Array:
        """Draw a row for each."""
        size = jnp.sqrt((seen.honest @ seen.uploads**2).mean() / jnp.maximum(seen.honest.sum(), 1))
        return self.scale * size * _random.lies(seen.key, seen.uploads.shape, seen.uploads.dtype)


class LabelFlip(Attackers):
    """Liars train honestly on wrong labels: y becomes C − 1 − y."""

    def labels(self, y: Array, lies: Any) -> Array:
        """Turn the labels around."""
        if not jnp.issubdtype(y.dtype, jnp.integer):
            raise ValueError("label_flip: it turns labels around, and these targets are no whole numbers")
        return jnp.where(lies, y.max() - y, y)

    def corrupt(self, key: Any, uploads: Tree, present: Present, recorded: Sequence[str], memory: Tree = ()) -> Tree:
        """Send what the wrong labels give."""
        return uploads


class Alie(Attackers):
    r"""A little is enough: liars send μ − zσ, which hides within the spread of the honest uploads.

    Args:
      z: by default as far as a majority of the honest ones can still be on the liars' side:
        :math:`\Phi^{-1}((n - f - s)/(n - f))` with :math:`s = \lfloor n/2 + 1\rfloor - f`.
    """

    z: Number = number(default=None)

    def lie(self, seen: Seen) -> Array:
        """Return μ − zσ."""
        return seen.mean() - self.shift(seen.honest.sum() + seen.lie.sum(), seen.lie.sum()) * seen.deviation()

    def shift(self, n: Any, f: Any) -> Any:
        """Return z.

        >>> round(float(alie(0).shift(25, 5)), 4), round(float(alie(0).shift(50, 12)), 4)
        (0.2533, 0.336)
        """
        if self.z is not None:
            return self.z
        honest = jnp.maximum(jnp.asarray(n - f, float), 1.0)
        share = (honest - (jnp.floor(jnp.asarray(n, float) / 2 + 1) - f)) / honest
        return jax.scipy.special.ndtri(jnp.clip(share, 0.5, 0.999))


class InnerProduct(Attackers):
    """Inner-product manipulation: liars send −εμ; the mean turns around where ε > (n − f)/f."""

    epsilon: Number = number(default=0.5, domain=POSITIVE)

    def lie(self, seen: Seen) -> Array:
        """Return −εμ."""
        return -self.epsilon * seen.mean()


class Observed(NamedTuple):
    """What mimics remember of a part: how many rounds, the mean m, the direction z, and each client's place on it."""

    rounds: Array
    mean: Array
    along: Array
    places: Array


class Mimic(Attackers):
    r"""Liars all copy one honest client, whose kind of data then counts more than it should.

    During the warm-up they learn the direction z along which honest uploads differ most: with m the running mean of μ
    and :math:`u = \sum_i (v_i - m) ⟨v_i - m, z⟩` over the honest clients, z becomes the unit vector along
    :math:`t z + u / \lVert u \rVert` in round t. They copy the client that is farthest along it. After the warm-up the
    order of the clients is frozen, as they were seen last: liars copy the same client in every round, and where it is
    absent the next in that order.

    Args:
      warm_up: the number of rounds before the order is frozen.
    """

    warm_up: int = choice(default=20, kw_only=True)

    def validate(self) -> None:
        """A warm-up takes at least a round."""
        super().validate()
        if not (is_whole(self.warm_up) and self.warm_up >= 1):
            raise ValueError(f"{self.label}: warm_up={shown(self.warm_up)} must be a number of rounds, at least 1")

    def start(self, upload: Tree, clients: int) -> Tree:
        """Nothing has been seen."""

        def blank(part: Tree) -> Observed:
            row = as_rows(map_trees(lambda a: a[None], part))[0][0]
            return Observed(jnp.zeros((), jnp.int32), 0 * row, 0 * row, jnp.full(clients, -jnp.inf, row.dtype))

        return {name: blank(part) for name, part in parts(upload).items()}

    def learn(self, memory: Tree, key: Any, uploads: Tree, present: Present) -> Tree:
        """Follow the direction until the warm-up is over."""
        found = {}
        for index, (name, part) in enumerate(parts(uploads).items()):
            old = memory[name]
            new = watch(look(as_rows(part)[0], key, index, present, old))
            found[name] = map_trees(lambda a, b, old=old: jnp.where(old.rounds < self.warm_up, a, b), new, old)
        return found

    def lie(self, seen: Seen) -> Array:
        """Return the upload of the honest client that comes first in the order."""
        place = seen.memory.places[seen.clients]
        lowest = jnp.finfo(place.dtype).min  # of a client that was never seen
        return seen.uploads[jnp.argmax(jnp.where(seen.honest > 0, jnp.maximum(place, lowest), -jnp.inf))]


def look(rows: Array, key: Any, index: int, present: Present, memory: Any) -> Seen:
    """Return what liars see of a part of the uploads, given as rows."""
    honest = (present.active & ~present.lie).astype(rows.dtype)
    return Seen(rows, honest, present.lie, present.clients, _random.part_key(key, index), memory)


def watch(seen: Seen) -> Observed:
    """Return what mimics remember after a round of the warm-up."""
    old, t = seen.memory, seen.memory.rounds.astype(seen.uploads.dtype)
    mean = (t * old.mean + seen.mean()) / (t + 1)
    drawn = _random.lies(seen.key, mean.shape, mean.dtype)
    apart = (seen.uploads - mean) * seen.honest[:, None]
    pull = (apart @ jnp.where(t > 0, old.along, drawn)) @ apart
    along = unit(t * old.along + unit(pull))
    honest = jnp.where(seen.honest > 0, seen.clients, len(old.places))
    return Observed(old.rounds + 1, mean, along, old.places.at[honest].set(apart @ along, mode="drop"))


def unit(a: Array) -> Array:
    """Return a vector with length 1; zeros stay."""
    length = jnp.sqrt((a**2).sum())
    return a / jnp.where(length > 0, length, 1)


sign_flip, scaled, noise, label_flip = SignFlip, Scaled, Noise, LabelFlip
alie, inner_product, mimic = Alie, InnerProduct, Mimic


def check_attackers(value: Any) -> Attackers | None:
    """Return attackers; None where nobody lies."""
    if value is None or isinstance(value, Attackers):
        return None if value is not None and value.liars in (0, (), []) else value
    raise ValueError(
        f"attackers={shown(value)} must be some of losac.simulation.attackers, such as "
        "losac.simulation.attackers.sign_flip(1, scale=10.0)"
    )
