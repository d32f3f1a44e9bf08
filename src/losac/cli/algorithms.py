"""``losac algorithms``: what there is, what it costs, and what one of them does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.complete import bare_algorithm_names
from losac.cli.options import Json, option, quiet_option
from losac.cli.output import print_json, print_table, wide_console
from losac.cli.settings import find_algorithm

if TYPE_CHECKING:
    from rich.table import Table

    from losac.report.profile import Profile
    from losac.task import Task

EPILOG = """Examples:

losac algorithms

losac algorithms scaffold --measure

losac algorithms --model softmax --json"""

_HEAD = (
    "algorithm",
    "down",
    "up",
    "KB down",
    "KB up",
    "client keeps",
    "server keeps",
    "per client",
    "grads /n_i",
    "per step",
    "phases",
    "samples",
    "Ψ",
    "single",
    "corrects drift",
)
_EXPENDABLE = ("phases", "per step", "KB down", "KB up", "single", "per client")
"""What is left out first where a terminal is narrow."""
_LEGEND = """down, up: what a client of a round receives and sends, in models and in KB (1,000 bytes) of this model
client keeps, server keeps, per client: state in models; M is the number of blocks; per client: at the server
grads: single-sample gradients of a client in a round over n_i, and gradients in one local step
samples: clients may be sampled; Ψ: takes a regulariser; single: the server must see single uploads
corrects drift: settles at the optimum of clients that differ, despite several local steps (– without --measure)"""
_SYMBOLS = {
    "leftarrow": "←", "nabla": "∇", "sum": "Σ", "infty": "∞", "cdot": "·", "odot": "⊙", "in": "∈", "le": "≤",
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η", "mu": "μ", "pi": "π",
    "rho": "ρ", "tau": "τ", "phi": "φ", "chi": "χ", "xi": "ξ", "Delta": "Δ", "Psi": "Ψ", "lambda": "λ",
    "langle": "⟨", "rangle": "⟩", "sqrt": "√", "|": "‖", "{": "[", "}": "]",
}  # fmt: skip


def algorithms(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[ALGORITHM]",
            help="One of them, to read about it.",
            show_default="all",
            autocompletion=bare_algorithm_names,
        ),
    ] = None,
    model: Annotated[str, option("Problem", "The model whose bytes are counted: 2nn or softmax, on MNIST.")] = "2nn",
    measure: Annotated[
        bool, option("Problem", "Also run each on a small problem to see whether it corrects drift.", "--measure")
    ] = False,
    json: Json = False,
    quiet: Annotated[bool, quiet_option("the names")] = False,
) -> None:
    """List the algorithms with what they cost, keep and need, measured; or tell about one of them."""
    from losac.algorithms import ALGORITHMS

    if name is not None:
        find_algorithm(name)
    chosen = list(ALGORITHMS) if name is None else [name]
    task = _blank_task(model)
    if quiet:
        typer.echo("\n".join(chosen))
        return
    from losac.report import profile

    found = {each: profile.measure(each, task, with_drift=measure) for each in chosen}
    if json:
        print_json([{"name": each} | row.record() | _told(each, name) for each, row in found.items()])
        return
    if name is not None:
        _tell(name)
    print_table(_table(found, model), _EXPENDABLE)
    wide_console().print(_LEGEND + _table_legend(found), style="dim", highlight=False)


def _table_legend(found: dict[str, Profile]) -> str:
    """Return a line on tables that are kept as products, where a method has one."""
    sizes = ", ".join(f"{name} {row.table_factors:.2g}" for name, row in found.items() if row.table_state)
    return f"\na table kept as products, with blocks of 12 rows (chosen by size), in models: {sizes}" if sizes else ""


def _blank_task(model: str) -> Task:
    from losac._settings import nearest
    from losac.report.profile import blank_task

    if model not in ("2nn", "softmax"):
        raise ValueError(f"unknown model {model!r}{nearest(model, ['2nn', 'softmax'])}; known are 2nn, softmax")
    return blank_task(model)  # type: ignore[arg-type]


def _table(found: dict[str, Profile], model: str) -> Table:
    from rich import box
    from rich.table import Table

    one = next(iter(found.values()))
    title = f"{model}: {one.parameters:,} parameters, {one.model_bytes / 1e3:,.0f} KB"
    look: dict[str, Any] = {"box": box.SIMPLE_HEAD, "pad_edge": False, "collapse_padding": True}
    table = Table(**look, title=title, title_justify="left", title_style="bold")
    for index, word in enumerate(_HEAD):
        table.add_column(word, justify="right" if index else "left", no_wrap=index == 0)
    for name, row in found.items():
        table.add_row(name, *_cells(row))
    return table


def _cells(row: Profile) -> list[str]:
    from losac.report.profile import state_in_words

    sizes = (row.server_state, row.server_rows, row.gradients, row.gradients_per_step, len(row.phases))
    facts = (row.samples_clients, row.regulariser, row.single_uploads, row.corrects_drift)
    return [
        *(f"{size:.3g}" for size in (row.down, row.up)),
        *(f"{size * row.model_bytes / 1e3:,.0f}" for size in (row.down, row.up)),
        state_in_words(row),
        *(f"{size:.3g}" for size in sizes),
        *({True: "yes", False: "no", None: "–"}[fact] for fact in facts),
    ]


def _told(each: str, name: str | None) -> dict[str, Any]:
    """Return the description as data where one algorithm was asked for."""
    from losac.report.profile import describe

    if name is None:
        return {}
    words = describe(each)
    parameters = [parameter._asdict() for parameter in words.parameters]
    return {"description": words.body, "settings": parameters, "reference": words.reference}


def _tell(name: str) -> None:
    """Print what an algorithm does, its equations, settings and reference."""
    from rich import box
    from rich.table import Table

    from losac.report.profile import describe

    words, console = describe(name), wide_console()
    console.print(name, style="bold")
    for kind, text in words.body:
        lines = plain_math(text) if kind == "math" else [plain_text(text)]
        console.print()
        for line in lines:
            console.print(f"    {line}" if kind == "math" else line, markup=False, highlight=False)
    table = Table("setting", "default", "allowed", "meaning", box=box.SIMPLE_HEAD, pad_edge=False)
    for parameter in words.parameters:
        table.add_row(*(plain_text(word).replace("[", r"\[") for word in parameter))
    print_table(table)
    console.print(f"Reference: {plain_text(words.reference)}\n", markup=False, highlight=False)


def plain_text(text: str) -> str:
    """Return reStructuredText without its marks.

    >>> plain_text("see :class:`losac.algorithms.fedavg.Fedavg`, ``x`` and :math:`a_i`")
    'see Fedavg, x and a_i'
    """
    text = re.sub(r":math:`([^`]*)`", lambda found: " ".join(plain_math(found[1])), text)
    text = re.sub(r":class:`[~\w.]*?(\w+)`", r"\1", text)
    return re.sub(r"\*([^*]+)\*", r"\1", text.replace("``", ""))


def plain_math(tex: str) -> list[str]:
    r"""Return the lines of a LaTeX formula in characters that a terminal shows.

    >>> plain_math(r"w &\leftarrow w - \eta\, g_i(w), \\ x &= \frac1S\sum_{i\in\mathcal S} \frac{w_i}{S}")
    ['w ← w - η g_i(w),', 'x = 1/S Σ_{i∈S} w_i/S']
    """
    return [_plain_line(line) for line in re.split(r"\\\\(?:\s|$)", tex) if line.strip()]


def _plain_line(tex: str) -> str:
    tex = re.sub(r"\\([A-Za-z]+|[|{}])", lambda found: _SYMBOLS.get(found[1], found[0]), tex.replace("&", ""))
    tex = re.sub(r"\\(?:[,;:! ]|q?quad)", "  ", re.sub(r"\\[bB]igg?(?![a-z])", "", tex))
    tex = re.sub(r"\\(?:mathcal|mathrm|text)\s*(?:\{([^{}]*)\}|(\w))", r"\1\2", tex)
    tex = re.sub(r"\\(hat|bar)\s*(\w)", lambda found: found[2] + {"hat": "\u0302", "bar": "\u0304"}[found[1]], tex)
    part = r"\s*(?:\{((?:[^{}]|\{[^{}]*\})*)\}|(\w))"
    while (simpler := re.sub(rf"\\frac{part}{part}", _fraction, tex)) != tex:
        tex = simpler
    return re.sub(r" *∈ *", "∈", re.sub(r"\s+(?=[\s,.)])", "", " ".join(tex.split()))).replace("\\", "")


def _fraction(found: re.Match[str]) -> str:
    over, under = found[1] or found[2], found[3] or found[4]
    over = over if re.fullmatch(r"\w+", over) else f"({over})"
    return f"{over}/{under if len(under) == 1 else f'({under})'} "
