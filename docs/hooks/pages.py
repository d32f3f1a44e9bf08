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
WIDE = ("reproduction.md", "verdicts.md")
"""Pages whose tables need the room of the table of contents."""
EQUATION = re.compile(r'<(div|span) class="arithmatex">(?:\\\[|\\\()(.*?)(?:\\\]|\\\))</\1>', flags=re.DOTALL)


def outside() -> dict[str, str]:
    """Return the files outside docs/ that are pages of the site, with their addresses in it."""
    books = {f"notebooks/{book.name}": f"notebooks/{book.stem}.md" for book in (ROOT / "notebooks").glob("*.ipynb")}
    return {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", **dict(sorted(books.items()))}


def on_config(config: MkDocsConfig, **kwargs: Any) -> MkDocsConfig:
    """Put a page for each study into the menu, where it has ``reproduction/*.md``, in the order of their overview."""
    overview = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| \[([^\]]+)\]\((reproduction/[^)]+)\)", overview)
    studies = [{title: address} for title, address in rows]
    for part in config.nav or []:
        for entry in next(iter(part.values())):
            if isinstance(entry, dict) and "reproduction/*.md" in entry.values():
                entry.update(dict.fromkeys(entry, studies))
    return config


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

    Links to files that are not pages lead to the repository, or nowhere if its address is unknown.
    """
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]
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
