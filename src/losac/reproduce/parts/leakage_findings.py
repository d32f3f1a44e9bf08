"""What the audit of :mod:`losac.reproduce.parts.leakage` says: the paper's claims, one table, and pictures."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from losac.attacks.audit import RECOGNISED
from losac.reproduce.names import NAMES
from losac.reproduce.study import Claim, Figure, Findings, Measured, Options, Table, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

EXACT = 1e-5
"""Up to which relative error a gradient counts as known."""
CONTROL = "class mean"
ADAPTIVE = ("analytic", "dlg", "dlg-adam", "idlg", "inverting", "rowspace", "unrolled")
"""The attacks on what the server makes of all messages; the others take what the paper's attacker takes."""
MODELS = {"softmax": "logistic regression", "2nn": "2NN"}


class Row(NamedTuple):
    """One method on one problem: means over seeds."""

    data: str
    model: str
    rows: int
    method: str
    steps: int
    blocks: int
    entry: Mapping[str, Any]

    @property
    def label(self) -> str:
        """The method with its T and M."""
        name = NAMES[self.method]
        return (
            name
            if self.method == "dsgd"
            else f"{name}, T = {self.steps}" + (f", M = {self.blocks}" if self.method == "losac" else "")
        )

    @property
    def best(self) -> float:
        """The PSNR of the strongest attack."""
        return max(value for name, value in self.entry["psnr"].items() if name in ADAPTIVE)

    @property
    def best_name(self) -> str:
        """The strongest attack."""
        psnr = self.entry["psnr"]
        return max((name for name in psnr if name in ADAPTIVE), key=lambda name: psnr[name])


def conclude(measured: Sequence[Measured], options: Options) -> Findings:
    """Say what each method gives away, and judge what the paper says of it."""
    rows = list(_rows(measured))
    claims = _claims(rows)
    digits = [row for row in rows if row.data == "mnist"]
    ours = [row for row in digits if row.method == "losac"]
    recognised = [row for row in ours if row.best >= RECOGNISED]
    summary = (
        f"A server that uses all that it is sent recovers digits of LoSAC's clients to {RECOGNISED:.0f} dB or better "
        f"in {len(recognised)} of {len(ours)} settings (logistic regression and 2NN, 1 to 60 rows a client, T and M of "
        f"1 and 5), against {_share(digits, 'dsgd')} of DSGD, {_share(digits, 'fedavg')} of FedAvg and "
        f"{_share(digits, 'scaffold')} of SCAFFOLD. What the paper calls a defence is an attacker who reads one "
        "message by itself. What really lowers the leakage is many rows behind each gradient, many local steps over "
        "many blocks, and noise (see the part on privacy)."
    )
    figures = [
        Figure("recovery", _caption_recovery(), lambda: _draw_recovery(digits)),
        *(
            Figure(f"digits-{model}", _caption_digits(model), _drawer(_draw_digits, rows, model))
            for model in MODELS
            if any(row.model == model and "pictures" in row.entry for row in rows)
        ),
    ]
    return Findings(summary, claims, [_table(rows), _attack_table(rows)], figures)


