"""What the tuned comparison found: rankings with confidence intervals, and who wins where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.reproduce.looks import look_of, plain_log
from losac.reproduce.names import NAMES
from losac.reproduce.study import Claim, Figure, Findings, Measured, Options, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

OURS = ("losac", "losac_exact", "losac_rule")
PAPERS = ("scaffold", "fedavg", "fedsaga", "mime_svrg", "fedcm", "fedadmm")


class Interval(NamedTuple):
    """A mean over the seeds with the half width of its 95 % confidence interval."""

    mean: float
    half: float

    def shown(self, form: str = "{:.3g}", scale: float = 1) -> str:
        """Return it as text."""
        return f"{form.format(self.mean * scale)} ± {form.format(self.half * scale)}"


class Line(NamedTuple):
    """One method in one setting; None where a seed never got there."""

    method: str
    result: Mapping[str, Any]
    rounds: Interval | None
    bytes: Interval | None
    gradients: Interval | None
    accuracy: Interval | None
    loss: Interval | None


Setting = tuple[str, str]


def interval(values: Sequence[float | None]) -> Interval | None:
    """Return the interval of some values, by Student's t; None where one is missing.

    >>> interval([1.0, 2.0, 3.0]).shown("{:.2f}"), interval([1.0, None])
    ('2.00 ± 2.48', None)
    """
    from scipy.stats import t  # type: ignore[import-untyped, unused-ignore]

    known = np.array([value for value in values if value is not None], float)
    if not len(known) or len(known) < len(values):
        return None
    if len(known) == 1:
        return Interval(float(known[0]), 0.0)
    return Interval(float(known.mean()), float(t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / len(known) ** 0.5))


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Rank the methods in every setting, and say who wins where."""
    settings: dict[Setting, list[Line]] = {}
    for one in measured:
        where = one.arguments["data"], one.arguments["partition"]
        settings.setdefault(where, []).append(_line(one.arguments["method"], one.result))
    tables = [_winners(settings), *(_table(where, lines) for where, lines in settings.items())]
    figures = [
        Figure("fair-rounds", "Rounds until the test accuracy first reaches the target, every method tuned, the best "
               "at the top. Points: mean; bars: 95 % confidence interval over the seeds; blue: LoSAC. Methods of "
               "which a seed did not reach the target are named below the panel.",
               lambda: _draw(settings, lambda line: line.rounds, "rounds to the target", log=True)),
        Figure("fair-accuracy", "Test accuracy after the last round, every method tuned, the best at the top. Points: "
               "mean; bars: 95 % confidence interval over the seeds; blue: LoSAC. An arrow stands for a mean too low "
               "for the axis.",
               lambda: _draw(settings, lambda line: line.accuracy, "test accuracy", log=False)),
    ]  # fmt: skip
    return Findings(_summary(settings, measured), _claims(settings), tables, figures)


def _line(method: str, result: Mapping[str, Any]) -> Line:
    runs = result.get("runs", [])
    reached = [next(iter(run["reached"].values())) for run in runs]

    def to_target(name: str) -> Interval | None:
        return interval([None if one is None else one[name] for one in reached])

    return Line(
        method,
        result,
        to_target("round"),
        to_target("bytes"),
        to_target("gradients"),
        interval([run["final"]["accuracy"] for run in runs]),
        interval([run["final"]["test_loss"] for run in runs]),
    )


def _sorted(lines: Sequence[Line], value: Callable[[Line], Interval | None], sign: int = 1) -> list[Line]:
    """Return the lines in order, the best first; those without a value last, by accuracy."""

    def key(line: Line) -> tuple[int, float]:
        found = value(line)
        if found is not None:
            return 0, sign * found.mean
        return (1, -line.accuracy.mean) if line.accuracy is not None else (2, 0.0)

    return sorted(lines, key=key)


def _tied(lines: Sequence[Line], value: Callable[[Line], Interval | None]) -> list[Line]:
    """Return, of sorted lines, the best and those whose difference from it lies within both intervals."""
    best = value(lines[0]) if lines else None
    if best is None:
        return []
    near = []
    for line in lines:
        mine = value(line)
        if mine is not None and abs(mine.mean - best.mean) <= np.hypot(mine.half, best.half):
            near.append(line)
    return near


_CRITERIA: dict[str, tuple[Callable[[Line], Interval | None], int]] = {
    "rounds to target": (lambda line: line.rounds, 1),
    "bytes to target": (lambda line: line.bytes, 1),
    "gradients to target": (lambda line: line.gradients, 1),
    "accuracy": (lambda line: line.accuracy, -1),
    "test loss": (lambda line: line.loss, 1),
}


