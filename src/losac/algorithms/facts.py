"""Facts about an algorithm besides its equations: suitable settings, and where it converges according to theory.

Each algorithm declares these facts in its own file. The laws, the pages, the tuner and the tables read them there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Promise = Literal["exact", "biased", "refused"]

EXACT: Promise = "exact"
BIASED: Promise = "biased"
REFUSED: Promise = "refused"

LOCAL_STEPS = 5
"""K of the examples."""


class Scale(NamedTuple):
    """The scale of a problem: its curvature L, N clients, S of them in a round, M blocks of a client's data."""

    curvature: float
    clients: int
    sampled: int
    blocks: int


OfScale = Callable[[Scale], Any]


@dataclass(frozen=True)
class Example:
    """Settings that suit an algorithm.

    Args:
      step_size: η in units of 1/L, or a function of the scale that returns η itself.
      local_steps: K; None leaves it to the algorithm.
      settings: further settings; those that depend on the problem are functions of its scale.
    """

    step_size: float | OfScale = 0.1
    local_steps: int | None = LOCAL_STEPS
    settings: Mapping[str, Any | OfScale] = field(default_factory=dict)

    def settings_at(self, scale: Scale) -> dict[str, Any]:
        """Return all settings for a problem.

        >>> Example(0.1, settings={"rho": curvature}).settings_at(Scale(2.0, clients=10, sampled=3, blocks=4))
        {'step_size': 0.05, 'local_steps': 5, 'blocks': 4, 'rho': 2.0}
        """
        step = self.step_size(scale) if callable(self.step_size) else self.step_size / scale.curvature
        others = {name: value(scale) if callable(value) else value for name, value in self.settings.items()}
        return {"step_size": step, "local_steps": self.local_steps, "blocks": scale.blocks, **others}


def curvature(scale: Scale) -> float:
    """Return L: the value of a setting that must match the curvature, such as ρ, α or μ of a loss that is a sum."""
    return scale.curvature


@dataclass(frozen=True)
class Theory:
    """Where an algorithm settles on strongly convex quadratics with different clients, at a constant step size.

    ``"exact"`` is the optimum, ``"biased"`` a point away from it; ``"refused"`` means that the algorithm cannot run.

    Args:
      full: with all clients and full local gradients.
      sampling: with sampled clients and full local gradients.
      random_blocks: with sampled clients and random blocks of their data.
      example: the settings for which this holds; the algorithm's own example if not given.
    """

    full: Promise
    sampling: Promise
    random_blocks: Promise
    example: Example | None = None


Axis = Mapping[str, tuple[float, ...]]
"""The setting to tune besides the step size, with its values; may be empty."""


def axis(**values: tuple[float, ...]) -> Axis:
    """Return an axis, such as ``axis(rho=(1.5, 5.0))``; an empty one leaves nothing else to tune."""
    return values


SERVER_STEPS = axis(server_step=(0.3, 1.0, 3.0, 10.0))
ADAPTIVE_SERVER_STEPS = axis(server_step=(0.001, 0.01, 0.1, 1.0))
MOMENTA = axis(momentum=(0.0, 0.5, 0.9, 0.99))
OWN_SHARES = axis(alpha=(0.03, 0.1, 0.3, 1.0))
"""The share of a client's own gradient in its local steps."""
PROBABILITIES = axis(probability=(0.05, 0.1, 0.2, 0.4))
"""The probability of communicating after a local step."""
