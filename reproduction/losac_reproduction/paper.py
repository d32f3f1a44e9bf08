"""The numbers that the paper prints."""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """A cell of Table 2: rounds to 85 %, then loss and accuracy at round 500."""

    rounds: int
    loss: float
    accuracy: float


BLOCKS, STEPS = (2, 3, 5), (2, 4, 6)

_PRINTED = {  # one line for each M, three cells (T = 2, 4, 6) on it
    ("mnist", "scaffold"): """
        64 .1853 94.37  47 .1268 96.00  39 .1051 96.41
        63 .1958 94.08  39 .1392 95.44  37 .1109 95.94
        57 .1847 94.38  44 .1253 96.03  43 .1061 96.40""",
    ("mnist", "losac"): """
        56 .1310 95.91  38 .0840 96.83  30 .0703 96.97
        46 .1162 95.96  32 .0632 96.99  34 .0438 97.36
        44 .0887 96.45  34 .0501 97.26  26 .0339 97.53""",
    ("har", "scaffold"): """
        177 .2244 90.19  175 .1558 92.87  170 .1479 92.53
        158 .2093 91.45  161 .1421 92.74  166 .1334 92.40
        137 .2178 91.08  156 .1518 93.65  122 .1373 91.92""",
    ("har", "losac"): """
        102 .1611 92.06  47 .1253 94.10  61 .1176 93.76
         74 .1185 93.52  44 .1014 93.82  35 .1035 92.77
         89 .1076 93.52  55 .0902 94.77  43 .0921 94.33""",
    ("esr", "scaffold"): """
        1952 .4213 79.66  956 .3765 82.75  617 .3480 83.79
        1972 .4208 79.75  944 .3767 82.49  619 .3470 84.05
        1941 .4212 79.79  969 .3765 82.62  621 .3485 84.07""",
    ("esr", "losac"): """
        1020 .3807 82.40  498 .3304 85.02  328 .2952 87.37
         696 .3561 83.13  341 .2931 87.30  243 .2503 89.28
         445 .3197 85.54  206 .2367 90.05  180 .1967 91.54""",
}


def _cells() -> dict[tuple[str, str, int, int], Cell]:
    cells = {}
    for (data, method), text in _PRINTED.items():
        for m, line in zip(BLOCKS, text.strip().splitlines()):
            numbers = [float(word) for word in line.split()]
            for place, t in enumerate(STEPS):
                rounds, loss, accuracy = numbers[3 * place : 3 * place + 3]
                cells[data, method, m, t] = Cell(int(rounds), loss, accuracy / 100)
    return cells


TABLE_2 = _cells()
"""(data, method, M, T) → what Table 2 prints."""

SECTIONS = (
    "Abstract",
    "Introduction",
    "Related work, Table 1",
    "Related work",
    "Limitation of FedSaga",
    "Extension with proximal operator",
    "Global variance reduction",
    "Lemma 1",
    "Defense ability to the gradient leakage",
    "Lemma 2",
    "Theorem 1",
    "Handling model divergence",
    "Compared algorithms",
    "Data heterogeneity, Fig. 2",
    "Parameter sensitivity, Figs. 3 to 5",
    "Parameter sensitivity, Figs. 3 and 4",
    "Parameter sensitivity, Fig. 5",
    "Ablation study, Table 2",
    "Ablation, communication efficiency",
    "Ablation, computation efficiency",
    "Ablation, local memory",
    "Defense against DLG, Fig. 6",
    "Low rank matrix estimation, Fig. 7",
    "Appendix A",
    "Appendix B",
)
"""Where the paper makes its claims, in its order. Lemma 2 and Theorem 1 are its lemma4 and theorem1."""
