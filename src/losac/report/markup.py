"""The reStructuredText and TeX of docstrings as plain text, for terminals, files and schemas."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pylatexenc.latex2text import LatexNodes2Text


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
    lines = [line for line in re.split(r"\\\\(?:\s|$)", tex.replace("&", "")) if line.strip()]
    texts = [" ".join(_converter().latex_to_text(f"${line}$").split()) for line in lines]
    return [re.sub(r" *(∈| = ) *", r"\1", re.sub(r"\s+(?=[\s,.)])", "", text.replace("= ", " = "))) for text in texts]


@cache
def _converter() -> LatexNodes2Text:
    """Return pylatexenc's converter, with the brackets of fractions and subscripts that it leaves out by default."""
    from pylatexenc.latex2text import LatexNodes2Text, MacroTextSpec, get_default_latex_context_db

    def argument(node: Any, converter: Any) -> str:
        return str(converter.nodelist_to_text(getattr(node, "nodelist", [node]))).strip()

    def last(node: Any, l2tobj: Any) -> str:
        return argument(node.nodeargs[-1], l2tobj)

    def fraction(node: Any, l2tobj: Any) -> str:
        over, under = (argument(each, l2tobj) for each in node.nodeargs)
        over = over if re.fullmatch(r"\w+", over) else f"({over})"
        return f"{over}/{under if len(under) == 1 else f'({under})'} "

    texts = {"leftarrow": " ← ", "odot": " ⊙ ", "in": "∈", "sum": "Σ", "|": "‖", "phi": "φ", "epsilon": "ε"}
    texts |= {"mathcal": "%s"}
    rules = {"frac": fraction, "sqrt": lambda node, l2tobj: f"√ {last(node, l2tobj)}", "mathrm": last, "text": last}
    known = get_default_latex_context_db()
    macros = [MacroTextSpec(name, rule) for name, rule in {**texts, **rules}.items()]
    known.add_context_category("losac", prepend=True, macros=macros)
    spaces = {"between-macro-and-chars": False, "between-latex-constructs": True, "after-comment": False}
    return LatexNodes2Text(
        latex_context=known, math_mode="text", keep_braced_groups=True, keep_braced_groups_minlen=2,
        strict_latex_spaces=spaces | {"in-equations": None},
    )  # fmt: skip
