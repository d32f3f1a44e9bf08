"""Numbers without the noise of their last bits; bytes and seconds in words."""

from __future__ import annotations

import math

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def tidy(value: float, digits: int = 12) -> float:
    """Return a number with this many digits, and so without what arithmetic has left in its last bits.

    >>> 0.7 + (0.7 - 0.5), tidy(0.7 + (0.7 - 0.5)), tidy(2 / 3, 2)
    (0.8999999999999999, 0.9, 0.67)
    """
    return float(f"{value:.{digits}g}")


def human_bytes(count: float) -> str:
    """Return a number of bytes in the unit that suits it, of 1,000 each.

    >>> human_bytes(640), human_bytes(53_210), human_bytes(2.5e9)
    ('640 B', '53.2 KB', '2.5 GB')
    """
    power = min(int(math.log10(count) / 3) if count >= 1 else 0, len(_UNITS) - 1)
    return f"{count / 1000**power:.3g} {_UNITS[power]}"


def human_seconds(seconds: float) -> str:
    """Return a time in words.

    >>> human_seconds(8.4), human_seconds(200), human_seconds(8000)
    ('8 s', '3 min 20 s', '2 h 13 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
