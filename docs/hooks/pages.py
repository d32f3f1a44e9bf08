"""Hooks of the site: pages that live outside docs/, links that leave it, and equations without a script."""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import notebooks
from mathml import mathml

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
EQUATION = re.compile(r'<(div|span) class="arithmatex">(?:\\\[|\\\()(.*?)(?:\\\]|\\\))</\1>', flags=re.DOTALL)


def outside() -> dict[str, str]:
    """Return the files outside docs/ that are pages of the site, with their addresses in it."""
    books = {f"notebooks/{book.name}": f"notebooks/{book.stem}.md" for book in (ROOT / "notebooks").glob("*.ipynb")}
    return {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", **dict(sorted(books.items()))}


def on_files(files: Files, config: MkDocsConfig, **kwargs: Any) -> Files:
    """Add the pages that live outside docs/."""
    for path, address in outside().items():
        if path.endswith(".md"):
            files.append(File.generated(config, address, content=(ROOT / path).read_text(encoding="utf-8")))
            continue
        made = notebooks.page(ROOT / path)
        files.append(File.generated(config, address, content=made.text))
        for name, picture in made.pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files, **kwargs: Any) -> str:
    """Make links that work in the repository work on the site.

    What is no page of the site is led to the repository, or nowhere while the site does not know its address.
    """
    pages = outside()
    here = dirname(page.file.src_uri)
    origin = next(
        (path for path, address in pages.items() if address == page.file.src_uri), f"docs/{page.file.src_uri}"
    )

    def led(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        path = normpath(f"{dirname(origin)}/{target}".lstrip("/"))
        address = pages.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(address) is not None:
            return f"[{text}]({relpath(address, here or '.')}{anchor})"
        if not (ROOT / path).exists():
            return found[0]
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{path}{anchor})" if config.repo_url else text

    return LINK.sub(led, markdown)


def on_page_content(content: str, /, **kwargs: Any) -> str:
    """Draw equations as MathML."""
    return EQUATION.sub(lambda found: mathml(html.unescape(found[2]), display=found[1] == "div"), content)
