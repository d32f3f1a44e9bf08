"""What :mod:`losac.reproduce.parts.privacy` says: accuracy and recovered rows against ε, on one plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.attacks.audit import RECOGNISED
from losac.reproduce.names import NAMES
from losac.reproduce.parts.leakage_findings import ADAPTIVE, CONTROL
from losac.reproduce.study import Figure, Findings, Measured, Options, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

Key = tuple[str, int, int]


class Case(NamedTuple):
    """One method under one defence: means over seeds; None where it was not measured, or diverged."""

    method: Key
    where: str
    noise: float | None
    epsilon: Mapping[str, float | None]
    accuracy: float | None
    psnr: float | None
    labels: float | None


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Put accuracy and recovery beside each other."""
    cases = _cases(measured)
    control = float(np.mean([e["psnr"][CONTROL] for one in measured for e in one.result if "psnr" in e]))
    caption = (
        "Accuracy on the test data (left) and how well a client's digits are recovered by the strongest attack "
        "(right), against the noise that clients add to their clipped uploads; above, ε for the server itself at "
        "δ = 10⁻⁵ (one upload a round; MimeSVRG's two a round make it about twice that). At the left edge: "
        "clipping without noise. The grey line is the class mean, which needs no attack."
    )
    return Findings(
        _summary(cases, control),
        (),
        [_noise_table(cases), _compression_table(cases, control)],
        [Figure("privacy", caption, lambda: _draw(cases, control))],
    )


def label(method: Key) -> str:
    """Return the method with its T, and M where it matters."""
    name, steps, blocks = method
    return f"{NAMES[name]}, T = {steps}" + (f", M = {blocks}" if name == "losac" else "")


def _cases(measured: Sequence[Measured]) -> list[Case]:
    recovered: dict[tuple[Key, str, float | None], list[Mapping[str, Any]]] = {}
    learnt: dict[tuple[Key, str, float | None], Mapping[str, Any]] = {}
    budgets: dict[tuple[Key, str, float | None], Mapping[str, float | None]] = {}
    for one in measured:
        name, steps, blocks = one.arguments["method"]
        for entry in one.result:
            if "psnr" in entry:
                where = "client" if entry["defence"] == "noise" else entry["defence"]
                recovered.setdefault(((name, steps, blocks), where, entry["noise"]), []).append(entry)
            elif "epsilon" in entry:
                budgets[(name, steps, blocks), entry["where"], entry["noise"]] = entry["epsilon"]
            else:
                learnt[(name, steps, blocks), entry["where"], entry["noise"]] = entry
    found = []
    for key in dict.fromkeys([*learnt, *recovered]):
        entry, attacks = learnt.get(key, {}), recovered.get(key, [])
        values = [a for a in entry.get("accuracy", []) if a is not None]
        whole = entry and len(values) == len(entry["accuracy"])
        found.append(
            Case(
                *key,
                budgets.get(key, {}),
                float(np.mean(values)) if whole else None,
                float(np.mean([strongest(a) for a in attacks])) if attacks else None,
                float(np.mean([a["labels"] for a in attacks])) if attacks else None,
            )
        )
    return found


def strongest(entry: Mapping[str, Any]) -> float:
    """Return the PSNR of the strongest attack."""
    return max(value for name, value in entry["psnr"].items() if name in ADAPTIVE)


def _summary(cases: Sequence[Case], control: float) -> str:
    noisy = [c for c in cases if c.where == "client" and c.noise and c.psnr is not None and c.accuracy is not None]
    plain = {c.method: c for c in cases if c.where == "nothing"}
    parts = []
    for method, whole in plain.items():
        stops = [c for c in noisy if c.method == method and (c.psnr or 0) < control]
        if not stops or whole.accuracy is None:
            continue
        first = min(stops, key=lambda c: c.noise or 0)
        cost = 100 * (whole.accuracy - (first.accuracy or 0))
        parts.append(
            f"{label(method)}: from z = {first.noise:g} on, which costs {cost:.1f} points of accuracy and is worth "
            f"ε = {first.epsilon['server']:.2g} against the server"
        )
    ends = f"Noise at the clients brings the recovery of their rows below the class mean. {'; '.join(parts)}. "
    return (ends if parts else "") + " ".join(
        _proven(cases, adversary, who)
        for adversary, who in (("server", "the server itself"), ("outside", "whoever sees only what the server sends"))
    )


def _proven(cases: Sequence[Case], adversary: str, who: str, limit: float = 10.0) -> str:
    """Say how much accuracy is left where a small ε is proven."""
    sure = [c for c in cases if c.accuracy is not None and (c.epsilon.get(adversary) or np.inf) <= limit]
    if not sure:
        return f"No setting here has ε ≤ {limit:g} against {who}."
    best = max(sure, key=lambda c: c.accuracy or 0)
    return (
        f"With ε ≤ {limit:g} against {who} the best accuracy is {100 * (best.accuracy or 0):.0f} % "
        f"({label(best.method)}, noise at the {best.where}, z = {best.noise:g})."
    )


