"""``check_algorithm``: all laws, one after the other, on one algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from losac._checks import POSITIVE, check_choice, check_number
from losac._devices import prepare_jax
from losac.algorithms.contract import Algorithm
from losac.testing import contract, laws
from losac.testing.regimes import FULL, RANDOM_BLOCKS, REFUSED, REGIMES, STEPS, Make, Promise, Regime
from losac.testing.report import Finding, Report


def check_algorithm(
    algorithm: Algorithm | type[Algorithm] | Make,
    *,
    full: Promise | None = None,
    sampling: Promise | None = None,
    random_blocks: Promise | None = None,
    share: float = 0.1,
    raise_: bool = True,
    **settings: Any,
) -> Report:
    """Try your algorithm on the laws that every algorithm of this library keeps.

    First those of the contract, by calling its functions: settings are checked, and are complete; states
    keep their structure and dtype; functions are pure; the server needs only the sum of the uploads, unless it says
    otherwise; what uploads are credited is what clients hold. If these hold, those of runs: the seed decides;
    layouts, pieces and resumes change nothing; and on quadratics with ten clients that disagree, it ends
    where you promise.

    Args:
      algorithm: a class, made with the step size share/L for curvature L, 5 local steps and M blocks; an algorithm;
        these replace its step size and blocks; or a function ``(L, regime) -> algorithm`` if some
        setting must fit the curvature, or the number of clients sampled in the regime.
      full: the outcome with all clients and full gradients: ``"exact"`` (it reaches the optimum to 1e-9),
        ``"biased"`` (it stays 1e-3 away) or ``"refused"``. Without a promise it must end nearer than it began.
      sampling: the same with 3 of 10 clients sampled. Without a promise it is not tried; methods that need all clients
        must be refused.
      random_blocks: the same with 3 of 10 clients and one of 4 random blocks of their rows in each step.
      share: the local step in units of 1/L.
      raise_: whether broken laws raise AssertionError, which lists them with what was measured and what is allowed.
      settings: further ones of the algorithm.

    Returns:
      The report: print it, or look at its ``findings`` and ``failures``.

    >>> import losac
    >>> class Narrow(losac.algorithms.fedavg):
    ...     def update(self, here, x, received):
    ...         return [leaf.astype("float16") for leaf in received.total.values()]
    >>> report = check_algorithm(Narrow, full="biased", raise_=False)
    >>> report.failures[0].law
    'structure and dtype stay'
    """
    prepare_jax()
    for name, promise in (("full", full), ("sampling", sampling), ("random_blocks", random_blocks)):
        check_choice(name, promise, (None, *get_args(Promise)))
    check_number("share", share, POSITIVE)
    if not isinstance(algorithm, Algorithm) and not callable(algorithm):
        raise TypeError(f"algorithm must be an algorithm, its class or a function that makes one, not {algorithm!r}")
    make = maker(algorithm, share, settings)
    made, findings = _made(make, RANDOM_BLOCKS)
    if made is None:
        return _told(Report(str(algorithm), tuple(findings)), raise_)
    for law in contract.LAWS:
        findings += _guarded(law.__name__.replace("_", " "), law, made)
    if all(finding.passed for finding in findings):
        findings += _runs(make, made, (full, sampling, random_blocks))
    return _told(Report(str(made), tuple(findings)), raise_)


def maker(algorithm: Algorithm | type[Algorithm] | Make, share: float, settings: dict[str, Any]) -> Make:
    """Return how to make the algorithm for a curvature in a regime."""
    if isinstance(algorithm, type):
        cls: Any = algorithm
        return lambda curvature, regime: cls(share / curvature, STEPS, regime.blocks, **settings)
    if isinstance(algorithm, Algorithm):
        given = algorithm.replace(**settings)

        def fitted(curvature: float, regime: Regime) -> Algorithm:
            blocks = None if given.batch_size else regime.blocks
            return given.replace(step_size=share / curvature, blocks=blocks)

        return fitted
    if settings:
        raise TypeError(f"the function that makes the algorithm must set {', '.join(settings)} itself")
    return algorithm


def _runs(make: Make, made: Algorithm, promises: tuple[Promise | None, ...]) -> list[Finding]:
    """Return the findings of the laws of runs."""
    widest = laws.widest(made.partial)
    curvature = laws.problem().curvature
    findings = _guarded("the seed decides", laws.seed_decides, make(10.0, RANDOM_BLOCKS), widest.sampled)
    findings += _guarded("engine independence", laws.engine_independence, make(curvature, widest), widest)
    for regime, promise in zip(REGIMES, promises):
        expected: Promise | None = REFUSED if regime is not FULL and not made.partial and promise is None else promise
        if expected is not None or regime is FULL:
            findings += _guarded("fixed point", laws.fixed_point, make(curvature, regime), regime, expected)
    return findings


def _made(make: Make, regime: Regime) -> tuple[Algorithm | None, list[Finding]]:
    """Return the algorithm, or a finding that says why it cannot be made."""
    try:
        made = make(laws.problem().curvature, regime)
    except (TypeError, ValueError) as error:
        words = f"it cannot be made with (step_size, local_steps, blocks): {error}; give a function (L, regime) instead"
        return None, [Finding("settings are checked", "", False, words)]
    if not isinstance(made, Algorithm):
        raise TypeError(f"check_algorithm needs an algorithm, its class or a function that makes one, not {made!r}")
    return made, []


def _guarded(name: str, law: Callable[..., list[Finding]], *arguments: Any) -> list[Finding]:
    """Return a law's findings; an error of the algorithm is one."""
    try:
        return law(*arguments)
    except Exception as error:
        first = str(error).strip().splitlines() or [""]
        return [Finding(name, "", False, f"{type(error).__name__}: {first[0]}")]


def _told(report: Report, raise_: bool) -> Report:
    if raise_:
        report.raise_failures()
    return report
