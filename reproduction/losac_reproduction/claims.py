"""The paper's claims as rows of data: what it says and where, the rule that judges it, and how the evidence is told.

A study writes its claims as :class:`Statement` and computes the numbers in them; :func:`judge` does the rest. The rule
reads ``"holds if wins >= 0.8 * cells | holds in part if wins | fails"``: the first verdict whose condition is true. Its
names, and those in the template's braces, are the study's numbers. The ``threshold`` says the same to a reader.

A claim that several studies measure is one claim: they state it in the same words, and :func:`pool` adds their counts
up and judges the sums. A statement without a rule only adds evidence to a claim that another study judges.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from string import Formatter
from typing import Any, Literal, NamedTuple

import numpy as np

from losac_reproduction.paper import SECTIONS
from losac_reproduction.words import say

Verdict = Literal["holds", "holds only at equal step size", "holds in part", "fails", "not testable"]
EVIDENCE = "evidence"
"""What stands for the verdict of a statement that adds evidence to a claim of another study."""

_FUNCTIONS = {f.__name__: f for f in (abs, all, any, len, max, min, sum)} | {"isfinite": math.isfinite, "np": np}


class Headline(NamedTuple):
    """A claim's row in the table of headline claims, as templates or as text.

    Args:
      title: the claim in a few words.
      paper: the paper's number.
      equal, length: ours at the paper's step size, and with SCAFFOLD's steps made as long as LoSAC's.
      tuned: ours with every step size tuned on the same budget.
      sustained: ours by the first of five evaluations in a row at the target instead of the first crossing.
    """

    title: str = ""
    paper: str = ""
    equal: str = ""
    length: str = ""
    tuned: str = ""
    sustained: str = ""


class Statement(NamedTuple):
    """A claim of the paper.

    Args:
      text: what the paper says.
      source: where: one of :data:`losac_reproduction.paper.SECTIONS`.
      rule: verdicts with their conditions, the first that is true counts; empty where another study judges the claim.
      template: the evidence, with the study's numbers in braces.
      threshold: the rule in plain words, and why it fits the claim.
      headline: its row among the headline claims, for those few.
    """

    text: str
    source: str
    rule: str
    template: str
    threshold: str = ""
    headline: Headline | None = None


class JudgedClaim(NamedTuple):
    """A claim of the paper, our verdict with its threshold, and the measured evidence for it.

    ``order`` is the place of its section in the paper; ``rule`` and ``numbers`` are what :func:`pool` judges by, and
    ``summed`` is the template of a headline that names no other numbers: :func:`pool` fills it with the sums.
    """

    text: str
    where: str
    verdict: str
    evidence: str
    threshold: str = ""
    order: int = 0
    headline: Headline | None = None
    rule: str = ""
    numbers: Mapping[str, Any] = {}
    summed: Headline | None = None

    def written(self) -> dict[str, Any]:
        """Return what a reader wants of it, as JSON holds it."""
        told = {name: value for name, value in self._asdict().items() if name not in ("rule", "numbers", "summed")}
        return told | {"headline": self.headline and self.headline._asdict()}


def verdict_of(rule: str, numbers: Mapping[str, Any]) -> str:
    """Return the first verdict of a rule whose condition is true.

    >>> [verdict_of("holds if wins == 3 | holds in part if wins | fails", {"wins": wins}) for wins in (3, 1, 0)]
    ['holds', 'holds in part', 'fails']
    """
    for verdict, condition in _parts(rule):
        if not condition or eval(condition, {"__builtins__": _FUNCTIONS}, dict(numbers)):
            return verdict
    raise ValueError(f"no verdict of the rule {rule!r} is true")


def _parts(rule: str) -> list[tuple[str, str]]:
    """Return the verdicts of a rule with their conditions."""
    parts = [part.strip().partition(" if ") for part in rule.split(" | ")]
    return [(verdict, condition) for verdict, _, condition in parts]


def names_in(rule: str) -> set[str]:
    """Return the numbers that a rule asks for.

    >>> sorted(names_in("holds if min(wins) >= 0.8 * cells | fails"))
    ['cells', 'wins']
    """
    trees = [ast.parse(condition, mode="eval") for _, condition in _parts(rule) if condition]
    names = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names - set(_FUNCTIONS)


def judge(statements: Iterable[Statement], numbers: Mapping[str, Any]) -> list[JudgedClaim]:
    """Judge statements by a study's numbers, which their texts, rules, templates and thresholds name."""
    return [
        JudgedClaim(
            say(s.text, numbers),
            s.source,
            verdict_of(s.rule, numbers) if s.rule else EVIDENCE,
            say(s.template, numbers),
            say(s.threshold, numbers),
            SECTIONS.index(s.source) if s.source in SECTIONS else len(SECTIONS),
            s.headline and Headline(*(say(part, numbers) for part in s.headline)),
            s.rule,
            {name: numbers[name] for name in sorted(names_in(s.rule))} if s.rule else {},
            s.headline if s.headline and s.rule and _fields(s.headline) <= names_in(s.rule) else None,
        )
        for s in statements
    ]


def _fields(headline: Headline) -> set[str]:
    """Return the numbers that a headline names."""
    return {name for part in headline for _, name, _, _ in Formatter().parse(part) if name is not None}


def pool(found: Mapping[str, Iterable[JudgedClaim]]) -> list[JudgedClaim]:
    """Return the claims of several studies, each once and in the paper's order.

    Args:
      found: the claims by the study's title, which is put before its evidence where several have some.

    >>> rule = Statement("LoSAC wins.", "Abstract", "holds if wins >= 2 | fails", "It wins {wins}.")
    >>> one, = pool({"A": judge([rule], {"wins": 1}), "B": judge([rule], {"wins": 1})})
    >>> one.verdict, one.evidence
    ('holds', 'A: It wins 1. B: It wins 1.')
    """
    groups: dict[str, list[tuple[str, JudgedClaim]]] = {}
    for title, claims in found.items():
        for claim in claims:
            groups.setdefault(claim.text, []).append((title, claim))
    return sorted(map(_pooled, groups.values()), key=lambda claim: claim.order)


def _pooled(parts: list[tuple[str, JudgedClaim]]) -> JudgedClaim:
    judged = [claim for _, claim in parts if claim.rule]
    first = judged[0] if judged else parts[0][1]
    if len(parts) == 1:
        return first
    numbers = first.numbers
    for claim in judged[1:]:
        numbers = {name: value + claim.numbers[name] for name, value in numbers.items()}
    rows = [claim.headline for _, claim in parts if claim.headline is not None]
    if first.summed is not None:
        evidence = [claim.headline for _, claim in parts if claim.headline is not None and not claim.rule]
        rows = [Headline(*(say(part, numbers) for part in first.summed)), *evidence]
    columns = [list(dict.fromkeys(text for text in column if text)) for column in zip(*rows)]
    return first._replace(
        verdict=verdict_of(first.rule, numbers) if first.rule else EVIDENCE,
        evidence=" ".join(f"{title}: {claim.evidence}" for title, claim in parts),
        headline=Headline(*("; ".join(texts) for texts in columns)) if rows else None,
        numbers=numbers,
    )
