"""Write docs/algorithms.md and the pictures of docs/assets/algorithms from the code.

Run it from the repository's root; it takes a few minutes on two cores:

    python docs/generate_algorithms.py
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE, PICTURES = ROOT / "docs" / "algorithms.md", ROOT / "docs" / "assets" / "algorithms"
sys.path.insert(0, str(ROOT / "tests"))

import numpy as np  # noqa: E402

import losac  # noqa: E402
from catalogue import CATALOGUE, FULL, REGIMES, Entry, Regime  # noqa: E402
from losac._settings import snake_case  # noqa: E402
from losac.algorithms import ALGORITHMS  # noqa: E402
from losac.algorithms.facts import LOCAL_STEPS  # noqa: E402
from losac.report import describe, profile  # noqa: E402
from losac.report.describe import Description  # noqa: E402
from losac.report.profile import Profile  # noqa: E402
from losac.report.style import style  # noqa: E402
from problems import Quadratic, quadratic  # noqa: E402

ROUNDS, SHOWN, EVERY, WORKERS = 4000, 1500, 10, 2
REFUSES, DIVERGES = "refused", "diverges"

INTRO = """# The algorithms

Written by `python docs/generate_algorithms.py` from the code: the words are the docstrings', the numbers are measured.
`losac algorithms` prints the table for other models, and `losac algorithms NAME` the section of one of them.

## What they cost, keep and need

Messages and states are in sizes of the model, counted on the arrays of the compiled program, for {steps} local steps on
{blocks} blocks a round. *Down* and *up* are what a client of a round receives and sends; a phase that takes place by
chance counts by its probability. *Gradients* are single-sample gradients of a client in a round, in multiples of its
n_i (one local step on a block costs n_i/M), and how many a local step takes. *Settles* is the distance from the optimum
of a heterogeneous quadratic after {rounds} rounds in float64, all clients taking part, with full gradients and {steps}
local steps (one if the method has one, a random number if it draws it): up to {tolerance:g} counts as corrected.
"""

LAW = """## Where they settle

Law 1 of the tests: the distance (largest entry) from the optimum of a quadratic on {clients} clients that differ, after
{rounds} rounds at a constant step in float64, and what theory says: *exact* must come within 1e-9, *biased* must stay
beyond 1e-3, *refused* must be refused. Client sampling takes {sampled} of {clients} clients; each has {blocks} random
blocks. L is the largest curvature of a client; settings in braces are those of the three regimes.
"""


class Law(NamedTuple):
    """One row of law 1: a method with its settings, and its fate in the three regimes."""

    label: str
    expected: tuple[str, ...]
    found: tuple[str, ...]


class Curve(NamedTuple):
    """The distance from the optimum over the rounds; ``fate`` says why there is none."""

    rounds: np.ndarray
    distance: np.ndarray
    fate: str = ""


class Study(NamedTuple):
    """All that is measured of one algorithm."""

    profile: Profile
    laws: list[Law]
    pictured: str


def main() -> None:
    """Study all algorithms, then write the page."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("LOSAC_CPU_DEVICES", "1")
    with ProcessPoolExecutor(WORKERS, mp_context=multiprocessing.get_context("spawn")) as pool:
        studies = dict(zip(ALGORITHMS, pool.map(study, ALGORITHMS)))
    PAGE.write_text(page(studies), encoding="utf-8")
    print(PAGE)


def study(name: str) -> Study:
    """Measure one algorithm, and draw its picture."""
    problem = quadratic(clients=10)
    distance = {"distance": lambda params, batch: abs(params - problem.optimum).max()}
    task = losac.regression(losac.models.linear(4), problem.data, metrics=distance)
    entries = [entry for entry in CATALOGUE if entry.name == name]
    curves = [[run(task, problem, entry, regime) for regime in REGIMES] for entry in entries]
    shown = next((k for k, entry in enumerate(entries) if entry.make(1.0, FULL).draw.steps != 1), 0)
    draw(curves[shown], name)
    laws = [law(entry, found) for entry, found in zip(entries, curves)]
    print(name, flush=True)
    return Study(profile.measure(name, with_drift=True), laws, label(entries[shown]))


