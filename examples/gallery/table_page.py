"""The page of examples/gallery/table.py: how methods are compared, and the results of the jobs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from losac_reproduction.methods import SAME, SAME_WORDS
from losac_reproduction.words import Interval, interval

Job = Mapping[str, Any]
"""The result of a job: data, algorithm, seed, settings, and the accuracy of every client it was judged on."""
LEVEL = 0.95
READING = {"fedsaga": " (1/S)"}
"""Which reading of a method's equation ran, where the paper prints another."""
HEAD = ("algorithm", "test accuracy", "behind the best by", "worst 10 %", "step sizes chosen", "second setting", "edge")

PAGE = """# All algorithms on people and recordings

Which algorithms differ measurably, with five seeds, on two small federations, each tuned on the same budget. For
readers who choose a method, or wonder whether a difference of two accuracies means anything.

## The rules

These rules were written before any of the numbers below; `python examples/gallery/table.py --jobs FOLDER --out
docs/gallery_table.md` applies them.

- **Problem.** A linear model, {rounds} rounds of five local steps on five blocks. A client of HAR is a person, with 90
  of their windows; a client of ESR is a recording. ESR's rows are prepared as in [the reproduction](reproduction.md),
  and the model sees the logarithm of their spectrum.
- **Seeds.** Each of the seeds {seeds} splits the clients again: six in ten are for training, two in ten for choosing
  the settings, two in ten for judging. No client is in two of the three parts, and those for judging choose nothing.
- **Tuning.** Every method has the same budget for each seed: 32 points, eight step sizes a factor of √10 apart, around
  the same multiple of the inverse curvature, times four values of a second setting
  (`losac.tuning.default_space`), or 32 step sizes over the same range if there is no second setting. While the best
  point lies at an end of an axis, the axis grows by one value there, at most twice, for all methods alike. The best
  point has the highest mean accuracy on the clients that choose, over two runs with the seeds 100 and 101; between
  equal points the lower loss on these clients decides.
- **Judging.** One more run of that point, with the seed of the split, is judged by the mean accuracy of the clients for
  judging, with equal weights. A run that diverges is reported and not averaged.
- **Intervals.** mean ± half of the 95 % t-interval of the five values. It covers clients, tuning and training.
- **Ties.** The best method is the one with the highest mean. Another method is *behind* it if the t-interval of the
  paired differences, seed by seed, lies above zero. Because {others} methods are compared with the best at once, each
  interval has the level 1 − 0.05/{others} (Bonferroni). All others are *tied*: five seeds cannot distinguish them from
  the best, which does not mean that they are equal. Within a group the order is alphabetical.
- **Coinciding methods.** Without a regulariser
  {same};
  each counts once. FedSaga averages over the sampled clients (1/S); the 1/N of the paper's Algorithm 1 is its server
  step at S/N.

"Edge" counts the seeds with a chosen point at the end of an axis that could have grown further. Every job is a row of
[gallery_table.csv](gallery_table.csv).

"""


class Line(NamedTuple):
    """One method on one federation; no interval where a judged run diverged."""

    name: str
    jobs: tuple[Job, ...]
    accuracy: Interval | None
    behind: Interval | None
    tied: bool


def means(jobs: Sequence[Job]) -> list[float | None]:
    """Return the mean accuracy over the clients for each seed; None where the run diverged."""
    return [None if job["diverged"] is not None else float(np.mean(job["accuracy"])) for job in jobs]


def worst(job: Job) -> float | None:
    """Return the mean accuracy of the worst tenth of the clients."""
    ordered = np.sort(job["accuracy"])
    return None if job["diverged"] is not None else float(ordered[: math.ceil(0.1 * len(ordered))].mean())


def counted(jobs: Sequence[Job]) -> list[str]:
    """Return the names of the methods, without those that coincide with another of them."""
    names = {job["algorithm"] for job in jobs}
    return sorted(name for name in names if SAME.get(name) not in names)


