"""The comparison as a file for a paper or a page: LaTeX, Markdown or CSV, by the file's ending."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from losac._checks import check_path
from losac._files import write_whole
from losac.history import History
from losac.report.checks import check_histories, check_labels
from losac.report.tables import comparison_rows, table_cells, write_csv

ENDINGS = (".md", ".tex", ".csv")
_IN_LATEX = {
    "\\": r"\textbackslash{}", "_": r"\_", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "η": r"$\eta$", "±": r"$\pm$", "–": "--", "×": r"$\times$",
    "λ": r"$\lambda$",
}  # fmt: skip


def write_table(
    histories: Sequence[History],
    path: str | Path,
    *,
    target: float | None = None,
    labels: Sequence[str] | None = None,
) -> Path:
    """Write the comparison of :func:`losac.report.comparison_table` as a file; return its path.

    Args:
      histories: the runs.
      path: ends in ``.md`` (a pipe table), ``.tex`` (a ``tabular`` for the package booktabs) or ``.csv``
        (:func:`losac.report.write_csv`, mean and standard deviation in columns of their own).
      target, labels: as for the table.
    """
    path = check_path("path", path)
    histories = check_histories(histories)
    check_labels(labels, len(histories))
    if path.suffix not in ENDINGS:
        raise ValueError(f"path={str(path)!r} must end in one of {', '.join(ENDINGS)}")
    if path.suffix == ".csv":
        return write_csv(histories, path, target=target, labels=labels)
    rows = comparison_rows(histories, target=target, labels=labels)
    head, body = table_cells(rows, target)
    body = [[f"{label} ({row.fate})" if row.fate else label, *cells] for row, (label, *cells) in zip(rows, body)]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, markdown(head, body) if path.suffix == ".md" else latex(head, body))
    return path


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, with numbers to the right.

    >>> print(markdown(["algorithm", "loss"], [["fedavg", "0.5"]]), end="")
    | algorithm | loss |
    |---|---:|
    | fedavg | 0.5 |
    """
    lines = [head, *body]
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([rows[0], "|---|" + "---:|" * (len(head) - 1), *rows[1:]]) + "\n"


def latex(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    r"""Return a table in LaTeX, with numbers to the right.

    >>> print(latex(["algorithm", "η"], [["a_b", "5 ± 1 %"]]), end="")
    % \usepackage{booktabs}
    \begin{tabular}{lr}
    \toprule
    algorithm & $\eta$ \\
    \midrule
    a\_b & 5 $\pm$ 1 \% \\
    \bottomrule
    \end{tabular}
    """

    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(_IN_LATEX.get(letter, letter) for letter in cell) for cell in cells) + r" \\"

    parts = [r"% \usepackage{booktabs}", rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", line(head)]
    return "\n".join([*parts, r"\midrule", *map(line, body), r"\bottomrule", r"\end{tabular}"]) + "\n"
