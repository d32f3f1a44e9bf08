"""TeX to MathML, which browsers draw without help: the site needs no script and no network for its equations.

latex2mathml reads the TeX. What browsers draw worse than they could (they implement MathML Core, which knows neither
``columnalign`` nor script letters by attribute) is corrected here. A command that latex2mathml does not know is an
error that names it, and ends the build.
"""

from __future__ import annotations

import re
from html import unescape
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import convert_to_element

SCRIPT_A = 0x1D49C
UPRIGHT = set("ΓΔΘΛΞΠΣΦΨΩ∞")
WITH_LIMITS = {"max", "min", "lim"}
LIMITS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}


def mathml(tex: str, display: bool = False) -> str:
    """Return an equation as a ``<math>`` element.

    >>> mathml(r"x_i^2")
    '<math alttext="x_i^2"><msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup></math>'
    """
    lines = re.sub(r"\\(begin|end)\{aligned\}", r"\\\1{align*}", tex.strip()).replace(r"\arg", r"\operatorname{arg}")
    math = convert_to_element(lines, display="block" if display else "inline")
    _set_right(math, tex, display)
    (row,) = math
    math.attrib = {**({"display": "block"} if display else {}), "alttext": " ".join(tex.split())}
    math[:] = list(row)
    return tostring(math, encoding="unicode")


def _set_right(element: Element, tex: str, display: bool) -> None:
    """Correct an element and everything in it."""
    if _is_word(element):
        word = "".join(str(letter.text) for letter in element)
        element.tag, element.text, element.attrib, element[:] = "mi", word, {"mathvariant": "normal"}, []
    for child in element:
        _set_right(child, tex, display)
    if element.tag in LIMITS and display and element[0].text in WITH_LIMITS:
        element.tag = LIMITS[element.tag]
    if element.tag == "mover":
        element.attrib["accent"] = "true"
        element[1].attrib = {"stretchy": "false"}
    if element.tag == "mtd" and (side := element.attrib.pop("columnalign", "")):
        element.attrib["style"] = f"text-align:{side}"
    if element.text:
        _set_text_right(element, unescape(element.text), tex)


def _is_word(element: Element) -> bool:
    r"""Whether an element holds the letters of ``\mathrm``, which latex2mathml sets one by one."""
    upright = all(child.tag == "mi" and child.attrib == {"mathvariant": "normal"} for child in element)
    return element.tag == "mrow" and len(element) > 0 and upright


def _set_text_right(element: Element, text: str, tex: str) -> None:
    if "\\" in text and text not in (r"\{", r"\}"):
        raise ValueError(f"{text} in {' '.join(tex.split())} is not known to latex2mathml; write it in another way")
    element.text = text.removeprefix("\\")
    if element.attrib.get("mathvariant") == "script":
        element.attrib, element.text = {}, "".join(chr(SCRIPT_A + ord(letter) - ord("A")) for letter in text)
    elif element.tag == "mi" and set(text) <= UPRIGHT:
        element.attrib["mathvariant"] = "normal"
    elif element.tag == "mo" and text.isalpha():
        element.tag = "mi"
    elif text == "/":
        element.attrib |= {"lspace": "0", "rspace": "0"}
