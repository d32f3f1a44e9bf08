"""A page of paper, filled from the top: text that is broken into lines, tables and pictures, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure as Drawing
    from matplotlib.font_manager import FontProperties

WIDTH, HEIGHT, MARGIN = 8.27, 11.69, 0.55
"""Of A4 paper, in inches."""
INNER = WIDTH - 2 * MARGIN
POINT = 1 / 72
LEADING = 1.22
"""Height of a line in units of the size of its letters."""
FAMILIES = ("STIXGeneral", "DejaVu Sans")
"""matplotlib brings both; the second has the letters that the first lacks."""
GREY = "0.4"


class TextLook(NamedTuple):
    """How text is set: its size in points, whether bold or slanted, and its colour."""

    size: float = 9.5
    bold: bool = False
    slanted: bool = False
    colour: str = "black"


class SheetColumn(NamedTuple):
    """A column of a table: its head, its share of the width, whether set to the right, and the look of a cell."""

    head: str
    share: float
    right: bool = False
    look: Callable[[str], Mapping[str, Any]] = lambda cell: {}


@lru_cache(maxsize=256)
def _font(size: float, bold: bool, slanted: bool) -> FontProperties:
    from matplotlib.font_manager import FontProperties

    weight: Literal["bold", "normal"] = "bold" if bold else "normal"
    style: Literal["italic", "normal"] = "italic" if slanted else "normal"
    return FontProperties(family=list(FAMILIES), size=size, weight=weight, style=style)


@lru_cache(maxsize=20_000)
def _width(word: str, look: TextLook) -> float:
    """Return how wide a word is, in inches."""
    from matplotlib.textpath import text_to_path

    font = _font(look.size, look.bold, look.slanted)
    return float(text_to_path.get_text_width_height_descent(word, font, ismath=False)[0]) * POINT


def wrap(text: str, width: float, look: TextLook) -> list[str]:
    """Break text into lines that are no wider than so many inches; a word that is wider is cut.

    >>> wrap("one two three", 0.6, TextLook(10))
    ['one two', 'three']
    """
    lines, used, space = [""], 0.0, _width("n n", look) - 2 * _width("n", look)
    for word in text.split(" "):
        needed = _width(word, look)
        if lines[-1] and used + space + needed <= width:
            lines[-1] += f" {word}"
            used += space + needed
            continue
        lines.append(word)
        while _width(lines[-1], look) > width and len(lines[-1]) > 1:
            fits = next(k for k in range(len(lines[-1]) - 1, 0, -1) if k == 1 or _width(lines[-1][:k], look) <= width)
            lines[-1:] = [lines[-1][:fits], lines[-1][fits:]]
        used = _width(lines[-1], look)
    return lines[1:]


def _placed(drawing: Drawing, share: float, left: float, bottom: float) -> Artist:
    """Return an artist that draws a figure at a place of a page, in inches, and smaller: as vectors in a PDF."""
    from matplotlib.artist import Artist

    class Placed(Artist):
        """The figure, which PDF scales as a whole."""

        def draw(self, renderer: Any) -> None:
            from matplotlib.backends.backend_pdf import Op

            drawing.set_dpi(72)
            file = renderer.file
            size = file.width, file.height
            file.output(*renderer.gc.finalize())
            file.output(Op.gsave)
            file.output(share, 0, 0, share, 72 * left, 72 * bottom, Op.concat_matrix)
            file.width, file.height = drawing.get_size_inches()  # nothing beyond these is drawn
            drawing.draw(renderer)
            file.width, file.height = size
            file.output(*renderer.gc.finalize())
            file.output(Op.grestore)

    return Placed()


class Sheet:
    """A page; ``y`` is how far it is filled, in inches from the top. It is saved as PDF."""

    def __init__(self) -> None:
        from matplotlib.figure import Figure as Drawing

        self.drawing = Drawing((WIDTH, HEIGHT), facecolor="white")
        self.y = MARGIN

    @property
    def left(self) -> float:
        """Inches that are left above the lower margin."""
        return HEIGHT - MARGIN - self.y

    def line(self, text: str, x: float, y: float, look: TextLook, align: str = "left") -> None:
        """Put a line of text with its baseline at y."""
        self.drawing.text(
            x / WIDTH, 1 - y / HEIGHT, text, font=_font(look.size, look.bold, look.slanted), color=look.colour,
            ha=align, va="baseline", parse_math=False,
        )  # fmt: skip

    def rule(self, y: float, weight: float, x: float = MARGIN, width: float = INNER, colour: str = "black") -> None:
        """Draw a horizontal line."""
        from matplotlib.lines import Line2D

        ends = [x / WIDTH, (x + width) / WIDTH]
        self.drawing.add_artist(Line2D(ends, [1 - y / HEIGHT] * 2, color=colour, linewidth=weight))

    def gap(self, inches: float) -> None:
        """Leave room."""
        self.y += inches

    def paragraph(self, text: str, look: TextLook, indent: float = 0.0) -> None:
        """Add text over the whole width."""
        for each in wrap(text, INNER - indent, look):
            self.y += look.size * LEADING * POINT
            self.line(each, MARGIN + indent, self.y - 0.2 * look.size * POINT, look)

    def heading(self, text: str) -> None:
        """Add a title of a section."""
        self.gap(0.1)
        self.paragraph(text, TextLook(11.5, bold=True, colour="#1f4e79"))
        self.gap(0.04)

    def table(
        self,
        columns: Sequence[SheetColumn],
        rows: Sequence[Sequence[str]],
        size: float,
        groups: Sequence[tuple[str, int]] = (),
        lined: bool = True,
        gap: float = 0.35,
    ) -> None:
        """Add a table over the whole width; text in cells is broken into lines.

        Args:
          columns: from left to right.
          rows: the cells; a row of one cell is a subtitle.
          size: of the letters, in points.
          groups: heads over several columns each, with their number.
          lined: whether there are lines between the rows.
          gap: between the rows, in units of the size of the letters.
        """
        total, pad = sum(column.share for column in columns), 0.04
        widths = [INNER * column.share / total for column in columns]
        starts = [MARGIN + sum(widths[:k]) for k in range(len(widths))]
        step = size * LEADING * POINT

        def add(cells: Sequence[str], looks: Sequence[TextLook]) -> None:
            room = [INNER] if len(cells) == 1 else widths
            broken = [wrap(cell, width - 2 * pad, look) for cell, width, look in zip(cells, room, looks)]
            for column, start, width, lines, look in zip(columns, starts, room, broken, looks):
                right = column.right and len(cells) > 1
                for place, text in enumerate(lines):
                    x = start + width - pad if right else start + pad
                    y = self.y + (place + 1) * step - 0.22 * size * POINT
                    self.line(text, x, y, look, "right" if right else "left")
            self.y += max(map(len, broken)) * step + gap * size * POINT

        self.rule(self.y, 0.9)
        self.gap(0.02)
        first = 0
        for text, span in groups:
            width = sum(widths[first : first + span])
            if text:
                self.line(
                    text,
                    starts[first] + width / 2,
                    self.y + step - 0.2 * size * POINT,
                    TextLook(size, bold=True),
                    "center",
                )
                self.rule(self.y + step + 0.02, 0.4, starts[first] + pad, width - 2 * pad)
            first += span
        self.gap(step + 0.04 if groups else 0)
        add([column.head for column in columns], [TextLook(size, bold=True)] * len(columns))
        self.rule(self.y, 0.5)
        self.gap(0.02)
        for cells in rows:
            if len(cells) == 1:
                add(cells, [TextLook(size, bold=True, slanted=True)])
                continue
            add(cells, [TextLook(size)._replace(**column.look(cell)) for column, cell in zip(columns, cells)])
            if lined and cells is not rows[-1]:
                self.rule(self.y, 0.4, colour="0.85")
                self.gap(0.02)
        self.rule(self.y, 0.9)
        self.gap(0.06)

    def picture(self, drawing: Drawing, width: float = INNER) -> None:
        """Add a drawing in the middle, so many inches wide: its letters and lines shrink with it."""
        across, high = drawing.get_size_inches()
        self.y += width * high / across
        self.drawing.add_artist(_placed(drawing, width / across, (WIDTH - width) / 2, HEIGHT - self.y))

    def foot(self, text: str, number: str) -> None:
        """Put a line below the lower margin: text on the left, the number of the page on the right."""
        y = HEIGHT - 0.36
        self.rule(y - 0.14, 0.4)
        self.line(text, MARGIN, y, TextLook(7.5, colour=GREY))
        self.line(number, WIDTH - MARGIN, y, TextLook(7.5, colour=GREY), "right")
