"""Seeds as they are given on the command line.

A command that makes one run takes ``--seed N``; one that makes several takes ``--seeds 0,1,2``, and ``--seed N`` as
another way to write a list of one.
"""

from __future__ import annotations

from typing import Any

import typer


def seeds_option(panel: str) -> Any:
    """Return the option of a command over several seeds."""
    return typer.Option(
        "--seeds", "--seed", help="Seeds, separated by commas; one is enough.", rich_help_panel=panel, metavar="LIST"
    )


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
    if min(seeds) < 0:
        raise ValueError(f"--seeds {text!r} has a seed below 0; give whole numbers from 0 on")
    return seeds
