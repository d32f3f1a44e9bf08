"""What the fields of an options class declare besides their types."""

from __future__ import annotations

from typing import Any


def about(
    help: str, *, recorded: bool = False, min: float | None = None, max: float | None = None, **text: str
) -> dict[str, Any]:
    """Return an option's metadata.

    Args:
      help: its purpose, in a line.
      recorded: whether it is recorded among the conditions of a run; options that decide its numbers are.
      min, max: the least and the largest number that the command line takes.
      text: what else the command line needs to know: ``default`` in words, and ``complete``, the function of
        :mod:`losac.cli.completion` that offers values.
    """
    limits = {name: value for name, value in (("min", min), ("max", max)) if value is not None}
    return {"help": help, "recorded": recorded, "shown": {**limits, **text}}
