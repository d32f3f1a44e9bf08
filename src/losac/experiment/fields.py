"""What an option declares besides its type: where it belongs, what it is for, and which values it may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PROBLEM, METHOD, SIMULATION = "Problem", "Algorithm", "Simulation"
"""The sections of an experiment's file, and the panels of a command's help."""


@dataclass(frozen=True)
class Option:
    """An option, as a mark in the type of a field or of a parameter: ``Annotated[int, Option(PROBLEM, "N.", min=1)]``.

    Args:
      section: of the file, and panel of the help.
      help: what it is for, in a line.
      name: on the command line, if it is not the field's.
      min: the least number.
      max: the largest number.
      choices: the values that it may have in a file; asked for when they are needed.
      pattern: of values that a file may have besides the choices, such as the names of what users wrote.
      default: its default in words; by default its value.
      metavar: the name of its value in the help.
      complete: offers values for the Tab key: a function of :mod:`losac.cli.completion` by its name, or another.
    """

    section: str
    help: str
    name: str | None = None
    min: float | None = None
    max: float | None = None
    choices: Callable[[], tuple[str, ...]] | None = None
    pattern: str | None = None
    default: str | None = None
    metavar: str | None = None
    complete: str | Callable[[str], list[tuple[str, str]]] | None = None