def run(task: losac.Task, problem: Quadratic, entry: Entry, regime: Regime) -> Curve:
    """Run an entry of the catalogue in a regime."""
    method = entry.make(problem.curvature, regime)
    options: dict[str, Any] = {"clients_per_round": regime.sampled, "eval_every": EVERY, "dtype": "float64"}
    try:
        history = losac.simulate(task, method, rounds=ROUNDS, **options)
    except ValueError:
        return Curve(np.zeros(0), np.zeros(0), REFUSES)
    except losac.DivergedError as error:
        return Curve(error.history.rounds, error.history.metrics["distance"], DIVERGES)
    return Curve(history.rounds, history.metrics["distance"])


def law(entry: Entry, curves: list[Curve]) -> Law:
    """Return the row of an entry."""
    expected = tuple(entry.expected(regime) for regime in REGIMES)
    return Law(label(entry), expected, tuple(curve.fate or f"{curve.distance[-1]:.0e}" for curve in curves))


def label(entry: Entry) -> str:
    """Return an entry's name and settings, with L for the curvature; in braces where the three regimes differ."""
    usual = ALGORITHMS[entry.name](1.0).settings()
    made = [(entry.make(1.0, regime).settings(), entry.make(2.0, regime).settings()) for regime in REGIMES]
    shown = {}
    for key in usual.keys() - {"blocks"}:
        values = [in_curvatures(one[key], two[key]) for one, two in made]
        if key == "step_size" or values[0] != in_curvatures(usual[key], usual[key]):
            shown[key] = values[0] if len(set(values)) == 1 else f"{{{', '.join(values)}}}"
    return f"{entry.name}({', '.join(f'{key}={shown[key]}' for key in usual if key in shown)})"


def in_curvatures(one: Any, two: Any) -> str:
    """Return a setting as it goes with the curvature, from its values at L = 1 and at L = 2."""
    if not isinstance(one, float):
        return repr(one)
    return f"{one:.3g}{ {2.0: '·L', 0.5: '/L'}.get(two / one if one else 1.0, '') }"