def _rows(measured: Sequence[Measured]) -> Iterator[Row]:
    """Return the results, averaged over seeds; pictures are the first seed's."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for one in measured:
        told = one.arguments
        groups.setdefault((told["data"], told["model"], told["rows"], *told["method"]), []).append(one.result)
    for key, entries in groups.items():
        merged: dict[str, Any] = dict(entries[0])
        for name in ("printed_error", "error", "labels", "angle"):
            values = [entry[name] for entry in entries if entry[name] is not None]
            merged[name] = float(np.mean(values)) if values else None
        exact = [entry["exact_error"] for entry in entries if entry["exact_error"] is not None]
        merged["exact_error"] = max(exact, default=None)
        if "telescoped" in merged:
            merged["telescoped"] = {t: max(e["telescoped"][t] for e in entries) for t in merged["telescoped"]}
        for kind in ("psnr", "recognised"):
            merged[kind] = {name: float(np.mean([e[kind][name] for e in entries])) for name in entries[0][kind]}
        yield Row._make((*key, merged))


def _share(rows: Sequence[Row], method: str) -> str:
    mine = [row for row in rows if row.method == method]
    return f"{sum(row.best >= RECOGNISED for row in mine)} of {len(mine)}"


def _claims(rows: Sequence[Row]) -> list[Claim]:
    def of(*names: str) -> list[Row]:
        return [row for row in rows if row.method in names and row.data == "mnist"]

    sends = of("dsgd", "mime_svrg")
    single = [row for row in of("losac") if row.blocks == 1]
    worst = {
        dtype: max((row.entry["telescoped"][dtype] for row in single), default=float("inf"))
        for dtype in ("float32", "float64")
    }
    known = [row for row in of("losac") if row.entry["exact"] == row.entry["gradients"]]
    defended = [row for row in of("losac") if row.best < RECOGNISED]
    others = of("fedavg", "scaffold")
    section = "Defense Ability to the Gradient Leakage"
    return [
        Claim(
            "Distributed SGD and the Mime framework communicate the local gradient, so that their data can be stolen",
            section,
            _verdict([row.best >= RECOGNISED for row in sends]),
            _count(sends) + "; " + _few_rows(sends),
        ),
        Claim(
            "LoSAC transmits the increments Δx and Δφ instead of the gradients",
            section,
            "not testable" if not single else "fails" if worst["float32"] <= EXACT else "holds",
            f"a server that adds up a client's Δφ has its last local gradient at M = 1, in all of {len(single)} "
            f"settings: largest relative error {worst['float32']:.1e} in single and "
            f"{worst['float64']:.0e} in double precision",
        ),
        Claim(
            "The delayed local models at which LoSAC's gradients are taken are stored locally and difficult to obtain",
            section,
            "holds in part" if known else "holds",
            f"every gradient, and the model at which it was taken, follows exactly from the messages in {len(known)} "
            f"of {len(of('losac'))} settings ({_listed(sorted({row.label for row in known})) or 'none'}); losac attack "
            "algebra says which ones for any T and M",
        ),
        Claim(
            "A malicious server cannot obtain a LoSAC client's data by DLG",
            section,
            _verdict([row.best < RECOGNISED for row in of("losac")]),
            _count(of("losac"))
            + "; below it stay "
            + (_listed([f"{row.label}, {MODELS[row.model]}, {row.rows} rows ({row.best:.0f} dB)" for row in defended])
               or "none"),
        ),
        Claim(
            "FedAvg and SCAFFOLD defend against DLG as well",
            "Defense Against DLG",
            _verdict([row.best < RECOGNISED for row in others]),
            _count(others),
        ),
    ]  # fmt: skip


def _verdict(right: Sequence[bool]) -> Verdict:
    if not right:
        return "not testable"
    return "holds" if all(right) else "holds in part" if any(right) else "fails"


def _count(rows: Sequence[Row]) -> str:
    strong = sum(row.best >= RECOGNISED for row in rows)
    return f"half of the rows or more recovered to {RECOGNISED:.0f} dB or better in {strong} of {len(rows)} settings"


def _few_rows(rows: Sequence[Row]) -> str:
    sizes = sorted({row.rows for row in rows})
    parts = []
    for size in sizes:
        mine = [(row.best, row.entry["psnr"][CONTROL]) for row in rows if row.rows == size]
        best, control = np.mean(mine, axis=0)
        parts.append(f"with {size} row{'s' if size > 1 else ''} {best:.0f} dB (class mean {control:.0f} dB)")
    return "on average " + ", ".join(parts)


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts)


def _table(rows: Sequence[Row]) -> Table:
    columns = (
        "data", "model", "rows", "method", "gradients known", "their error", "error as printed", "error, adaptive",
        "labels", "angle", "paper's DLG", "best attack", "its PSNR", "recognised", "no attack",
    )  # fmt: skip
    body = []
    for row in rows:
        entry, psnr = row.entry, row.entry["psnr"]
        body.append(
            [row.data.upper(), MODELS[row.model], row.rows, row.label, f"{entry['exact']} of {entry['gradients']}",
             None if entry["exact_error"] is None else f"{entry['exact_error']:.0e}", f"{entry['printed_error']:.2g}",
             None if entry["error"] is None else f"{entry['error']:.1g}",
             None if entry["labels"] is None else f"{100 * entry['labels']:.0f} %", f"{entry['angle']:.2g}°",
             f"{psnr['paper, as printed']:.1f}", row.best_name, f"{row.best:.1f}",
             f"{100 * entry['recognised'][row.best_name]:.0f} %", f"{psnr[CONTROL]:.1f}"]
        )  # fmt: skip
    note = (
        "*Gradients known*: how many of a client's gradients follow exactly from what it sent, and the largest "
        "relative error of these. *Error as printed*, *adaptive*: of what is taken for a gradient at the last "
        "model sent, by the paper's attacker and by one who uses everything. *Labels*: share recovered. *Angle*: "
        "between the client's rows and what is known of their span. Recovered rows in decibels (PSNR), the median over "
        "all rows in their best order; *recognised*: the share of rows with 20 dB or more; *no attack*: the mean of "
        "each row's class, over rows that no client holds, "
        "with the labels told."
    )
    return Table("audit", "What a server learns of a client", columns, body, note)


def _attack_table(rows: Sequence[Row]) -> Table:
    names = list(dict.fromkeys(name for row in rows for name in row.entry["psnr"]))
    body = [
        [row.data.upper(), MODELS[row.model], row.rows, row.label,
         *(None if name not in row.entry["psnr"] else f"{row.entry['psnr'][name]:.1f}" for name in names)]
        for row in rows
    ]  # fmt: skip
    note = (
        "PSNR in dB. *as printed*: on −Δx/(ηT), or the gradient where one is sent. All others: on the server's best "
        "estimates of the gradients; *rowspace*: within the span of the rows that the first layer's gradients tell; "
        "*unrolled*: by differentiating through the local steps of the first two rounds."
    )
    return Table("attacks", "Every attack", ("data", "model", "rows", "method", *names), body, note)


def _caption_recovery() -> str:
    return (
        "How well a client's digits are recovered (PSNR, dB; 20 dB and more is easily recognised), by the paper's "
        "attack on one message (crosses) and by the strongest attack on all of them (dots); the line is the class "
        "mean, which needs no attack."
    )


def _caption_digits(model: str) -> str:
    return (
        f"Real digits of a client with 8 rows (top) and as the strongest attack recovers them, method by method "
        f"({MODELS[model]}; PSNR as median over the rows of two clients)."
    )


def _drawer(draw: Callable[..., Drawing], *arguments: Any) -> Callable[[], Drawing]:
    return lambda: draw(*arguments)


def _draw_recovery(rows: Sequence[Row]) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    from losac.reproduce.looks import look_of

    sizes = sorted({row.rows for row in rows})
    labels = list(dict.fromkeys(row.label for row in sorted(rows, key=lambda row: -row.rows)))
    models = [model for model in MODELS if any(row.model == model for row in rows)]
    drawing = Drawing((2.6 + 2.4 * len(sizes), 0.6 + 2.7 * len(models)), layout="constrained")
    axes = np.atleast_2d(drawing.subplots(len(models), len(sizes), sharex=True, sharey=True))
    for model, line in zip(models, axes):
        for size, panel in zip(sizes, line):
            for row in rows:
                if (row.model, row.rows) != (model, size):
                    continue
                place, look = labels.index(row.label), look_of(row.method)
                shown = min(row.best, 100.0)
                panel.plot([row.entry["psnr"]["paper, as printed"], shown], [place, place], color="0.85", zorder=1)
                panel.plot(shown, place, "o", color=look.colour, zorder=3)
                panel.plot(row.entry["psnr"]["paper, as printed"], place, "x", color="0.4", zorder=2)
                panel.axvline(row.entry["psnr"][CONTROL], color="0.6", linewidth=0.8, zorder=0)
            panel.set(title=f"{MODELS[model]}, {size} row{'s' if size > 1 else ''} a client")
            panel.set_yticks(range(len(labels)), labels)
            panel.set_ylim(len(labels) - 0.5, -0.5)
    for panel in axes[-1]:
        panel.set_xlabel("PSNR, dB (at most 100 shown)")
    return drawing


def _draw_digits(rows: Sequence[Row], model: str) -> Drawing:
    from matplotlib.figure import Figure as Drawing

    shown = [row for row in rows if row.model == model and "pictures" in row.entry]
    strips = [("real", _pictures(shown[0].entry["pictures"]["real"]))]
    strips += [(CONTROL, _pictures(shown[0].entry["pictures"][CONTROL]))]
    strips += [(f"{row.label}: {row.best:.0f} dB", _pictures(row.entry["pictures"][row.best_name])) for row in shown]
    drawing = Drawing((6.4, 0.62 * len(strips) + 0.2))
    drawing.subplots_adjust(left=0.36, right=0.99, top=0.99, bottom=0.01)
    for (name, pictures), panel in zip(strips, drawing.subplots(len(strips), 1)):
        panel.imshow(np.concatenate(list(pictures), axis=1), cmap="gray_r", vmin=0, vmax=255, aspect="equal")
        panel.set_ylabel(name, rotation=0, ha="right", va="center")
        panel.set(xticks=[], yticks=[])
        panel.grid(False)
        for side in panel.spines.values():
            side.set_visible(False)
    return drawing


def _pictures(code: str) -> np.ndarray:
    flat = np.frombuffer(base64.b64decode(code), np.uint8)
    return flat.reshape(-1, 28, 28)
