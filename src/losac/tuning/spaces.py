"""The grids to tune each algorithm over unless told otherwise: the same number of trials for all of them.

The step sizes are relative to a base step and √10 apart. The second axis is the setting that makes the method what it
is (its momentum, its α, its ρ), or the server step. A method with nothing but a step size has as many step sizes
instead, over the same range.
"""

from __future__ import annotations

from losac._settings import nearest

Values = tuple[float, ...]

TRIALS = 32
_STEPS = tuple(10 ** (k / 2) for k in range(-3, 5))
_MANY_STEPS = tuple(10 ** (k / 9) for k in range(-14, 18))

_SERVER_STEP: dict[str, Values] = {"server_step": (0.3, 1.0, 3.0, 10.0)}
_ADAPTIVE_SERVER_STEP: dict[str, Values] = {"server_step": (0.001, 0.01, 0.1, 1.0)}
_MOMENTUM: dict[str, Values] = {"momentum": (0.0, 0.5, 0.9, 0.99)}
_SHARE_OF_OWN_GRADIENT: dict[str, Values] = {"alpha": (0.03, 0.1, 0.3, 1.0)}
_CHANCE_TO_COMMUNICATE: dict[str, Values] = {"probability": (0.05, 0.1, 0.2, 0.4)}

SECOND_AXIS: dict[str, dict[str, Values]] = {
    "dsgd": {},
    "fedavg": _SERVER_STEP,
    "fedsaga": _SERVER_STEP,
    "losac": _SERVER_STEP,
    "scaffold": _SERVER_STEP,
    "mime_svrg": _SERVER_STEP,
    "mime": _MOMENTUM,
    "mime_lite": _MOMENTUM,
    "fedcm": _SHARE_OF_OWN_GRADIENT,
    "fedadmm": {"rho": (1.5, 5.0, 15.0, 50.0)},
    "fedprox": {"mu": (0.01, 0.1, 1.0, 10.0)},
    "mfl": _MOMENTUM,
    "fedadam": _ADAPTIVE_SERVER_STEP,
    "fedyogi": _ADAPTIVE_SERVER_STEP,
    "fedadagrad": {"server_step": (0.01, 0.1, 1.0, 10.0)},
    "fedavgm": _MOMENTUM,
    "fedpaq": _SERVER_STEP,
    "vrl_sgd": {},
    "feddyn": {"alpha": (0.1, 1.0, 10.0, 100.0)},
    "scaffnew": _CHANCE_TO_COMMUNICATE,
    "tamuna": _CHANCE_TO_COMMUNICATE,
    "fedavg_momentum": _SHARE_OF_OWN_GRADIENT,
    "scaffold_momentum": _SHARE_OF_OWN_GRADIENT,
    "fedvarp": _SERVER_STEP,
    "mifa": _SERVER_STEP,
    "fedlin": _SERVER_STEP,
    "local_svrg": {"refresh": (0.03, 0.1, 0.3, 1.0)},
    "feddualavg": _SERVER_STEP,
    "fedmid": _SERVER_STEP,
    "fedexp": {"epsilon": (1e-4, 1e-3, 1e-2, 1e-1)},
    "ghbm": _MOMENTUM,
}
"""What is tuned besides the step size. μ and α of FedProx and FedDyn are for losses that are sums over samples."""


def default_space(algorithm_name: str, step_size: float) -> dict[str, list[float]]:
    """Return the grid to tune an algorithm over: 32 points, whichever the algorithm.

    Args:
      algorithm_name: as in :data:`losac.algorithms.ALGORITHMS`.
      step_size: the base step; the grid goes from 1/30 of it to a hundred times as much.

    >>> space = default_space("scaffold", 1e-3)
    >>> [f"{step:.2g}" for step in space["step_size"]]
    ['3.2e-05', '0.0001', '0.00032', '0.001', '0.0032', '0.01', '0.032', '0.1']
    >>> space["server_step"]
    [0.3, 1.0, 3.0, 10.0]
    >>> {name: len(values) for name, values in default_space("dsgd", 1e-3).items()}
    {'step_size': 32}
    """
    if algorithm_name not in SECOND_AXIS:
        known = list(SECOND_AXIS)
        hint = nearest(algorithm_name, known)
        raise ValueError(f"no default space for {algorithm_name!r}{hint}; there is one for {', '.join(known)}")
    if not step_size > 0:
        raise ValueError(f"step_size={step_size!r} must be a positive number, around which the grid is laid")
    second = SECOND_AXIS[algorithm_name]
    steps = [step_size * factor for factor in (_STEPS if second else _MANY_STEPS)]
    return {"step_size": steps, **{name: list(values) for name, values in second.items()}}