def _winners(settings: Mapping[Setting, Sequence[Line]]) -> Table:
    rows = []
    for (data, partition), lines in settings.items():
        for name, (value, sign) in _CRITERIA.items():
            ordered = _sorted(lines, value, sign)
            near = [NAMES[line.method] for line in _tied(ordered, value)]
            ours = [line for line in ordered if line.method in OURS]
            place = next((k + 1 for k, line in enumerate(ordered) if line.method in OURS), None)
            rows.append(
                [data.upper(), _kind(partition), name, near[0] if near else "nobody", ", ".join(near[1:]) or None,
                 f"{NAMES[ours[0].method]}: {place} of {len(ordered)}" if ours and value(ours[0]) else "not there"]
            )  # fmt: skip
    note = "*Not told apart*: the difference from the best lies within the 95 % intervals of both over the seeds."
    columns = ("data", "clients", "criterion", "best", "not told apart from it", "LoSAC's best place")
    return Table("winners", "Who wins where", columns, rows, note)


def _table(where: Setting, lines: Sequence[Line]) -> Table:
    rows = []
    for line in _sorted(lines, lambda line: line.rounds):
        result = line.result
        if "failed" in result:
            rows.append([NAMES[line.method], result["failed"], *[None] * 8])
            continue
        best = ", ".join(f"{name} {value:.3g}" for name, value in result["best"].items())
        on_edge = [f"{name} {end}" for name, end in result["edges"].items() if end in ("low", "high")]
        rows.append(
            [
                NAMES[line.method] + (" (all clients)" if result["sampled"] > 10 else ""), best,
                len(result["trials"]), ", ".join(on_edge) or "inside",
                line.rounds and line.rounds.shown("{:.0f}"),
                line.bytes and line.bytes.shown("{:.0f}", 1e-6),
                line.gradients and line.gradients.shown("{:.0f}", 1e-3),
                line.accuracy and line.accuracy.shown("{:.2f}", 100),
                line.loss and line.loss.shown("{:.4f}"),
                round(result["client_state"], 2),
            ]
        )  # fmt: skip
    columns = (
        "method", "best settings", "trials", "optimum", "rounds to target", "MB to target", "1000 gradients to target",
        "accuracy, %", "test loss", "client keeps, models",
    )  # fmt: skip
    data, partition = where
    note = "Mean ± half of the 95 % interval over the seeds; – where a seed did not reach the target."
    return Table(f"{data}-{partition}", f"{data.upper()}, {_kind(partition)}", columns, rows, note)


def _kind(partition: str) -> str:
    """Return what the paper calls a partition."""
    return "IID" if partition == "iid" else "non-IID"


def _summary(settings: Mapping[Setting, Sequence[Line]], measured: Sequence[Measured]) -> str:
    trials = [len(one.result["trials"]) for one in measured if one.result.get("trials")]
    edges = [end for one in measured for end in one.result.get("edges", {}).values()]
    outside = sum(end in ("low", "high") for end in edges)
    parts = []
    for (data, _), lines in settings.items():
        ordered = _sorted(lines, lambda line: line.rounds)
        names = [NAMES[line.method] for line in _tied(ordered, lambda line: line.rounds)]
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        parts.append(f"{data.upper()}: {', '.join(names[:4]) or 'nobody'}{more}")
    return (
        f"Fewest rounds to the target, the best first, then those not told apart from it. {'; '.join(parts)}. "
        f"{min(trials, default=0)} trials for each method, up to {max(trials, default=0)} where a best point lay on an "
        f"edge and the grid was continued; {outside} of {len(edges)} tuned settings still lie on one."
    )


def _claims(settings: Mapping[Setting, Sequence[Line]]) -> list[Claim]:
    return [_superior(settings), _twice_as_fast(settings), _best_steps(settings)]


def _superior(settings: Mapping[Setting, Sequence[Line]]) -> Claim:
    ahead = {"named": 0, "all": 0}
    for lines in settings.values():
        ordered = _sorted(lines, lambda line: line.rounds)
        for name, rivals in (("named", PAPERS), ("all", tuple(NAMES))):
            among = [line for line in ordered if line.method in ("losac", *rivals)]
            near = _tied(among, lambda line: line.rounds)
            ahead[name] += any(line.method == "losac" for line in near)
    total = len(settings)
    share = ahead["named"] / max(total, 1)
    return Claim(
        "LoSAC is superior to state-of-the-art federated optimisation.",
        "Abstract",
        "holds" if share >= 0.8 else "holds in part" if share >= 0.5 else "fails",
        f"With tuned step sizes the paper's LoSAC needs the fewest rounds, or as few as the best, in "
        f"{ahead['named']} of {total} settings among the paper's rivals, and in {ahead['all']} among all.",
    )


