"""The documentation site builds without a warning, and every page of it works without a network."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import losac
from paths import ROOT

pytest.importorskip("material", reason="the site needs the extra docs")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def hook(name: str) -> Any:
    """Load one of the site's hooks by its file."""
    spec = importlib.util.spec_from_file_location(f"hooks_{name}", ROOT / "docs" / "hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site, built with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    told = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    built = subprocess.run(command, cwd=ROOT, env=os.environ | told, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    assert "WARNING" not in built.stdout + built.stderr
    return folder


class Page(HTMLParser):
    """What a page refers to, what can be referred to in it, and its paragraphs."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag in ("img", "script", "iframe") and "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and given.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(given["href"])


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_and_picture_is_there(pages):
    broken = []
    for path, page in pages.items():
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme or address.startswith("//"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            there = target.exists() and (
                not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].anchors
            )
            broken += [] if there else [f"{path.name}: {address}"]
    assert not broken


def test_nothing_is_loaded_from_a_network(pages):
    for path, page in pages.items():
        assert not [address for address in page.loaded if urlsplit(address).netloc], path.name


def test_markdown_and_docstrings_are_rendered_whole(pages):
    """No role, directive, doctest or equation is left as it is written; no list is taken for a paragraph."""
    for path in pages:
        text = path.read_text()
        body = text[text.index("<article") : text.index("</article>")]
        words = re.sub(r"<(pre|code|math)\b.*?</\1>", "", body, flags=re.DOTALL)
        assert not re.search(r":(class|func|meth|mod|data|math):|\.\. math::|&gt;&gt;&gt;|\$\$|arithmatex", words), (
            path.name
        )
        assert not re.search(r"<p>[^<]*\n(- |\* |1\. |\|-)", words), path.name


@pytest.mark.parametrize("module", ["data", "metrics", "models", "report", "runs", "tracking", "tuning"])
def test_the_reference_has_every_public_name(module, site):
    """Of losac itself, and of the modules that users meet first; what losac offers by itself is on its own page."""
    own = set(re.findall(r'id="(losac\.\w+)"', (site / "api" / "losac.html").read_text()))
    assert own >= {f"losac.{name}" for name in losac._NAMES}
    text = (site / "api" / f"{module}.html").read_text()
    part = importlib.import_module(f"losac.{module}")
    public = getattr(part, "__all__", None) or [
        n for n, v in vars(part).items() if getattr(v, "__module__", "") == part.__name__
    ]
    missing = {name for name in public if not name.startswith("_") and f'id="losac.{module}.{name}' not in text}
    assert {name for name in missing if f"losac.{name}" not in own} <= set()


def test_the_reference_shows_no_file_in_place_of_a_function(site):
    """Where a file and the function in it have one name, the function is meant."""
    for path in (site / "api").glob("*.html"):
        assert "doc-symbol-module" not in path.read_text(), path.name


def test_equations_are_mathml():
    mathml = hook("mathml").mathml
    assert mathml(r"\frac12") == '<math alttext="\\frac12"><mfrac><mn>1</mn><mn>2</mn></mfrac></math>'
    assert "<munder><mo>∑</mo><mi>i</mi></munder>" in mathml(r"\sum_i x_i", display=True)
    assert mathml(r"\begin{aligned} a &= b \\ c &= d \end{aligned}").count("<mtr>") == 2
    with pytest.raises(ValueError, match=r"\\unheard"):
        mathml(r"\unheard{x}")


def test_every_page_opens_in_a_browser_without_an_error(site, pages):
    """From files, without a network, as wide as a telephone: nothing is missing or cut off, and search finds."""
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium to open the pages with")
    complaints: list[str] = []
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(offline=True, viewport={"width": 400, "height": 800}).new_page()
        page.on("console", lambda message: complaints.append(f"{page.url}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on("requestfailed", lambda request: complaints.append(f"{request.url}: {request.failure}"))
        for path in sorted(pages):
            page.goto(path.as_uri(), wait_until="load")
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                complaints.append(f"{page.url} is wider than a telephone")
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto((site / "index.html").as_uri())
        page.click("input.md-search__input")
        page.wait_for_function("!document.querySelector('.md-search-result__meta').textContent.includes('Initial')")
        page.keyboard.type("telescoping")
        page.wait_for_selector(".md-search-result__item")
        browser.close()
    left = "net::ERR_ABORTED"  # what was still on its way when the next page was opened
    assert not [complaint for complaint in complaints if left not in complaint]
