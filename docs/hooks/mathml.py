"""TeX to MathML, which browsers draw by themselves: the site needs no script and no network for its equations.

Only what the docs use is known; anything else is an error that names it, and ends the build.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import NamedTuple

LETTERS = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ϵ", "varepsilon": "ε", "eta": "η",
    "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ", "phi": "ϕ",
    "chi": "χ", "psi": "ψ", "omega": "ω", "ell": "ℓ",
}  # fmt: skip
UPRIGHT = {"Delta": "Δ", "Gamma": "Γ", "Phi": "Φ", "Psi": "Ψ", "Omega": "Ω", "infty": "∞"}
NAMES = ("arg", "exp", "lim", "log", "max", "min")
OPERATORS = {
    "leftarrow": "←", "in": "∈", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "odot": "⊙", "cdot": "·", "nabla": "∇",
    "times": "×", "sim": "∼", "to": "→", "neq": "≠",
}  # fmt: skip
FENCES = {"|": "‖", "{": "{", "}": "}", "langle": "⟨", "rangle": "⟩", "lfloor": "⌊", "rfloor": "⌋"}
SPACES = {",": 0.17, ";": 0.28, " ": 0.25, "quad": 1, "qquad": 2}
ACCENTS = {"hat": "^", "bar": "¯", "tilde": "~"}
SIZES = {"big": 1.2, "Big": 1.8}
TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\s+|.", flags=re.DOTALL)


class Atom(NamedTuple):
    """A piece of MathML, and whether what stands below and above it goes there in displayed equations."""

    markup: str
    limits: bool = False


def mathml(tex: str, display: bool = False) -> str:
    """Return an equation as a ``<math>`` element.

    >>> mathml(r"x_i^2")
    '<math alttext="x_i^2"><msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup></math>'
    """
    reader = Reader(TOKEN.findall(tex.strip()), display)
    body = reader.row(None)
    kind = ' display="block"' if display else ""
    return f'<math{kind} alttext="{escape(" ".join(tex.split()))}">{body}</math>'


class Reader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[str], display: bool) -> None:
        self.tokens, self.display = tokens, display

    def next(self) -> str:
        """Take the next token that is not a space."""
        while self.tokens:
            token = self.tokens.pop(0)
            if not token.isspace():
                return token
        raise ValueError("an equation ends where something must follow")

    def ahead(self) -> str | None:
        """Return the next token that is not a space, without taking it."""
        return next((token for token in self.tokens if not token.isspace()), None)

    def row(self, end: str | None) -> str:
        """Read up to ``end``, and take it."""
        pieces = []
        while self.ahead() != end:
            pieces.append(self.scripted())
        if end is not None:
            self.next()
        return "".join(pieces)

    def scripted(self) -> str:
        """Read one atom with what stands below and above it."""
        atom, below, above = self.atom(self.next()), "", ""
        while self.ahead() in ("_", "^"):
            if self.next() == "_":
                below = self.argument()
            else:
                above = self.argument()
        low, high, both = ("munder", "mover", "munderover") if atom.limits else ("msub", "msup", "msubsup")
        if below and above:
            return f"<{both}>{atom.markup}{below}{above}</{both}>"
        if below or above:
            kind = low if below else high
            return f"<{kind}>{atom.markup}{below or above}</{kind}>"
        return atom.markup

    def argument(self) -> str:
        """Read what a command takes: one group in braces, one digit, or one atom."""
        token = self.next()
        if token[0].isdigit() and len(token) > 1:
            self.tokens.insert(0, token[1:])
            token = token[0]
        return self.atom(token).markup

    def words(self) -> str:
        """Read a group in braces as it is written; or the one token that stands for it."""
        if self.ahead() != "{":
            return self.next()
        self.next()
        found = ""
        while (token := self.tokens.pop(0)) != "}":
            found += token
        return found

    def atom(self, token: str) -> Atom:
        """Return what a token, with what it takes, becomes."""
        if token == "{":
            return Atom(f"<mrow>{self.row('}')}</mrow>")
        if token.startswith("\\"):
            return self.command(token[1:])
        if token[0].isdigit():
            return Atom(f"<mn>{token}</mn>")
        if token.isalpha():
            return Atom(f"<mi>{token}</mi>")
        if token == "/":
            return Atom('<mo lspace="0" rspace="0">/</mo>')
        if token in "()[]|":
            return Atom(f'<mo stretchy="false">{token}</mo>')
        return Atom(f"<mo>{escape({'-': '−', chr(39): '′'}.get(token, token))}</mo>")

    def command(self, name: str) -> Atom:
        """Return what a command becomes."""
        if name in COMMANDS:
            return COMMANDS[name](self)
        if name in LETTERS:
            return Atom(f"<mi>{LETTERS[name]}</mi>")
        if name in UPRIGHT:
            return Atom(f'<mi mathvariant="normal">{UPRIGHT[name]}</mi>')
        if name in NAMES:
            return Atom(f"<mi>{name}</mi>", limits=self.display and name in ("max", "min", "lim"))
        if name in OPERATORS:
            return Atom(f"<mo>{OPERATORS[name]}</mo>")
        if name in FENCES:
            return Atom(f'<mo stretchy="false">{FENCES[name]}</mo>')
        if name in SPACES:
            return Atom(f'<mspace width="{SPACES[name]}em"/>')
        if name in ACCENTS:
            return Atom(f'<mover accent="true">{self.argument()}<mo stretchy="false">{ACCENTS[name]}</mo></mover>')
        if name in SIZES:
            fence = self.next()
            size = SIZES[name]
            return Atom(f'<mo minsize="{size}em" maxsize="{size}em">{FENCES.get(fence.lstrip(chr(92)), fence)}</mo>')
        raise ValueError(f"\\{name} is not known to docs/hooks/mathml.py; add it there")


def _fraction(reader: Reader) -> Atom:
    return Atom(f"<mfrac>{reader.argument()}{reader.argument()}</mfrac>")


def _small_fraction(reader: Reader) -> Atom:
    return Atom(f'<mstyle displaystyle="false">{_fraction(reader).markup}</mstyle>')


def _root(reader: Reader) -> Atom:
    return Atom(f"<msqrt>{reader.argument()}</msqrt>")


def _sum(reader: Reader) -> Atom:
    return Atom("<mo>∑</mo>", limits=reader.display)


def _upright(reader: Reader) -> Atom:
    return Atom(f'<mi mathvariant="normal">{reader.words()}</mi>')


def _script(reader: Reader) -> Atom:
    return Atom(f"<mi>{''.join(chr(0x1D49C + ord(letter) - ord('A')) for letter in reader.words())}</mi>")


def _text(reader: Reader) -> Atom:
    return Atom(f"<mtext>{escape(reader.words()).replace(' ', chr(0xA0))}</mtext>")


def _table(reader: Reader) -> Atom:
    kind = reader.words()
    if kind != "aligned":
        raise ValueError(f"\\begin{{{kind}}} is not known to docs/hooks/mathml.py; add it there")
    rows = [[""]]
    while (token := reader.ahead()) != "\\end":
        if token == "\\\\":
            reader.next()
            rows.append([""])
        elif token == "&":
            reader.next()
            rows[-1].append("")
        else:
            rows[-1][-1] += reader.scripted()
    reader.next(), reader.words()
    sides = ("right", "left")
    cells = [
        "".join(f'<mtd style="text-align:{sides[place % 2]}">{cell}</mtd>' for place, cell in enumerate(row))
        for row in rows
    ]
    return Atom(f'<mtable displaystyle="true">{"".join(f"<mtr>{row}</mtr>" for row in cells)}</mtable>')


COMMANDS: dict[str, Callable[[Reader], Atom]] = {
    "begin": _table,
    "frac": _fraction,
    "mathcal": _script,
    "mathrm": _upright,
    "sqrt": _root,
    "sum": _sum,
    "text": _text,
    "tfrac": _small_fraction,
}