def _twice_as_fast(settings: Mapping[Setting, Sequence[Line]]) -> Claim:
    ratios, shown = [], []
    for (data, _), lines in settings.items():
        known = {line.method: line.rounds for line in lines}
        mine, theirs = known.get("losac"), known.get("scaffold")
        if mine is not None and theirs is not None:
            ratios.append(theirs.mean / max(mine.mean, 1))
            shown.append(f"{ratios[-1]:.2f} on {data.upper()}")
    mean = float(np.mean(ratios)) if ratios else float("nan")
    return Claim(
        "LoSAC improves communication efficiency by more than 100 % on average.",
        "Abstract",
        "holds" if mean >= 2 else "fails" if ratios else "not testable",
        f"Rounds of SCAFFOLD over rounds of LoSAC to the target, both tuned, where both reach it: {', '.join(shown)}."
        if ratios else "No setting in which both reach the target.",
    )  # fmt: skip


def _best_steps(settings: Mapping[Setting, Sequence[Line]]) -> Claim:
    """Judge whether the paper's step size is near each method's best, by the validation loss of the trials."""
    near = total = 0
    for lines in settings.values():
        for line in lines:
            result = line.result
            if line.method not in ("losac", *PAPERS) or not result.get("trials"):
                continue
            scores = [(trial[0], trial[-1]) for trial in result["trials"] if trial[-1] is not None]
            at_paper = [score for step, score in scores if abs(np.log10(step / 1e-4)) < 0.1]
            if scores and at_paper:
                total += 1
                near += min(at_paper) <= 1.1 * min(score for _, score in scores)
    return Claim(
        "The step size is set to yield as the best performance as possible for each algorithm.",
        "Compared algorithms",
        "holds" if total and near >= 0.8 * total else "fails" if total else "not testable",
        f"At η = 1e-4, with the best second setting, {near} of {total} tunings of the paper's methods come within 10 % "
        "of the validation loss at the best η.",
    )


def _draw(
    settings: Mapping[Setting, Sequence[Line]], value: Callable[[Line], Interval | None], label: str, *, log: bool
) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    across = min(3, len(settings))
    down = -(-len(settings) // across)
    most = max(len(lines) for lines in settings.values())
    drawing = Drawing((4.2 * across, (1.2 + 0.19 * most) * down), layout="constrained")
    panels = drawing.subplots(down, across, squeeze=False).ravel()
    for panel, ((data, partition), lines) in zip(panels, settings.items()):
        drawn = [line for line in _sorted(lines, value, 1 if log else -1) if value(line) is not None][::-1]
        _points(panel, drawn, value, clip=not log)
        missing = [NAMES[line.method] for line in lines if value(line) is None]
        why = "target not reached" if log else "diverged"
        note = "\n" + fill(f"{why}: {', '.join(missing)}", 58) if missing else ""
        panel.set_title(f"{data.upper()}, {_kind(partition)}")
        panel.set_xlabel(label + note, fontsize=8)
        if log and drawn:
            panel.set_xscale("log")
            low, high = panel.get_xlim()
            plain_log(panel.xaxis, (1.0, 2.0, 5.0) if high > 8 * low else (1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0))
    for panel in panels[len(settings) :]:
        panel.set_axis_off()
    return drawing


def _points(panel: Axes, drawn: Sequence[Line], value: Callable[[Line], Interval | None], *, clip: bool) -> None:
    """Draw a row for each method; with clip, a mean far below the others is an arrow with its number."""
    found = [one for line in drawn if (one := value(line)) is not None]
    means, mine = np.array([one.mean for one in found]), look_of("losac")
    low = np.median(means) - 2 * (np.quantile(means, 0.9) - np.quantile(means, 0.1)) if clip and len(found) > 4 else -1
    for place, (line, one) in enumerate(zip(drawn, found)):
        ours = line.method in OURS
        colour, marker = (mine.colour, mine.marker) if ours else ("0.4", "s")
        if one.mean < low:
            start = min(m.mean - m.half for m in found if m.mean >= low)
            panel.plot(start, place, "<", color=colour, markersize=5)
            panel.annotate(f"{one.mean:.2f}", (start, place), (6, 0), textcoords="offset points", va="center",
                           fontsize=7)  # fmt: skip
            continue
        panel.errorbar(one.mean, place, xerr=one.half, fmt=marker, color=colour, markersize=4, capsize=2)
    panel.set_yticks(range(len(drawn)), [NAMES[line.method] for line in drawn], fontsize=7)
    panel.set_ylim(-0.7, len(drawn) - 0.3)
    for text, line in zip(panel.get_yticklabels(), drawn):
        if line.method in OURS:
            text.set_color(mine.colour)
            text.set_fontweight("bold")
