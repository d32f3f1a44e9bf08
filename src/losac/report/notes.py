"""Notes for readers of a comparison: whether the step sizes are equal, and whether that is fair."""

from __future__ import annotations

from collections.abc import Sequence

from losac.history import History
from losac.report.groups import RunGroup, group_histories
from losac.report.style import shown


def step_sizes(histories: Sequence[History]) -> list[str]:
    """Return the distinct step sizes, as texts."""
    return list(dict.fromkeys(shown(run.settings.get("step_size")) for run in histories))


def fairness_notes(histories: Sequence[History]) -> list[str]:
    """Return sentences that say which step sizes were compared, and which methods that favours."""
    return notes_on(group_histories(histories))


def notes_on(groups: Sequence[RunGroup]) -> list[str]:
    """Return the sentences of :func:`fairness_notes` for runs that have been put together."""
    if len(groups) < 2:
        return []
    histories = [run for group in groups for run in group.runs]
    sizes = step_sizes(histories)
    if len(sizes) > 1:
        return [f"The step sizes differ: η = {', '.join(sizes)}. Each algorithm ran at its own."]
    notes = [
        f"All ran at the same step size η = {sizes[0]}. That is not a fair comparison: the algorithms turn the same "
        "η into steps of different length, so tune each one's step size before calling a winner."
    ]
    blocks = [
        run.settings.get("blocks")
        for run in histories
        if run.algorithm == "losac" and run.settings.get("scaling") == "paper"
    ]
    if blocks and (m := blocks[0]) and m > 1:
        note = (
            f"Equal η favours LoSAC in the paper's scaling: it moves M = {m} times as far along the global gradient as "
            "SCAFFOLD does at the same η."
        )
        rival = [
            g.label
            for g in groups
            if g.runs[0].algorithm == "scaffold" and shown(g.runs[0].settings.get("server_step")) == shown(m)
        ]
        notes.append(note + (f" “{rival[0]}” takes steps as long as LoSAC's; nothing here is tuned." if rival else ""))
    return notes
