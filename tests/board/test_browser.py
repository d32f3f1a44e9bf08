"""The pages in a real browser: what a reader clicks, types, prints and sees while runs go on."""

import contextlib
import shutil
import threading

import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright

from losac._costs import COSTS
from losac._files import locked
from losac.board import BoardServer
from losac.history import History
from losac.report import group_histories, write_page, write_report
from losac.report.groups import mean_curve
from losac.runs import find_runs, open_run
from run_folders import line, write_comparison, write_run

PATIENCE = 30_000
expect.set_options(timeout=PATIENCE)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is here: apt-get install chromium brings one")


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Open a page; whatever it complains of, or asks a network for, fails the test."""
    contexts, complaints, requests = [], [], []

    def open_(url, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(url)
        return page

    open_.requests = requests
    yield open_
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = write_comparison(tmp_path_factory.mktemp("browser") / "runs")
    write_run(folder / "fedavg", "fedavg", steps=4, status="diverged")
    return folder


@pytest.fixture(scope="module")
def report(runs):
    return write_report(find_runs(runs), runs.parent / "report.html").as_uri()


@pytest.fixture(scope="module")
def board(runs):
    with BoardServer(runs) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def lines(page, chart=0):
    """The lines of a chart: label to the path that is drawn."""
    found = page.locator("figure").nth(chart).locator("path.line")
    return {node.get_attribute("data-label"): node.get_attribute("d") for node in found.all()}


def ticks(page, chart=0):
    return page.locator("figure").nth(chart).locator("text.tick").all_text_contents()


def cells(page, selector):
    return {row[0]: row[1:] for row in page.locator(f"{selector} tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.innerText.trim()))"
    )}  # fmt: skip


def test_the_report_draws_all_algorithms_and_asks_no_network(visit, report):
    page = visit(report)
    assert [sorted(lines(page, chart)) for chart in range(4)] == [["fedavg", "losac", "scaffold"]] * 4
    page.wait_for_timeout(300)
    assert visit.requests == [report]


def test_means_and_bands_are_those_of_the_statistics(visit, report, runs):
    page = visit(report)
    group = group_histories([open_run(runs / f"losac-seed{seed}").history() for seed in range(3)])[0]
    values = np.stack([run.metrics["loss"] for run in group.runs])
    from scipy.stats import t

    half = t.ppf(0.975, 2) * values.std(axis=0, ddof=1) / np.sqrt(3)
    curve = """([band, axis]) => {
      const group = DATA.groups.find(group => group.label === "losac");
      return Curves.curve(group.runs.map(i => DATA.runs[i]), "loss", axis, band, DATA.quantiles);
    }"""
    for axis in ("rounds", "bytes", "gradients", "seconds"):
        mean = mean_curve(group, "loss", axis)
        drawn = page.evaluate(curve, ["interval", axis])
        np.testing.assert_allclose([p["x"] for p in drawn], mean.x, rtol=1e-6)
        np.testing.assert_allclose([p["y"] for p in drawn], mean.mean, rtol=1e-6)
        np.testing.assert_allclose([p["low"] for p in drawn], mean.mean - half, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose([p["high"] for p in drawn], mean.mean + half, rtol=1e-5, atol=1e-6)
    drawn = page.evaluate(curve, ["range", "rounds"])
    np.testing.assert_allclose([p["low"] for p in drawn], mean_curve(group, "loss").low, rtol=1e-6)
    np.testing.assert_allclose([p["high"] for p in drawn], mean_curve(group, "loss").high, rtol=1e-6)


def test_the_reader_chooses_axis_metric_and_scale(visit, report):
    page = visit(report)
    figure = page.locator("figure").first
    figure.get_by_label("Horizontal axis").select_option(label="wall time")
    assert "4\u00a0s" in ticks(page)
    figure.get_by_label("Horizontal axis").select_option(label="bytes sent")
    assert "20\u00a0MB" in ticks(page)
    logged = lines(page)
    figure.get_by_label("log y").uncheck()
    assert lines(page) != logged
    straight = lines(page)
    figure.get_by_label("log x").check()
    assert lines(page) != straight
    figure.get_by_label("Metric").select_option(label="test accuracy")
    assert "80%" in ticks(page)
    assert figure.locator("svg").first.get_attribute("aria-label").startswith("Test accuracy over bytes sent. ")


def test_algorithms_hide_and_show_everywhere(visit, report):
    page = visit(report)
    box = page.get_by_role("checkbox", name="scaffold")
    box.uncheck()
    assert [sorted(lines(page, chart)) for chart in range(4)] == [["fedavg", "losac"]] * 4
    box.check()
    assert sorted(lines(page)) == ["fedavg", "losac", "scaffold"]


def test_the_band_is_the_readers_choice_and_its_meaning_is_said(visit, report):
    page = visit(report)
    words, band = page.locator("#band-words"), page.locator("path.band").nth(1)
    assert "95 % t-intervals" in words.inner_text()
    assert "fewer than 3 seeds" in words.inner_text()
    shape = band.get_attribute("d")
    page.get_by_label("Band").select_option("range")
    assert "least to the greatest" in words.inner_text()
    assert band.get_attribute("d") != shape
    page.get_by_label("Band").select_option("none")
    assert all(node.get_attribute("d") == "" for node in page.locator("path.band").all())


@pytest.mark.parametrize(("metric", "label"), [("accuracy", "test accuracy"), ("loss", "training loss")])
def test_a_new_target_recomputes_the_table(visit, report, runs, metric, label):
    page = visit(report)
    page.get_by_label("Target metric").select_option(label=label)
    for target in (0.25, 0.45, 0.65):
        page.get_by_label("Target value").fill(str(target))
        table = cells(page, "#target-table")
        for name in ("losac", "scaffold"):
            histories = [open_run(runs / f"{name}-seed{seed}").history() for seed in range(3)]
            rounds = [run.rounds_to(metric, target) for run in histories]
            if None in rounds:
                reached = sum(found is not None for found in rounds)
                assert table[name][0].endswith(f"({reached} of 3)" if reached else "never")
            else:
                assert table[name][0] == f"{np.mean(rounds):.0f} ± {np.std(rounds, ddof=1):.0f}"
                assert table[name][1] == f"{np.mean(rounds) / 2 * 3:.3g}\u00a0MB"
        assert table["fedavg"][0] == "–"
    page.get_by_label("Target value").fill("1.5" if metric == "accuracy" else "0.0001")
    assert cells(page, "#target-table")["losac"][0] == "never"


STOP = """() => {
  const node = document.activeElement, style = getComputedStyle(node);
  const name = node.getAttribute("aria-label") || node.closest("label")?.innerText || node.innerText || "";
  return [`${node.tagName} ${name}`.trim(), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
}"""
CONTROLS = [
    "A To the curves", "A How to cite", "INPUT losac", "SELECT Band", "SELECT Metric", "SELECT Horizontal axis",
    "INPUT log y", "INPUT log x", "svg Training loss over rounds", "SUMMARY Numbers", "BUTTON Save as SVG",
    "SELECT Target metric", "INPUT Target value", "SUMMARY losac-seed0 finished", "BUTTON Copy BibTeX",
]  # fmt: skip


def test_everything_works_from_the_keyboard(visit, report):
    page = visit(report)
    reached = {}
    for _ in range(70):
        page.keyboard.press("Tab")
        name, seen = page.evaluate(STOP)
        reached[name] = seen
    assert [name for name, seen in reached.items() if not seen and not name.startswith("BODY")] == []
    assert [wanted for wanted in CONTROLS if not any(name.startswith(wanted) for name in reached)] == []
    page.get_by_role("checkbox", name="losac").focus()
    page.keyboard.press("Space")
    assert sorted(lines(page)) == ["fedavg", "scaffold"]
    page.get_by_label("Horizontal axis").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("figure").first.get_attribute("data-axis") == "bytes"


def test_a_chart_is_read_by_arrow_keys_and_looked_into(visit, report):
    page = visit(report)
    chart = page.locator(".chart").first
    chart.locator("svg").focus()
    page.keyboard.press("End")
    assert chart.locator(".voice").inner_text().startswith("round 16: ")
    assert "losac 0.0" in chart.locator(".voice").inner_text()
    page.keyboard.press("ArrowLeft")
    assert chart.locator(".voice").inner_text().startswith("round 14: ")
    assert chart.locator(".reading").is_visible()
    page.keyboard.press("+")
    assert chart.get_by_role("button", name="Whole range").is_visible()
    page.keyboard.press("Escape")
    assert chart.get_by_role("button", name="Whole range").is_hidden()


def test_a_stretch_is_looked_into_with_the_mouse(visit, report):
    page = visit(report)
    chart = page.locator(".chart").first
    box, whole = chart.bounding_box(), ticks(page)
    page.mouse.move(box["x"] + 200, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 350, box["y"] + 100, steps=3)
    page.mouse.up()
    assert ticks(page) != whole
    chart.get_by_role("button", name="Whole range").click()
    assert ticks(page) == whole


def test_each_chart_has_its_numbers_below(visit, report):
    page = visit(report)
    figure = page.locator("figure").first
    figure.get_by_text("Numbers").click()
    rows = figure.locator("tbody tr")
    expect(rows).to_have_count(9 + 9 + 5)
    assert [rows.nth(i).inner_text().split("\t")[0] for i in (0, 5, 14)] == ["fedavg", "losac", "scaffold"]
    assert rows.nth(5).inner_text().split("\t")[1] == "0"


def test_a_chart_is_saved_as_a_picture(visit, report):
    page = visit(report)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG").first.click()
    assert download.value.suggested_filename == "loss-over-rounds.svg"
    text = download.value.path().read_text()
    assert text.startswith("<svg")
    assert "rgb(0, 114, 178)" in text
    assert "var(" not in text


def test_bibtex_is_copied(visit, report):
    page = visit(report, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy BibTeX").first.click()
    page.get_by_text("Copied", exact=True).wait_for()
    assert page.evaluate("navigator.clipboard.readText()").startswith("@article{")


@pytest.mark.parametrize("width", [360, 768])
def test_no_page_scrolls_sideways(visit, report, board, width):
    for url in (report, board.url, f"{board.url}run?run=losac-seed0"):
        page = visit(url, viewport={"width": width, "height": 740}, is_mobile=True, has_touch=True)
        page.locator("path.line").first.wait_for(state="attached")
        for part in page.locator("details").all():
            part.evaluate("node => { node.open = true; }")
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_print_has_pages_with_charts_and_no_controls(visit, report):
    page = visit(report)
    pdf = page.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page ") >= 2
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.get_by_label("Target value").is_visible()
    assert page.locator("path.line").first.is_visible()
    assert page.locator("figcaption").first.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def luminance(colour):
    parts = [int(part) / 255 for part in colour[4:-1].split(",")]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_and_words_stand_out_in_light_and_dark(visit, report, scheme):
    page = visit(report, color_scheme=scheme)
    paper = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (paper < 0.1) == (scheme == "dark")
    colours = "nodes => [...new Set(nodes.map(node => getComputedStyle(node).%s))]"
    words = page.locator("h1, p, th, td, dt, dd, a, summary, .legend label, .fate, .going, .badge")
    drawn = page.locator("path.line").evaluate_all(colours % "stroke")
    assert len(drawn) == 3
    found = [(colour, 3) for colour in drawn] + [(colour, 4.5) for colour in words.evaluate_all(colours % "color")]
    for colour, least in found:
        light, dark = sorted((luminance(colour), paper), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= least, (colour, least)


def test_no_motion_where_none_is_wanted(visit, board):
    page = visit(board.url, reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_the_board_lists_sorts_filters_and_selects(visit, board):
    page = visit(board.url)
    rows = page.locator("#runs tbody tr")
    page.get_by_role("link", name="losac-seed0").wait_for()
    assert rows.count() == 7
    page.get_by_role("button", name="accuracy").click()
    accuracy = [float(text.split()[0]) for text in page.locator("#runs tbody tr td:nth-child(7)").all_inner_texts()]
    assert accuracy == sorted(accuracy)
    page.get_by_role("button", name="accuracy").click()
    accuracy = [float(text.split()[0]) for text in page.locator("#runs tbody tr td:nth-child(7)").all_inner_texts()]
    assert accuracy == sorted(accuracy, reverse=True)
    page.get_by_label("Filter").fill("scaffold seed1")
    assert rows.count() == 1
    page.get_by_label("Filter").fill("diverged")
    assert [row.get_attribute("data-run") for row in rows.all()] == ["fedavg"]
    page.get_by_label("Filter").fill("")
    page.get_by_label("select all shown").check()
    drawn = page.locator("figure").first.locator("path.line")
    expect(drawn).to_have_count(7)
    page.get_by_label("mean over seeds").check()
    expect(drawn).to_have_count(3)
    page.get_by_role("link", name="Report of selected").click()
    page.get_by_role("heading", name="3 algorithms on toy").wait_for()
    assert len(lines(page)) == 3


def test_the_board_shows_new_rounds_while_they_come(visit, board, runs):
    folder = write_run(runs / "live", "mime", steps=1, status="running")
    try:
        with locked(folder):
            page = visit(board.url)
            row = page.locator('tr[data-run="live"]')
            row.get_by_text("2 / 16").wait_for()
            row.get_by_role("checkbox").focus()
            curve = page.locator("figure").first.locator("path.line[data-label=live]")
            expect(curve).to_have_count(1)
            before = curve.get_attribute("d")
            with (folder / "metrics.csv").open("a") as file:
                file.write("".join(line(step) for step in (2, 3)))
            row.get_by_text("6 / 16").wait_for()
            expect(curve).not_to_have_attribute("d", before)
            assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Select live"
            page.get_by_role("link", name="live").click()
            page.get_by_text("round 2 of 16").wait_for()
            with (folder / "log.txt").open("a") as file:
                file.write("a line that was just written\n")
            page.get_by_text("a line that was just written").wait_for()
        page.locator("#status").get_by_text("killed").wait_for()
    finally:
        shutil.rmtree(folder)


def test_nothing_in_the_name_of_a_run_becomes_markup(visit, board, runs):
    folder = write_run(runs / "<img src=x onerror=alert(1)>", "mime")
    try:
        page = visit(board.url)
        page.get_by_role("link", name="<img src=x").wait_for()
        page.get_by_role("link", name="<img src=x").click()
        page.get_by_role("heading", name="<img src=x").wait_for()
        assert page.locator("img").count() == 0
    finally:
        shutil.rmtree(folder)


def test_long_curves_are_thinned_and_keep_their_peaks(visit, tmp_path):
    rounds = np.arange(20_001)
    loss = 1 + 1 / (1 + rounds)
    loss[12_345] = 5.0
    costs = dict.fromkeys(COSTS, 1.0 * rounds)
    long = History("losac", {"step_size": 0.1}, "toy", 0, rounds, {"loss": loss}, costs, 1.0 * rounds)
    page = visit(write_page([long], tmp_path / "long.html").as_uri())
    drawn = page.locator(".chart").first.evaluate("place => place.chart.lines[0].near.map(p => [p.x, p.y])")
    assert len(drawn) < 1500
    assert [12_345, 5] in drawn
    assert drawn[-1][0] == 20_000


def test_a_name_points_out_its_lines(visit, report):
    page = visit(report)
    page.locator(".legend label", has_text="losac").hover()
    assert page.locator("path.line.dim").count() == 4 * 2
    assert page.locator("path.line.dim[data-label=losac]").count() == 0
    page.locator("h1").hover()
    assert page.locator("path.line.dim").count() == 0


def test_the_board_follows_runs_that_begin_until_the_reader_selects(visit, tmp_path):
    with BoardServer(tmp_path) as server, contextlib.ExitStack() as running:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        page = visit(server.url)
        page.get_by_text("No runs here yet").wait_for()
        labels = page.locator("figure").first.locator("path.line")
        for count, name in enumerate(("one", "two"), start=1):
            running.enter_context(locked(write_run(tmp_path / name, "mime", count, status="running")))
            expect(labels).to_have_count(count)
        page.get_by_role("group", name="Show or hide curves").get_by_role("checkbox").first.focus()
        with (tmp_path / "one" / "metrics.csv").open("a") as file:
            file.write(line(9))
        page.get_by_text("still running, round 18 of 16").wait_for()
        assert page.evaluate("document.activeElement.closest('.legend') !== null")
        page.get_by_label("Select one").uncheck()
        expect(labels).to_have_count(1)
        write_run(tmp_path / "three", "mime", 3)
        page.get_by_role("link", name="three").wait_for()
        assert not page.get_by_label("Select three").is_checked()
        page.close()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_who_holds_what_is_drawn_on_the_pages_own_paper(visit, report, scheme):
    page = visit(report, color_scheme=scheme)
    corner = """async node => {
      await node.decode();
      const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
      pen.drawImage(node, 0, 0);
      return `rgb(${[...pen.getImageData(1, 1, 1, 1).data].slice(0, 3).join(", ")})`;
    }"""
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert page.locator(".picture img").first.evaluate(corner) == paper


def test_names_and_values_keep_apart_on_a_narrow_page(visit, report):
    page = visit(report, viewport={"width": 390, "height": 740})
    gaps = page.locator(".cards dt").evaluate_all("""nodes => nodes.map(node => {
      const words = document.createRange();
      words.selectNodeContents(node);
      return node.nextSibling.getBoundingClientRect().left - words.getBoundingClientRect().right;
    })""")
    assert min(gaps) >= 8


def test_the_board_shows_dates_beside_long_names(visit, board, runs):
    folder = write_run(runs / "-".join(["a", "name", "of", "many", "words"] * 8), "mime")
    try:
        page = visit(board.url, viewport={"width": 1400, "height": 900})
        page.get_by_role("link", name=folder.name).wait_for()
        assert page.locator("#runs").evaluate("table => table.scrollWidth - table.parentElement.clientWidth") <= 0
    finally:
        shutil.rmtree(folder)