def compared(jobs: Sequence[Job]) -> list[Line]:
    """Compare the methods on one federation by the page's rule; first the ties, then the others, by name."""
    found: dict[str, tuple[Job, ...]] = {}
    for name in counted(jobs):
        found[name] = tuple(sorted((job for job in jobs if job["algorithm"] == name), key=lambda job: job["seed"]))
    values = {name: means(mine) for name, mine in found.items()}
    intervals = {name: interval(mine, LEVEL) for name, mine in values.items()}
    whole = {name: one.mean for name, one in intervals.items() if one is not None}
    best = max(whole, key=lambda name: whole[name]) if whole else None
    lines = []
    for name, mine in found.items():
        behind = None
        if best is not None and name in whole:
            pairs = [(a, b) for a, b in zip(values[best], values[name]) if a is not None and b is not None]
            behind = interval([a - b for a, b in pairs], 1 - (1 - LEVEL) / max(1, len(found) - 1))
        tied = behind is not None and behind.mean - behind.half <= 0
        lines.append(Line(name, mine, intervals[name], behind, tied))
    return sorted(lines, key=lambda line: (not line.tied, line.name))


def table(lines: Sequence[Line]) -> str:
    """Return the lines as a table."""
    rows = [
        list(HEAD),
        ["---"] * len(HEAD),
        *([f"`{line.name}`{READING.get(line.name, '')}", *_cells(line)] for line in lines),
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cells(line: Line) -> list[str]:
    lost = sum(job["diverged"] is not None for job in line.jobs)
    accuracy = f"{lost} of {len(line.jobs)} diverged" if line.accuracy is None else line.accuracy.shown("{:.3f}")
    least = interval([worst(job) for job in line.jobs], LEVEL)
    steps = [job["settings"]["step_size"] for job in line.jobs]
    second = [(axis, job["settings"][axis]) for job in line.jobs for axis in job["settings"] if axis != "step_size"]
    edges = sum(bool(job["edge"]) for job in line.jobs)
    return [
        accuracy,
        "–" if line.behind is None else line.behind.shown("{:.3f}"),
        "–" if least is None else least.shown("{:.3f}"),
        _range(steps),
        f"{second[0][0]} {_range([value for _, value in second])}" if second else "–",
        f"{edges} of {len(line.jobs)}" if edges else "",
    ]


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low} to {high}"


def section(title: str, caption: str, lines: Sequence[Line]) -> str:
    """Return what is found on one federation: the methods tied with the best, then those behind it."""
    tied, behind = ([line for line in lines if line.tied is wanted] for wanted in (True, False))
    parts = [f"## {title}", caption, f"### Tied with the best: {len(tied)} of {len(lines)}", table(tied)]
    if behind:
        diverged = " or diverged" if any(line.accuracy is None for line in behind) else ""
        parts += [f"### Behind the best{diverged}: {len(behind)} of {len(lines)}", table(behind)]
    return "\n\n".join(parts)


def page(jobs: Sequence[Job], captions: Mapping[str, str], titles: Mapping[str, str]) -> str:
    """Return the page of all jobs."""
    told = ", ".join(map(str, sorted({job["seed"] for job in jobs})))
    others = max(1, len(counted(jobs)) - 1)
    head = PAGE.format(rounds=jobs[0]["rounds"], seeds=told, others=others, same=SAME_WORDS)
    sections = [
        section(title, captions[data], compared([job for job in jobs if job["data"] == data]))
        for data, title in titles.items()
    ]
    return head + "\n\n".join(sections) + "\n"


def rows_of_all(jobs: Sequence[Job]) -> Any:
    """Return a pandas DataFrame: one row per job."""
    import pandas as pd

    return pd.DataFrame(
        {
            **{key: job[key] for key in ("data", "algorithm", "seed", "rounds")},
            "step_size": job["settings"]["step_size"],
            "second_setting": ", ".join(f"{k}={v:g}" for k, v in job["settings"].items() if k != "step_size"),
            "trials": job["trials"],
            "at_the_edge": " ".join(job["edge"]),
            "validation_accuracy": round(job["validation"], 6),
            "test_accuracy": round(float(np.mean(job["accuracy"])), 6),
            "worst_tenth": round(worst(job) or math.nan, 6),
            "diverged": job["diverged"],
        }
        for job in jobs
    )