def draw(curves: list[Curve], name: str) -> None:
    """Draw the distance from the optimum in the three regimes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    figure, axes = plt.subplots(figsize=(6.4, 2.4), dpi=110, layout="constrained")
    for index, (curve, regime) in enumerate(zip(curves, REGIMES)):
        look = style(index)
        kind = f"{regime.name}: {curve.fate}" if curve.fate else regime.name
        drawn = np.maximum(curve.distance, 1e-16)
        axes.semilogy(curve.rounds, drawn, color=look.colour, ls=look.dashes, lw=1.4, label=kind.replace(", ", ",\n"))
    axes.set(xlim=(0, SHOWN), ylim=(1e-16, 1e2), xlabel="round", ylabel="distance from optimum", title=name)
    axes.set_yticks([1e-15, 1e-10, 1e-5, 1])
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", fontsize=8, frameon=False)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]
    image = Image.fromarray(pixels).quantize(palette=palette(), dither=Image.Dither.NONE)
    image.save(PICTURES / f"{name}.png", optimize=True)
    plt.close(figure)


def palette() -> Any:
    """Return an image with a palette of the colours of the lines and black, each in 16 shades up to white."""
    from PIL import Image, ImageColor

    colours = ["#000000", *(style(index).colour for index in range(len(REGIMES)))]
    inks = np.array([ImageColor.getrgb(colour) for colour in colours])
    shades = np.linspace(0, 1, 16)[:, None, None]
    image = Image.new("P", (1, 1))
    image.putpalette((inks + shades * (255 - inks)).round().astype(np.uint8).tobytes())
    return image


def page(studies: dict[str, Study]) -> str:
    """Return the whole page."""
    numbers = {"steps": LOCAL_STEPS, "blocks": profile.BLOCKS}
    intro = INTRO.format(**numbers, rounds=profile.DRIFT_ROUNDS, tolerance=profile.DRIFT_TOLERANCE)
    words = LAW.format(clients=FULL.sampled, rounds=ROUNDS, sampled=REGIMES[1].sampled, blocks=REGIMES[2].blocks)
    parts = [intro, costs_table({name: found.profile for name, found in studies.items()}), phases_note(studies)]
    parts += [words, laws_table([row for found in studies.values() for row in found.laws]), "## One by one"]
    parts += [section(name, found) for name, found in studies.items()]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def costs_table(profiles: dict[str, Profile]) -> str:
    """Return the table of all algorithms."""
    head = "algorithm|down|up|a client keeps|the server keeps|for each client|gradients / n_i|per step|phases|"
    head += "client sampling|regulariser|single uploads|corrects drift|settles"
    return table(head.split("|"), [[f"[{name}](#{name})", *cells(found)] for name, found in profiles.items()])


def cells(found: Profile) -> list[str]:
    """Return one row of numbers."""
    sizes = (found.down, found.up)
    rest = (found.server_state, found.server_rows, found.gradients, found.gradients_per_step, len(found.phases))
    needs = (found.samples_clients, found.regulariser, found.single_uploads, found.corrects_drift)
    return [
        *(f"{size:.3g}" for size in sizes),
        profile.state_in_words(found),
        *(f"{size:.3g}" for size in rest),
        *("yes" if need else "no" for need in needs),
        f"{found.distance:.0e}",
    ]


def phases_note(studies: dict[str, Study]) -> str:
    """Return the phases of the methods that have several."""
    lines = ["Methods with several phases, phase by phase:", ""]
    whom = {"sample": "the sampled clients", "same": "the same clients", "all": "all N clients"}
    for name, found in studies.items():
        phases = found.profile.phases
        chances = ["" if phase.chance == 1 else f" with probability {phase.chance:g}" for phase in phases]
        words = [
            f"{whom[phase.clients]}{chance}: "
            f"{phase.down:.3g} down, {phase.up:.3g} up, {phase.gradients:.3g} n_i gradients"
            for phase, chance in zip(phases, chances)
        ]
        lines += [f"- `{name}`: {'; then '.join(words)}."] if len(phases) > 1 else []
    return "\n".join(lines)


def laws_table(laws: list[Law]) -> str:
    """Return law 1's table: measured, and what theory says."""
    head = ["method", *(f"{regime.name}{part}" for regime in REGIMES for part in ("", ": theory"))]
    rows = [[f"`{row.label}`", *(word for pair in zip(row.found, row.expected) for word in pair)] for row in laws]
    return table(head, rows)


def section(name: str, found: Study) -> str:
    """Return what there is to say about one algorithm."""
    words: Description = describe.describe(name)
    body = [display(text) if kind == "math" else markdown(text) for kind, text in words.body]
    rows = [
        [f"`{p.name}`", p.default if p.default == "required" else f"`{p.default}`", p.allowed, markdown(p.meaning)]
        for p in words.parameters
    ]
    picture = f"![Distance from the optimum of {name} over the rounds](assets/algorithms/{name}.png)"
    parameters = table(["parameter", "default", "allowed", "meaning"], rows)
    caption = f"The picture shows `{found.pictured}`."
    reference = f"Reference: {markdown(words.reference)}"
    return "\n\n".join([f"### {name}", *body, picture, caption, parameters, reference])


def display(tex: str) -> str:
    """Return an equation as a block."""
    lines = "\n".join(line.strip() for line in tex.splitlines())
    aligned = "&" in lines or r"\\" in lines
    return "$$\n" + (f"\\begin{{aligned}}\n{lines}\n\\end{{aligned}}" if aligned else lines) + "\n$$"


def markdown(text: str) -> str:
    """Return reStructuredText's roles and literals in Markdown."""
    text = re.sub(r":math:`([^`]*)`", r"$\1$", text)
    text = re.sub(r":class:`[~\w.]*?(\w+)`", lambda found: f"`{snake_case(found[1])}`", text)
    text = re.sub(r":(?:data|func|mod):`([^`]*)`", r"`\1`", text)
    return text.replace("``", "`")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    main()
