"""Options of commands that are not part of an experiment, each defined once.

A dataclass of such fields is a group of options, which a command takes as one parameter: see :mod:`losac.cli.group`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from losac._seeds import check_seed
from losac.experiment.fields import PROBLEM, SIMULATION, Option

OUTPUT = "Output"


def seeds_option(panel: str) -> Option:
    """Return the option of a command over several seeds; ``--seed N`` is another way to write a list of one."""
    return Option(panel, "Seeds, separated by commas; one is enough.", "--seeds --seed", metavar="LIST")


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
    return [check_seed(seed, "--seeds") for seed in seeds]


Seeds = Annotated[str, seeds_option(SIMULATION)]
Config = Annotated[
    Path | None,
    Option(
        PROBLEM,
        "Experiment file of losac init: problem, simulation and, for a comparison, the step size, local "
        "steps and blocks of all; options given here win.",
    ),
]
Resume = Annotated[
    bool, Option(OUTPUT, "Continue what is in --out and has not ended; with --rounds, make a run longer.", "--resume")
]
Estimate = Annotated[
    bool, Option(OUTPUT, "Only say how long it will take, from the first rounds, and stop.", "--estimate")
]
Out = Annotated[Path | None, Option(OUTPUT, "Folder to save the results in.", default="only print them")]
Overwrite = Annotated[bool, Option(OUTPUT, "Replace the results in --out.", "--overwrite")]
Json = Annotated[bool, Option(OUTPUT, "Print JSON and nothing else.", "--json")]
Quiet = Annotated[bool, Option(OUTPUT, "Print the paths of the results only.", "--quiet -q")]


@dataclass(frozen=True)
class Printing:
    """What a command prints on stdout: text for people, JSON, or as little as there is."""

    json: Json = False
    quiet: Quiet = False

    @property
    def verbose(self) -> bool:
        """Whether progress is shown on stderr."""
        return not (self.json or self.quiet)


@dataclass(frozen=True)
class Saving:
    """Where a command saves its results."""

    out: Out = None
    overwrite: Overwrite = False


@dataclass(frozen=True)
class Resuming(Saving):
    """Where a command saves its results, and whether it continues what is there."""

    resume: Resume = False
