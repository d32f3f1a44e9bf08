"""Notebooks as pages of the site: their words, their code, and what it printed and drew."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, NamedTuple


class Page(NamedTuple):
    """A page in Markdown, and its pictures by file name."""

    text: str
    pictures: dict[str, bytes]


def page(notebook: Path) -> Page:
    """Return a notebook, with the outputs that it was stored with."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    for cell in cells:
        source = _joined(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            parts.append(_output(output, f"{notebook.stem}-{len(pictures) + 1}.png", pictures))
    parts.append(f"*The notebook itself: `notebooks/{notebook.name}`; `jupyter lab` opens it.*")
    return Page("\n\n".join(part for part in parts if part) + "\n", pictures)


def _output(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        pictures[name] = base64.b64decode(_joined(data["image/png"]))
        return f"![What the code above draws]({name})"
    text = _joined(output["text"]) if "text" in output else _joined(data.get("text/plain", ""))
    return f"``` {{ .text .output }}\n{text.rstrip()}\n```" if text.strip() else ""


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)
