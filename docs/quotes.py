"""The numbers in hand-written pages, each with the result that it comes from.

    python docs/quotes.py

fills the present numbers into the pages; `docs/generate_results.py` does so too. A :class:`Quote` is a piece of a page
as a template. Its fields are computed from the results under docs/results, and the words between them find it in the
page: edit the words in both places. ``tests/test_numbers.py`` compares every number, and refuses one without a quote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import NamedTuple

from sources import demo, timed, verdicts

from losac_reproduction.quoted import (
    Numbers,
    Parts,
    attacked,
    damped,
    iid,
    leakage,
    non_iid,
    privacy,
    table_2,
    theorem_1,
)
from losac_reproduction.quoted_rank import ranked
from losac_reproduction.words import say, told

ROOT = Path(__file__).parent.parent
NUMBER = r"\d+ min \d+ s|[-−+]?\d+(?:[.,]\d+)*(?:e[-−]?\d+)?(?:st|nd|rd|th)?(?:\s(?:%|(?:min|s|h)\b))?"


class Quote(NamedTuple):
    """Numbers in a page.

    Args:
      page: its path in the repository.
      source: the study, or the name of a command in docs/results/commands.json, that the numbers come from.
      template: the words around them, and a field in braces for each; the words may be broken into lines anywhere.
      numbers: what computes them.
    """

    page: str
    source: str
    template: str
    numbers: Callable[[Parts], Numbers]


README, INDEX, COMMAND_LINE = "README.md", "docs/index.md", "docs/command_line.md"
METHOD, CHOOSING, LEAKAGE = "docs/method.md", "docs/choosing.md", "docs/leakage.md"
WHERE = [f"{model}_{rows}" for model in ("logistic", "network") for rows in (1, 8, 60)]
ATTACKED = (
    "DSGD", "FedAvg, T = 5", "SCAFFOLD, T = 5", "MimeSVRG, T = 5", "LoSAC, T = 1, M = 1", "LoSAC, T = 5, M = 1",
    "LoSAC, T = 1, M = 5", "LoSAC, T = 5, M = 5",
)  # fmt: skip
"""The columns and the rows of the table in the page on leakage."""


def recovered(method: str) -> str:
    """Return the row of a method in that table; with M = 5 a client has five rows at least."""
    name = attacked(method)
    cells = [
        "–" if "M = 5" in method and where.endswith("_1") else f"{{{name}_{where}:.0f}} ({{{name}_share_{where}}})"
        for where in WHERE
    ]
    return f"| {method} | {' | '.join(cells)} |"


QUOTES = (
    Quote(README, "make demo", "LoSAC ends at a loss of {losac_loss:.3f} and {losac_accuracy:.1%}, SCAFFOLD at "
          "{scaffold_loss:.3f} and {scaffold_accuracy:.1%}.", demo),
    Quote(README, "make demo", "SCAFFOLD ends at {long_loss:.3f} and {long_accuracy:.1%}.", demo),
    Quote(README, "table2", "on MNIST, M = {lost_m} with T = {lost_t} diverges in {lost} of {seeds} seeds, and "
          "with M = {low_m} and T = {low_t} a run ends at {low:.1%}", table_2),
    Quote(README, "rank-digits",
          "On sorted and on IID digits it then sends {least:.0f} to {most:.0f} times less than LoSAC", ranked),
    Quote(README, "all", "Of the {claims} claims of the paper {counts}: [the paper, reproduced]", verdicts),
    Quote(INDEX, "make demo", "demo/report.html [{time}]", lambda parts: timed("make demo")),
    Quote(INDEX, "losac run", "Look at it with: losac report runs/first [{time}]", lambda parts: timed("losac run")),
    Quote(INDEX, "losac report", "demo --out report.html report.html [{time}]", lambda parts: timed("losac report")),
    Quote(COMMAND_LINE, "losac reproduce all --quick", "all experiments of the paper, short: {minutes} minutes on two "
          "cores", lambda parts: timed("losac reproduce all --quick")),
    Quote(METHOD, "damped", "[{maps} maps over (step, δ)]", damped),
    Quote(METHOD, "table2", "needs fewer rounds than SCAFFOLD in {first_scaffold} of {cells} cells: "
          "{first_scaffold_mnist} of {cells_mnist} on MNIST, {first_scaffold_har} on HAR and {first_scaffold_esr} "
          "on ESR, where the paper has {paper_mnist}, {paper_har} and {paper_esr}.", table_2),
    Quote(METHOD, "table2", "it needs fewer in {first_long}. Counted to the first of five evaluations in a row at "
          "85 %, which a spike does not reach, it needs fewer in {stayed_scaffold} and {stayed_long}.", table_2),
    Quote(CHOOSING, "theorem1", "of the {methods} methods that can sample clients only {exact} come to 1e-10 of it",
          theorem_1),
    Quote(CHOOSING, "theorem1", "LoSAC in {quadratic} rounds on least squares, {a9a} on a9a, {w8a} on w8a; the others "
          "are at {stop:.3f} or farther after {after} rounds, each at its best step of one grid", theorem_1),
    Quote(CHOOSING, "theorem1", "gets there {soonest:.1f} to {latest:.1f} times sooner", theorem_1),
    Quote(CHOOSING, "fair", "it is {rule_mnist}, {rule_har} and {rule_esr} of {methods} methods (the others tuned) in "
          "sustained rounds on MNIST, HAR and ESR ({rule_crossing_mnist}, {rule_crossing_har} and {rule_crossing_esr} "
          "to the first crossing), and its accuracy cannot be distinguished from the best on "
          "{accurate} (`fair`)", non_iid),
    Quote(CHOOSING, "fair", "Among those that ask only the sampled clients, {lead_mnist} need the fewest sustained "
          "rounds on MNIST, {lead_har} on HAR, and {lead_esr} on ESR; LoSAC is {sampled_mnist}, {sampled_har} and "
          "{sampled_esr} ({sampled_crossing_mnist}, {sampled_crossing_har} and {sampled_crossing_esr} to the first "
          "crossing)", non_iid),
    Quote(CHOOSING, "fair-iid", "tuned, it is {losac_mnist}, {losac_har} and {losac_esr} of {methods} in sustained "
          "rounds on MNIST, HAR and ESR ({losac_crossing_mnist}, {losac_crossing_har} and {losac_crossing_esr} to the "
          "first crossing); {first_mnist} needs {rounds_mnist:.0f} on MNIST where LoSAC needs "
          "{own_mnist:.0f}. {lead_mnist} lead on MNIST, {lead_har} on HAR, {lead_esr} on ESR. The lowest test loss "
          "on HAR is that of {loss_har} (`fair-iid`)", iid),
    Quote(CHOOSING, "fair", "Of those that have, {bytes_mnist} needs the fewest bytes to stay at the target on MNIST, "
          "{bytes_har} on HAR and {bytes_esr} on ESR; the best LoSAC is {bytes_place_mnist}, {bytes_place_har} and "
          "{bytes_place_esr} of {methods} (`fair`)", non_iid),
    Quote(CHOOSING, "fair-iid", "with IID clients {bytes_place_mnist}, {bytes_place_har} and {bytes_place_esr} "
          "(`fair-iid`)", iid),
    Quote(CHOOSING, "table2", "fewer rounds in {first_long} of {cells} cells instead of {first_scaffold}, median loss "
          "ratio {lower_long:.2f} instead of {lower_scaffold:.2f}, over the {ended} cells where no seed diverged",
          table_2),
    Quote(CHOOSING, "table2", "on MNIST, M = {lost_m} with T = {lost_t} diverges in {lost} of {seeds} seeds, and with "
          "M = {low_m} and T = {low_t} a run ends at {low:.1%}", table_2),
    Quote(CHOOSING, "table2", "By the first of five evaluations in a row at the target it leads in {stayed_long} "
          "instead of {stayed_scaffold}", table_2),
    Quote(CHOOSING, "damped", "paper's scaling at the paper's step size in {lower} of {settings} settings", damped),
    Quote(CHOOSING, "damped", "its best loss is {unbiased:.2f} times the map's best on average", damped),
    Quote(CHOOSING, "fair", "SCAFFOLD needs {ratio_mnist:.2f} (MNIST), {ratio_har:.2f} (HAR) and {ratio_esr:.2f} (ESR) "
          "times LoSAC's sustained rounds, and {crossing_mnist:.2f}, {crossing_har:.2f} and {crossing_esr:.2f} times "
          "its rounds to the first crossing (`fair`)", non_iid),
    Quote(CHOOSING, "fair", "The best were η = {eta_mnist} with γ = {gamma_mnist} on MNIST and η = {eta_har} with "
          "γ = {gamma_har} on HAR", non_iid),
    Quote(CHOOSING, "damped", "on ill-conditioned ones length {length} and δ = {delta} do", damped),
    Quote(CHOOSING, "fair-iid", "with IID clients {ratio_mnist:.2f}, {ratio_har:.2f} and {ratio_esr:.2f} times "
          "sustained, and {crossing_mnist:.2f}, {crossing_har:.2f} and {crossing_esr:.2f} times at first (`fair-iid`)",
          iid),
    Quote(LEAKAGE, "leakage", "| *no attack: class mean* | " + " | ".join(f"{{control_{w}:.0f}}" for w in WHERE) + " |",
          leakage),
    Quote(LEAKAGE, "leakage", "| *the paper's DLG, on DSGD* | " + " | ".join(f"{{dlg_{w}}}" for w in WHERE) + " |",
          leakage),
    *(Quote(LEAKAGE, "leakage", recovered(method), leakage) for method in ATTACKED),
    Quote(LEAKAGE, "leakage", "with 8 rows still {losac_t5_m5_share_logistic_8} of them (logistic regression) and "
          "{losac_t5_m5_share_network_8} (2NN)", leakage),
    Quote(LEAKAGE, "leakage", "up Δφ gives the last local gradient at M = 1 to {error} in double precision", leakage),
    Quote(LEAKAGE, "privacy", "rows are recovered to {fedavg_t5_bits:.0f} dB (FedAvg, T = 5) and "
          "{losac_t1_m1_bits:.0f} dB (LoSAC, T = M = 1); with the 10 % largest entries to {fedavg_t5_largest:.0f} and "
          "{losac_t1_m1_largest:.0f} dB", privacy),
    Quote(LEAKAGE, "privacy", "z = {z}, FedAvg (T = 5, 1000 clients of 8 rows) loses {fedavg_t5_cost:.1f} points of "
          "accuracy and LoSAC (T = M = 1) {losac_t1_m1_cost:.1f}, {losac_t1_m1_clipped:.1f} of them by the clipping",
          privacy),
    Quote(LEAKAGE, "privacy", "But ε is {epsilon} against the server", privacy),
    Quote(CHOOSING, "rank-digits", "it needs {of_best_s:.2f}, {of_best_d:.2f} and {of_best_i:.2f} times the rounds of "
          "the best tuned rival on digits (sorted, Dirichlet, IID), and {collapsed} of {runs} runs collapsed", ranked),
    Quote(CHOOSING, "rank-digits", "On digits its sparse form sends the least of {methods} methods with labels sorted "
          "and with IID clients, {sparse_times_s} and {sparse_times_i} times less than LoSAC; with Dirichlet some runs "
          "miss the target, and the low-rank form is within {apart:.0f} % of the least", ranked),
    Quote(CHOOSING, "rank-digits", "| fewest rounds | {first_s}: {rounds_s:.0f} | {first_d}: {rounds_d:.0f} | "
          "{first_i}: {rounds_i:.0f} |", ranked),
    Quote(CHOOSING, "rank-digits", "| LoSAC | {losac_s:.0f} | {losac_d:.0f} | {losac_i:.0f} |", ranked),
    Quote(CHOOSING, "rank-digits", "| LoSAC-lean | {lean_s:.0f} | {lean_d:.0f} | {lean_i:.0f} |", ranked),
    Quote(CHOOSING, "rank-digits", "| LoSAC-lean, automatic step, *untuned* | {automatic_s:.0f} | {automatic_d:.0f} | "
          "{automatic_i:.0f} |", ranked),
    Quote(CHOOSING, "rank-digits", "| fewest MB up | {cheap_s}: {mb_s:.3f} | {cheap_d}: {mb_d:.3f} | {cheap_i}: "
          "{mb_i:.3f} |", ranked),
    Quote(CHOOSING, "rank-digits", "| LoSAC-lean, sparse, MB up | {sparse_s} | {sparse_d} | {sparse_i} |", ranked),
    Quote(CHOOSING, "rank-digits", "| LoSAC-lean, low rank, MB up | {thin_s} | {thin_d} | {thin_i} |", ranked),
    Quote(CHOOSING, "rank-digits", "| LoSAC, MB up | {losac_mb_s:.2f} | {losac_mb_d:.2f} | {losac_mb_i:.2f} |", ranked),
    Quote(CHOOSING, "theorem1", "by a factor of {best:.2f} (least squares) to {worst:.2f} (a9a, w8a) per round, in "
          "{linear} of {tried} cases tried", theorem_1),
)  # fmt: skip
PLAIN: Mapping[str, Sequence[str]] = {
    README: (
        r"Python 3\.11",
        r"digits sorted by label over 20 clients, 5 per round, 3 seeds",
        r"to 1e-9",
        r"5 % of it in one byte per number",
    ),
    METHOD: (
        r"to 1e-9 and beyond 1e-3",
        r"\bat 85 %",
        r"\bTable 2\b",
        r"\b[MN1]?/[NMS]+\b",
        r"[yφγ] = [01]\b",
        r"\(1 − ",
        r"√\(S/N\)/5",
        r"momentum 1 − p",
        r"below 1;",
        r"\(4 − 2p\)/\(2δ − p\)",
        r"η = 12/\(γTL\)",
    ),
    CHOOSING: (
        r"\b[aw]\d+a\b",
        r"\b1e-10\b",
        r"\bTable 2\b",
        r"Theorem 1\b",
        r"300 clients",
        r"M = 1",
        r"δ = 1\b",
        r"ℓ1\b",
        r"√\(S/N\)/5 and η = 12/\(γTL\)",
        r"γ between 1 and 5",
        r"γ = 1,",
        r"where the paper has η = 1e-4",
        r"100 clients, 10 a round",
        r"95 %",
        r"Dirichlet\(0\.3\)",
        r"30 trials",
        r"10 seeds",
    ),
}
"""What else in these pages has digits, as patterns: settings, versions, promises of tests, names; not results."""


# From the page to the number, and back


def pattern(template: str, filled: Mapping[str, str]) -> re.Pattern[str]:
    """Return what finds a template in a page: a group for each field, which is a number or some words."""
    parts = []
    for words, name, _, _ in Formatter().parse(template):
        parts.append(re.sub(r"(?:\\ )+", r"\\s+", re.escape(words)))
        if name is not None:
            parts.append(f"({NUMBER})" if re.fullmatch(NUMBER, filled[name]) else r"([^|;.`]+?)")
    return re.compile("".join(parts))


def fields(template: str, numbers: Numbers) -> list[tuple[str, str]]:
    """Return the fields of a template as text, in order."""
    parts = [(name, spec) for _, name, spec, _ in Formatter().parse(template) if name is not None]
    return [(name, told(numbers[name], spec or "")) for name, spec in parts]


def found_in(text: str, quote: Quote, numbers: Numbers) -> re.Match[str]:
    """Return where a quote stands in its page; exactly one place has its words."""
    found = list(pattern(quote.template, dict(fields(quote.template, numbers))).finditer(text))
    if len(found) != 1:
        raise ValueError(f"{quote.page}: found {len(found)} times: {quote.template!r}; edit the quote or the page")
    return found[0]


def filled(text: str, quote: Quote, numbers: Numbers) -> str:
    """Return a page with the numbers of a quote filled in; what is right already stays as it is broken into lines."""
    found = found_in(text, quote, numbers)
    for place, (_, value) in reversed(list(enumerate(fields(quote.template, numbers), 1))):
        if " ".join(found[place].split()) != value:
            text = text[: found.start(place)] + value + text[found.end(place) :]
    return text


def all_quotes(parts: Parts) -> list[tuple[Quote, Numbers]]:
    """Return the quotes whose results are there, with their numbers."""
    known: dict[Callable[[Parts], Numbers], Numbers | None] = {}
    for quote in QUOTES:
        if quote.numbers not in known:
            try:
                known[quote.numbers] = quote.numbers(parts)
            except LookupError:
                known[quote.numbers] = None
    found = [(quote, known[quote.numbers]) for quote in QUOTES]
    return [(quote, numbers) for quote, numbers in found if numbers is not None]


def fill_pages(parts: Parts) -> list[str]:
    """Fill all numbers into the pages; return what changed."""
    changed = []
    for quote, numbers in all_quotes(parts):
        path = ROOT / quote.page
        before = path.read_text(encoding="utf-8")
        after = filled(before, quote, numbers)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(f"{quote.page}: {say(quote.template, numbers)}")
    return changed


def unquoted(parts: Parts, page: str) -> list[str]:
    """Return the lines of a page that have a digit which belongs to no quote, code, link or plain fact."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for quote, numbers in all_quotes(parts):
        if quote.page == page:
            found = found_in(text, quote, numbers)
            text = text[: found.start()] + re.sub(r"\d", "_", found[0]) + text[found.end() :]
    masked = (r"```.*?```", r"(?m)^    [^\n]*$", r"`[^`]*`", r"\]\([^)]*\)", *PLAIN[page])
    for each in masked:
        text = re.sub(each, lambda found: re.sub(r"\d", "_", found[0]), text, flags=re.DOTALL)
    return [line for line in text.splitlines() if re.search(r"\d", line)]


if __name__ == "__main__":
    from generate_results import published

    print(*fill_pages(published()[0]), sep="\n")
