"""Seeds as they are given on the command line."""

from __future__ import annotations


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of a list such as ``0,1,2``.

    >>> parse_seeds("0,1,7")
    [0, 1, 7]
    """
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--seeds {text!r} must be whole numbers separated by commas, such as 0,1,2") from None
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"--seeds {text!r} names a seed twice; give each once")
    return seeds
