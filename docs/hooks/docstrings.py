"""A griffe extension: the docstrings' reStructuredText roles, equations and doctests as Markdown."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`(~?)([\w.]+)`")
MATH = re.compile(r"^( *)\.\. math::(.*(?:\n(?: *\S.*))*)", flags=re.MULTILINE)
DOCTEST = re.compile(r"^( *)>>> .*(?:\n *\S.*)*", flags=re.MULTILINE)
SHARED = re.compile(r"^(  )(\w+(?:, \w+)+): (.*(?:\n    .*)*)", flags=re.MULTILINE)


class Docstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value, obj.module.path if obj.is_module else obj.path)


def markdown(text: str, path: str) -> str:
    r"""Return a docstring as Markdown; short names are looked up relative to ``path``.

    >>> markdown("Takes :math:`x_i` from :func:`losac.simulate`.", "losac.task.Task")
    'Takes $x_i$ from <autoref identifier="losac.simulate" optional><code>losac.simulate</code></autoref>.'
    """
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    text = MATH.sub(_display, text)
    text = DOCTEST.sub(lambda found: textwrap.indent(f"```pycon\n{textwrap.dedent(found[0])}\n```", found[1]), text)
    text = SHARED.sub(lambda found: "\n".join(f"{found[1]}{name}: {found[3]}" for name in found[2].split(", ")), text)
    return ROLE.sub(lambda found: _link(found, path), text)


def _display(found: re.Match[str]) -> str:
    lines = "\n".join(line.strip() for line in found[2].strip().splitlines())
    if "&" in lines or r"\\" in lines:
        lines = f"\\begin{{aligned}}\n{lines}\n\\end{{aligned}}"
    return textwrap.indent(f"$$\n{lines}\n$$", found[1])


def _link(found: re.Match[str], path: str) -> str:
    short, name = found[1], found[2]
    target = name if name.startswith("losac.") else f"{path.rsplit('.', 1)[0]}.{name}"
    shown = name.rsplit(".", 1)[-1] if short else name
    return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'
