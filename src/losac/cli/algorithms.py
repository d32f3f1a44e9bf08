"""``losac algorithms``: the list, the costs, and what one of them does."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import typer

from losac.cli.completion import bare_algorithm_names
from losac.cli.output import Answer, new_table, print_table, wide_console
from losac.experiment.fields import PROBLEM, Option
from losac.experiment.settings import find_algorithm

if TYPE_CHECKING:
    from rich.table import Table

    from losac.algorithms import Algorithm
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
"""Columns that are left out first in a narrow terminal."""
_LEGEND = """down, up: what a client of a round receives and sends, in models and in KB (1,000 bytes) of this model
client keeps, server keeps, per client: state in models; M is the number of blocks; per client: at the server
grads: single-sample gradients of a client in a round over n_i, and gradients in one local step
samples: clients may be sampled; Ψ: takes a regulariser; single: the server must see single uploads
corrects drift: settles at the optimum of clients that differ, despite several local steps (– without --measure)"""


def algorithms(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[ALGORITHM]",
            help="One of them, to show its description.",
            show_default="all",
            autocompletion=bare_algorithm_names,
        ),
    ] = None,
    model: Annotated[
        str,
        Option(
            PROBLEM,
            "The model to count bytes for, on MNIST: 2nn, softmax, another or your own as FILE.py:NAME.",
            complete="model_names",
        ),
    ] = "2nn",
    measure: Annotated[
        bool, Option(PROBLEM, "Also run each on a small problem to see whether it corrects drift.", "--measure")
    ] = False,
) -> Answer:
    """List the algorithms with what they cost, keep and need, as measured; or describe one of them."""
    from losac.algorithms import ALGORITHMS

    chosen = dict(ALGORITHMS) if name is None else {name: find_algorithm(name)}
    task = _blank_task(model)

    @cache
    def measured() -> dict[str, Profile]:
        from losac.report import profile

        return {each: profile.measure(kind, task, with_drift=measure) for each, kind in chosen.items()}

    def text() -> None:
        measured()
        if name is not None:
            _tell(name, chosen[name])
        print_table(_table(measured(), model), _EXPENDABLE)
        wide_console().print(_LEGEND + _table_legend(measured()), style="dim", highlight=False)

    told = {} if name is None else _told(chosen[name])
    return Answer(
        lambda: [{"name": each} | row.record() | told for each, row in measured().items()],
        text,
        brief=list(chosen),
    )


def _table_legend(found: dict[str, Profile]) -> str:
    """Return a line on tables that are kept as products, if a method has one."""
    sizes = ", ".join(f"{name} {row.table_factors:.2g}" for name, row in found.items() if row.table_state)
    return f"\na table kept as products, with blocks of 12 rows (chosen by size), in models: {sizes}" if sizes else ""


def _blank_task(model: str) -> Task:
    from losac.experiment.models import model_on
    from losac.report.profile import blank_data

    data = blank_data()
    network, make = model_on(model, data)
    return make(network, data)


def _table(found: dict[str, Profile], model: str) -> Table:
    one = next(iter(found.values()))
    title = f"{model}: {one.parameters:,} parameters, {one.model_bytes / 1e3:,.0f} KB"
    table = new_table(title=title, title_style="bold", pad_edge=False, collapse_padding=True)
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


def _told(kind: type[Algorithm]) -> dict[str, Any]:
    """Return the description as data."""
    from losac.report.describe import describe

    words = describe(kind)
    parameters = [parameter._asdict() for parameter in words.parameters]
    return {"description": words.body, "settings": parameters, "reference": words.reference}


def _tell(name: str, kind: type[Algorithm]) -> None:
    """Print what an algorithm does, its equations, settings and reference."""
    from losac.report.describe import describe
    from losac.report.markup import plain_math, plain_text

    words, console = describe(kind), wide_console()
    console.print(name, style="bold")
    for part, text in words.body:
        lines = plain_math(text) if part == "math" else [plain_text(text)]
        console.print()
        for line in lines:
            console.print(f"    {line}" if part == "math" else line, markup=False, highlight=False)
    table = new_table("setting", "default", "allowed", "meaning", pad_edge=False)
    for parameter in words.parameters:
        table.add_row(*(plain_text(word).replace("[", r"\[") for word in parameter))
    print_table(table)
    if words.reference:
        console.print(f"Reference: {plain_text(words.reference)}\n", markup=False, highlight=False)
