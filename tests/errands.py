"""Jobs that cost nothing, for engines of all kinds; they travel by value."""

from __future__ import annotations

import os
import signal
import time
import warnings
from pathlib import Path

from losac.jobs import JobCall


def power(base: float, exponent: float, table: dict[str, float] | None = None) -> float:
    print(f"{base} to the {exponent}")
    warnings.warn("only a test", stacklevel=1)
    return base**exponent + (0.0 if table is None else table["more"])


def fail(word: str) -> None:
    raise LookupError(f"there is no {word}")


def die(folder: str, times: int) -> int:
    """Kill this process, as often as asked for; return how often it has begun."""
    path = Path(folder)
    (path / f"{time.time_ns()}").touch()
    begun = len(list(path.iterdir()))
    if begun <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return begun


def errands(folder: Path) -> list[JobCall]:
    """One job of every kind: two with shared arguments, one that fails, one that is lost once and one always."""
    table = {"more": 0.5}
    for name in ("once", "always"):
        (folder / name).mkdir(parents=True)
    return [
        JobCall("square", power, {"base": 3.0, "exponent": 2.0}, {"table": table}),
        JobCall("root", power, {"base": 9.0, "exponent": 0.5}, {"table": table}),
        JobCall("missing", fail, {"word": "key"}),
        JobCall("lost once", die, {"folder": str(folder / "once"), "times": 1}),
        JobCall("always lost", die, {"folder": str(folder / "always"), "times": 9}),
    ]


def check(outcomes, folder: Path) -> None:
    """What must be true of the outcomes on every engine."""
    found = {outcome.call.name: outcome for outcome in outcomes}
    assert len(outcomes) == len(found) == 5
    assert (found["square"].result, found["root"].result) == (9.5, 3.5)
    assert "3.0 to the 2.0" in found["square"].log
    assert "only a test" in found["square"].log
    assert "LookupError: there is no key" in str(found["missing"].error)
    assert "in fail" in found["missing"].error.trace
    assert found["lost once"].result == 2
    assert "lost twice" in str(found["always lost"].error)
    assert len(list((folder / "always").iterdir())) == 2
