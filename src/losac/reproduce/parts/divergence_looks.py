"""What the probe saw of one method at one place, averaged over the seeds, in the quantities that are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from losac.reproduce.study import Measured


class Key(NamedTuple):
    """Which data, dealt how, looked at when (a round, or ``"equal"`` loss), and whose."""

    data: str
    partition: str
    when: Any
    member: str


class Look(NamedTuple):
    """Means over the seeds; lists are over the local steps, ``cosine`` over the graded ones.

    ``scalar``, ``raw``, ``scaled`` and ``heading`` compare all directions with ∇f at the broadcast model, as
    :func:`losac.reproduce.probe.accuracy` has them (heading is the cosine); ``cosine`` is that with ∇f at the
    local model.
    """

    round: float
    loss: float
    scalar: list[float]
    raw: list[float]
    scaled: list[float]
    heading: list[float]
    cosine: list[float]
    spread: list[float]
    drift: list[float]
    bias: float

    @property
    def likeness(self) -> float:
        """The cosine between the directions and ∇f at the broadcast model, over the local steps."""
        return float(np.mean(self.heading))


def looks(measured: Sequence[Measured]) -> dict[Key, Look]:
    """Return what was seen, by data, partition, time and method; a method that did not come so far is left out."""
    found: dict[Key, list[Mapping[str, Any]]] = {}
    for one in measured:
        place = one.arguments["data"], one.arguments["partition"]
        for record in (record for run in one.result for record in run):
            if record["fixed"]:
                found.setdefault(Key(*place, record["round"], one.arguments["member"]), []).append(record)
            if record["reached"]:
                found.setdefault(Key(*place, "equal", one.arguments["member"]), []).append(record)
    return {key: look(records) for key, records in found.items() if all(_whole(record) for record in records)}


def _whole(record: Mapping[str, Any]) -> bool:
    values = [
        record["loss"],
        record["bias"],
        *record["inner"],
        *record["length"],
        *record["gradient"],
        *record["way"],
        *record["towards"],
    ]
    return all(value is not None for value in values) and all(value > 0 for value in record["way"])


def look(records: Sequence[Mapping[str, Any]]) -> Look:
    """Average the records of several seeds; the errors are those of their mean squares."""
    from losac.reproduce.probe import accuracy

    def mean(name: str) -> Any:
        return np.mean([record[name] for record in records], axis=0)

    slope = np.full(len(records[0]["towards"]), mean("slope"))
    everybody = accuracy({"inner": mean("towards"), "length": mean("square"), "gradient": slope})
    graded = accuracy({name: mean(name) for name in ("inner", "length", "gradient")})
    drift = np.mean([np.divide(record["spread"], record["way"]) for record in records], axis=0)
    return Look(
        float(mean("round")), float(mean("loss")), everybody["scalar"], everybody["raw"], everybody["scaled"],
        everybody["cosine"], graded["cosine"], mean("spread").tolist(), drift.tolist(), float(mean("bias")),
    )  # fmt: skip