def _noise_table(cases: Sequence[Case]) -> Table:
    columns = ("method", "noise at", "z", "ε, server", "ε, outside", "accuracy", "recovered, dB", "labels")
    rows = [
        [label(c.method), c.where if c.noise else "nowhere", f"{c.noise:g}", _big(c.epsilon.get("server")),
         _big(c.epsilon.get("outside")), _percent(c.accuracy), None if c.psnr is None else f"{c.psnr:.1f}",
         _percent(c.labels)]
        for c in cases
        if c.noise is not None and not (c.where == "server" and not c.noise)
    ]  # fmt: skip
    note = (
        "z: the noise multiplier. ε at δ = 10⁻⁵, for ten rounds in which a client takes part, of 100 with 100 of 1000 "
        "clients: against the server, and against whoever sees only what it sends out (docs/privacy.md). Recovered: "
        "PSNR of the strongest attack, in ten rounds with all clients; noise at the server is no protection from it. "
        "The clipping bounds are medians of clients' own first uploads, which ε does not cover; the attacks do not "
        "reckon with clipping."
    )
    return Table("noise", "Clipping and Gaussian noise", columns, rows, note)


def _compression_table(cases: Sequence[Case], control: float) -> Table:
    kept = [c for c in cases if c.noise is None]
    columns = ("method", "upload", "accuracy", "recovered, dB", "labels")
    without = {c.method: c.psnr for c in cases if c.where == "client" and c.noise == 0}
    rows = [
        [label(c.method), "as it is" if c.where == "nothing" else c.where, _percent(c.accuracy),
         f"{c.psnr:.1f}" if c.psnr is not None else _clipped_only(without.get(c.method), c), _percent(c.labels)]
        for c in kept
    ]  # fmt: skip
    note = (
        f"Compression is no protection one can count on: the class mean has {control:.1f} dB, {RECOGNISED:.0f} dB are "
        "easily recognised. It acts on the method's own uploads only: MimeSVRG's full gradients travel as they are."
    )
    return Table("compression", "Compression as a defence", columns, rows, note)


def _clipped_only(psnr: float | None, case: Case) -> str | None:
    """Return what is recovered where nothing protects; clipping at the median norm is next to nothing."""
    return None if psnr is None or case.where != "nothing" else f"{psnr:.1f} (clipped)"


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def _big(epsilon: float | None) -> str | None:
    return None if epsilon is None else f"{epsilon:.3g}"


def _draw(cases: Sequence[Case], control: float) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    from losac.report.style import style

    noisy = [c for c in cases if c.where == "client" and c.noise is not None]
    methods = list(dict.fromkeys(c.method for c in noisy))
    sizes = sorted({c.noise for c in noisy if c.noise})
    edge, ticks = sizes[0] / 3, sizes if len(sizes) < 6 else sizes[1::2]
    drawing = Drawing((9, 4.2), layout="constrained")
    panels = drawing.subplots(1, 2)
    for index, method in enumerate(methods):
        look = style(index)
        mine = sorted((c for c in noisy if c.method == method), key=lambda c: c.noise or 0)
        for panel, values in zip(panels, ([c.accuracy for c in mine], [c.psnr for c in mine])):
            panel.plot(
                [c.noise or edge for c in mine], [np.nan if v is None else v for v in values], color=look.colour,
                marker=look.marker, linestyle=look.dashes, label=label(method), markersize=5,
            )  # fmt: skip
    panels[0].set(ylabel="accuracy", ylim=(0, 1), title="What is learnt")
    panels[1].set(ylabel="recovered rows, PSNR in dB", title="What is recovered")
    panels[1].axhline(control, color="0.5", linewidth=0.8)
    for panel in panels:
        panel.set_xscale("log")
        panel.set_xticks([edge, *ticks], ["0", *(f"{z:g}" for z in ticks)])
        panel.minorticks_off()
        panel.set_xlabel("noise multiplier z")
        above = panel.secondary_xaxis("top")
        known = {c.noise: c.epsilon.get("server") for c in noisy if c.noise and c.method[0] != "mime_svrg"}
        above.set_xticks(ticks, [_power(known.get(z)) for z in ticks])
        above.minorticks_off()
        above.set_xlabel("ε against the server")
    handles, labels = panels[0].get_legend_handles_labels()
    drawing.legend(handles, labels, loc="outside lower center", ncols=3)
    return drawing


def _power(epsilon: float | None) -> str:
    if epsilon is None:
        return "–"
    return f"{epsilon:.3g}" if epsilon < 1000 else f"$10^{{{np.log10(epsilon):.1f}}}$"
