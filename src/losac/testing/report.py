"""The result of checking the laws."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One law: where it was tried, whether it held, and the observation in words.

    ``measured`` and ``allowed`` are the numbers compared, if the law compares numbers.
    """

    law: str
    where: str
    passed: bool
    words: str
    measured: float | None = None
    allowed: float | None = None

    def __str__(self) -> str:
        verdict = "holds" if self.passed else "BROKEN"
        numbers = "" if self.measured is None else f" (measured {self.measured:.3g}, allowed {self.allowed:.3g})"
        where = f", {self.where}" if self.where else ""
        return f"{self.law}{where}: {verdict}: {self.words}{numbers}"


@dataclass(frozen=True)
class Report:
    """All findings on one algorithm."""

    algorithm: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether every law that was tried held."""
        return not self.failures

    @property
    def failures(self) -> tuple[Finding, ...]:
        """The findings of broken laws."""
        return tuple(finding for finding in self.findings if not finding.passed)

    def raise_failures(self) -> None:
        """Raise an AssertionError that lists the broken laws, if there are any."""
        if self.failures:
            broken = "\n".join(f"- {finding}" for finding in self.failures)
            raise AssertionError(
                f"{self.algorithm} breaks {len(self.failures)} of {len(self.findings)} laws:\n{broken}"
            )

    def __str__(self) -> str:
        return "\n".join([self.algorithm, *(f"- {finding}" for finding in self.findings)])
