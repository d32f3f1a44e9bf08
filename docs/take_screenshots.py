"""Take the pictures of the report page and of the board in docs/assets, with a headless Chromium.

The runs are those of ``losac compare --rounds 60 --eval-every 2 --out FOLDER``; without a folder they are run first::

    python docs/take_screenshots.py [FOLDER]
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from losac.board import BoardServer
from losac.report import write_report
from losac.runs import find_runs

ASSETS = Path(__file__).parent / "assets"
WIDTH = 1280


def main(folder: Path) -> None:
    """Make missing runs, and both pictures."""
    if not folder.is_dir() or not find_runs(folder):
        compare = ["compare", "--rounds", "60", "--eval-every", "2", "--out", str(folder), "--quiet"]
        subprocess.run([sys.executable, "-m", "losac", *compare], check=True)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        take_report(browser, folder)
        take_board(browser, folder)
        browser.close()


def take_report(browser: Browser, folder: Path) -> None:
    """The top of the report, down to the table of rounds to the target."""
    path = write_report(find_runs(folder), folder / "screenshot.html")
    page = browser.new_page(viewport={"width": WIDTH, "height": 1420})
    page.goto(path.as_uri())
    page.locator("path.line").first.wait_for(state="attached")
    save(page.screenshot(), "report.png")
    path.unlink()


def take_board(browser: Browser, folder: Path) -> None:
    """The board with the seeds of all algorithms together."""
    with BoardServer(folder / "runs") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.new_page(viewport={"width": WIDTH, "height": 1130})
        page.goto(server.url)
        page.locator("#folder").evaluate("node => { node.textContent = 'demo/runs'; }")
        page.get_by_label("select all shown").check()
        page.get_by_label("mean over seeds").check()
        page.locator("figure").first.locator("path.line").nth(4).wait_for(state="attached")
        save(page.screenshot(), "board.png")
        server.shutdown()


def save(picture: bytes, name: str) -> None:
    """Write a picture with few colours and so few bytes."""
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(
        ASSETS / name, optimize=True
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary) / "demo")
