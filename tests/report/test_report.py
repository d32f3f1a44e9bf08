import csv
import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from commands import losac, refused
from losac import report
from losac.data import load
from losac.history import History
from losac.report.entries import from_runs
from losac.report.groups import group_entries, mean_curve
from losac.report.payload import common_target
from losac.runs import find_runs
from run_folders import write_comparison, write_run


def history(algorithm="losac", seed=0, *, rounds=5, diverged=None, metrics=None, **settings):
    rng = np.random.default_rng([seed, len(algorithm)])
    steps = np.arange(rounds)
    measured = {
        "loss": 2.0 * 0.5**steps + 0.01 * rng.random(rounds),
        "accuracy": steps / 10 + 0.01 * rng.random(rounds),
    }
    return History(
        algorithm=algorithm,
        settings={"step_size": 0.1, "blocks": 5, **settings},
        task="toy",
        seed=seed,
        rounds=steps * 2,
        metrics=measured if metrics is None else metrics,
        costs={"bytes_up": steps * 1_000_000, "bytes_down": steps * 2_000_000, "gradients": steps * 100.0},
        seconds=steps * 0.5,
        diverged=diverged,
    )


def comparison():
    return [
        *(history("losac", seed, scaling="paper") for seed in (0, 1, 2)),
        *(history("scaffold", seed, server_step=1.0) for seed in (0, 1, 2)),
        *(history("scaffold", seed, server_step=5) for seed in (0, 1, 2)),
    ]


def text_of(table):
    console = Console(width=160, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def test_seeds_are_grouped_and_labels_tell_settings_apart():
    groups = report.group_histories(comparison())
    assert [group.label for group in groups] == ["losac", "scaffold, server_step=1", "scaffold, server_step=5"]
    assert [len(group.runs) for group in groups] == [3, 3, 3]


def test_given_labels_group():
    groups = report.group_histories([history("losac"), history("fedavg")], ["one", "one"])
    assert [group.label for group in groups] == ["one"]
    with pytest.raises(ValueError, match="labels has 1 entries for 2 histories"):
        report.group_histories([history(), history()], ["one"])
    with pytest.raises(ValueError, match="at least one"):
        report.group_histories([])


def test_histories_plot_has_a_panel_per_metric_and_a_band_per_group():
    figure = report.plot_histories(comparison())
    loss, accuracy = figure.axes
    assert (loss.get_yscale(), accuracy.get_yscale()) == ("log", "linear")
    assert (loss.get_ylabel(), accuracy.get_ylabel()) == ("training loss", "test accuracy")
    assert loss.get_xlabel() == "round"
    assert [len(panel.lines) for panel in figure.axes] == [3, 3]
    assert [len(panel.collections) for panel in figure.axes] == [3, 3]
    for look in ("get_color", "get_marker"):
        assert len({getattr(line, look)() for line in loss.lines}) == 3


def test_single_run_has_no_band_and_metrics_can_be_chosen():
    figure = history().plot(["accuracy"])
    (panel,) = figure.axes
    assert len(panel.lines) == 1
    assert not panel.collections
    np.testing.assert_allclose(panel.lines[0].get_ydata(), history().metrics["accuracy"])


def test_test_loss_is_shown_only_without_other_metrics():
    values = np.array([3.0, 2.0, 1.0, 0.5, 0.2])
    with_accuracy = history(metrics={"loss": values, "test_loss": values, "accuracy": values})
    without = history(metrics={"loss": values, "test_loss": values})
    assert [panel.get_ylabel() for panel in with_accuracy.plot().axes] == ["training loss", "test accuracy"]
    assert [panel.get_ylabel() for panel in without.plot().axes] == ["training loss", "test loss"]


def test_comparison_plot_shows_accuracy_against_every_cost():
    panels = report.plot_comparison(comparison(), target=0.3).axes
    assert [panel.get_xlabel() for panel in panels] == [
        "round", "round", "bytes sent, up and down", "single-sample gradients",
    ]  # fmt: skip
    assert panels[2].lines[0].get_xdata()[-1] == pytest.approx(12e6)
    assert [panels[i].xaxis.get_major_formatter()(12e6) for i in (2, 3)] == ["12 MB", "12 M"]
    assert panels[1].yaxis.get_major_formatter()(0.5) == "50%"
    assert [len(panel.lines) for panel in panels] == [3, 4, 4, 4]


def test_diverged_runs_are_marked():
    figure = report.plot_histories([history(), history("fedavg", rounds=3, diverged=6)])
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["losac", "fedavg (diverged at round 6)"]
    assert [line.get_marker() for line in figure.axes[0].lines] == ["o", "s", "x"]


def test_mean_ends_where_the_first_seed_diverged():
    (group,) = report.group_histories([history(seed=0), history(seed=1, rounds=3, diverged=6)])
    assert mean_curve(group, "loss").x.tolist() == [0, 2, 4]
    assert group.fate == "1 of 2 seeds diverged, the first at round 6"


def test_unmeasured_losses_are_left_out():
    loss = np.array([3.0, np.nan, 1.0, np.nan, 0.2])
    (group,) = report.group_histories([history(metrics={"loss": loss, "accuracy": loss})])
    assert mean_curve(group, "loss").x.tolist() == [0, 4, 8]


def test_a_table_that_cannot_be_written_leaves_the_one_before(tmp_path, monkeypatch):
    """On a full disk; half a table took its place."""
    path = tmp_path / "table.csv"
    path.write_text("the table before")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        report.write_csv([history()], path)
    assert path.read_text() == "the table before"


def test_table_numbers_are_the_histories_numbers(tmp_path):
    histories = comparison()
    row = report.comparison_rows(histories, target=0.2)[0]
    assert row.final["loss"] == tuple(h.final("loss") for h in histories[:3])
    assert row.to_target == tuple(h.rounds_to("accuracy", 0.2) for h in histories[:3])
    path = report.write_csv(histories, tmp_path / "new" / "table.csv", target=0.2)
    first = next(csv.DictReader(path.read_text().splitlines()))
    assert float(first["loss"]) == pytest.approx(np.mean(row.final["loss"]))
    assert float(first["accuracy_std"]) == pytest.approx(np.std(row.final["accuracy"], ddof=1))
    assert (float(first["megabytes_up"]), float(first["megabytes_down"])) == (4, 8)
    assert first["seeds"] == "3"


def test_table_says_plainly_what_diverged_and_what_was_never_reached():
    histories = [history(), history("fedavg", rounds=3, diverged=6)]
    text = text_of(report.comparison_table(histories, target=0.6))
    assert "diverged at round 6" in text
    assert "never" in text
    assert report.comparison_rows(histories)[1].final["loss"] == ()


def test_numbers_are_those_of_the_finished_runs_alone():
    histories = [history(seed=0), history(seed=1), history(seed=2, rounds=4, diverged=8)]
    (row,) = report.comparison_rows(histories, target=0.2)
    assert (row.seeds, row.diverged) == ((0, 1, 2), 1)
    assert len(row.to_target) == len(row.final["loss"]) == 2
    assert row.costs["gradients"] == (400, 400)
    assert "1 of 3 seeds diverged" in text_of(report.comparison_table(histories, target=0.2))
    (record,) = report.comparison_frame(histories, target=0.2).to_dict("records")
    assert (record["seeds"], record["seeds_diverged"], record["seeds_at_target"]) == (3, 1, 2)


def test_nothing_is_told_of_an_algorithm_that_always_diverged():
    histories = [history(seed=seed, rounds=4, diverged=8) for seed in (0, 1)]
    (row,) = report.comparison_rows(histories, target=0.1)
    assert row.to_target == ()
    text = text_of(report.comparison_table(histories, target=0.1))
    assert "all 2 seeds diverged at round 8" in text
    assert text.count("–") == 7


def test_notes_name_the_favoured_and_who_steps_as_far():
    same, favoured = report.fairness_notes(comparison())
    assert "same step size η = 0.1" in same
    assert "not a fair comparison" in same
    assert "M = 5 times as far" in favoured
    assert "“scaffold, server_step=5” takes steps as long as LoSAC's; nothing here is tuned." in favoured
    (differ,) = report.fairness_notes([history(), history("fedavg", step_size=0.3)])
    assert "η = 0.1, 0.3" in differ
    assert report.fairness_notes([history()]) == []


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    histories = [*comparison(), history("fedavg", rounds=3, diverged=6)]
    path = tmp_path_factory.mktemp("page") / "report.html"
    data = load("digits", clients=5, partition="sorted")
    report.write_page(histories, path, data=data, config={"model": "<b>2nn"}, target=0.3, title="A & B")
    return path.read_text(encoding="utf-8")


def test_page_fetches_nothing(page):
    head, body = page.split("<script>", 1)[0], re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert page.count("<script") - page.count('"<script') >= 2
    assert not re.search(r"<script[^>]+src=|<link|@import|url\(", head)
    assert all(source.startswith("data:image/png;base64,") for source in re.findall(r'src="([^"]*)"', body))
    assert "http" not in re.sub(r'src="[^"]*"', "", body)


def test_page_holds_names_table_notes_and_configuration(page):
    for text in (
        "A &amp; B",
        "scaffold, server_step=5",
        "diverged at round 6",
        "not a fair comparison",
        "&lt;b&gt;2nn",
    ):
        assert text in page
    assert page.count('<div class="chart"') == 4
    assert page.count('scope="row"') == 4
    assert "width=device-width" in page
    assert "@media print" in page


def carried(page):
    """What a page carries for its charts."""
    return json.loads(re.search(r"^const DATA = (.*);$", page, flags=re.MULTILINE)[1])


def test_page_is_small_and_links_to_its_parts(page):
    assert len(page) < 300_000
    ids = set(re.findall(r'id="([\w-]+)"', page))
    anchors = set(re.findall(r'href="#([\w-]+)"', page))
    assert {"curves", "target", "numbers", "clients", "configuration", "cite"} <= anchors <= ids


def test_page_carries_every_seed_over_every_cost(page):
    data = carried(page)
    assert [len(group["runs"]) for group in data["groups"]] == [3, 3, 3, 1]
    assert set(data["axes"]) == {"rounds", "bytes", "gradients", "seconds"}
    run, told = comparison()[0], data["runs"][0]
    assert told["rounds"] == run.rounds.tolist()
    assert told["seconds"] == run.seconds.tolist()
    assert told["bytes"] == (run.bytes_up + run.bytes_down).tolist()
    assert told["metrics"]["loss"] == pytest.approx(run.metrics["loss"], rel=1e-6)
    assert data["target"] == {"metric": "accuracy", "value": 0.3}
    assert data["quantiles"]["3"] == pytest.approx(4.302653)


def test_what_was_not_measured_is_null_in_the_page(tmp_path):
    loss = np.array([3.0, np.nan, 1.0, np.nan, 0.2])
    path = report.write_page([history(metrics={"loss": loss})], tmp_path / "page.html")
    assert carried(path.read_text())["runs"][0]["metrics"]["loss"] == [3.0, None, 1.0, None, 0.2]


def test_nothing_in_a_name_becomes_markup(tmp_path):
    bad = "</script><img src=x onerror=alert(1)>"
    path = report.write_page([history()], tmp_path / "page.html", title=bad, labels=[bad], config={bad: bad})
    assert "<img src=x" not in path.read_text()


def test_pages_cite_the_paper_and_the_software(page):
    assert "Local Stochastic Average Control" in page
    assert page.count("@article{") == page.count("@software{") == 1
    assert page.count("data-copy=") >= 2


@pytest.fixture
def runs(tmp_path):
    return write_comparison(tmp_path / "runs")


def test_report_is_one_page_of_all_runs_in_a_folder(runs, tmp_path):
    result = losac("report", str(runs), "--out", str(tmp_path / "new" / "page.html"), "--title", "Both & more")
    assert result.exit_code == 0, result.output
    assert result.stdout.strip() == str(tmp_path / "new" / "page.html")
    page = (tmp_path / "new" / "page.html").read_text()
    data = carried(page)
    assert [(group["label"], len(group["runs"])) for group in data["groups"]] == [("losac", 3), ("scaffold", 3)]
    for text in ("Both &amp; more", "losac-seed2", "python", "cores", "losac run &lt;b&gt;", "Who holds what"):
        assert text in page
    assert page.count("data:image/png") == 2, "one for light and one for dark pages"


def test_report_as_json_names_page_and_runs(runs, tmp_path):
    told = json.loads(losac("report", str(runs), "--out", str(tmp_path), "--json", "--target", "0.5").stdout)
    assert told["page"] == str(tmp_path / "report.html")
    assert [run["status"] for run in told["runs"]] == ["finished"] * 6
    assert carried((tmp_path / "report.html").read_text())["target"]["value"] == 0.5


def test_a_run_given_twice_counts_once(runs, tmp_path):
    out = tmp_path / "page.html"
    losac("report", str(runs), str(runs / "losac-seed0"), "--out", str(out), "--quiet")
    assert len(carried(out.read_text())["runs"]) == 6


def test_report_says_what_is_wrong_in_one_line(tmp_path):
    assert "is not a folder" in refused("report", str(tmp_path / "none"))
    assert "there is no run in" in refused("report", str(tmp_path))
    write_run(tmp_path / "runs" / "one")
    assert "ends in .html" in refused("report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.pdf"))
    (tmp_path / "runs" / "one" / "metrics.csv").unlink()
    assert "measured anything yet" in refused("report", str(tmp_path / "runs"), "--out", str(tmp_path / "p.html"))


def test_unfinished_runs_are_said_to_be_so(runs, tmp_path):
    write_run(runs / "mime", "mime", steps=4, status="running")
    write_run(runs / "fedavg", "fedavg", steps=3, status="diverged")
    write_run(runs / "fedprox", "fedprox", steps=3, status="stopped")
    write_run(runs / "feddyn", "feddyn", steps=3, status="failed")
    (write_run(runs / "early", "losac", 9) / "metrics.csv").unlink()
    result = losac("report", str(runs), "--out", str(tmp_path / "page.html"))
    assert "4 of 11 runs are not finished" in result.stderr
    page = (tmp_path / "page.html").read_text()
    fates = {group["label"]: group["fate"] for group in carried(page)["groups"]}
    assert fates == {
        "losac": "",
        "scaffold": "",
        "mime": "killed, round 8 of 16",
        "fedavg": "diverged at round 6",
        "fedprox": "stopped, round 6 of 16",
        "feddyn": "failed, round 6 of 16",
    }
    for note in ("mime ended without a message", "feddyn ended by an error", "early has measured nothing yet"):
        assert note in page


def test_other_experiments_are_not_taken_for_other_seeds(runs):
    write_run(runs / "more", "losac", 0, simulation={"clients_per_round": 10})
    labels = [group.label for group in group_entries(from_runs(find_runs(runs)))]
    assert sorted(set(labels)) == ["losac, clients_per_round=10", "losac, clients_per_round=5", "scaffold"]


def test_a_repeated_run_is_not_taken_for_another_seed_in_silence(runs, tmp_path):
    write_run(runs / "again", "losac", 0)
    report.write_report(find_runs(runs), tmp_path / "page.html")
    assert "repeat the settings and seed of another run" in (tmp_path / "page.html").read_text()


def test_the_target_is_by_default_one_that_all_reached(runs):
    entries = from_runs(find_runs(runs))
    worst = max(entry.history.metrics["loss"].min() for entry in entries)
    target = common_target(entries, "loss")
    assert worst <= target < 1.1 * worst
    assert all(entry.history.rounds_to("loss", target) is not None for entry in entries)
    assert all(entry.history.rounds_to("accuracy", common_target(entries, "accuracy")) for entry in entries)


def test_runs_with_different_metrics_share_a_table(runs, tmp_path):
    metrics = {"loss": np.array([3.0, 2.0]), "distance": np.array([1.0, 0.5])}
    other = history("mime", rounds=2, metrics=metrics)
    page = report.write_page([history(), other], tmp_path / "page.html").read_text()
    heads = re.findall(r'<th scope="col">([^<]*)</th>', page)
    assert heads[:5] == ["algorithm", "η", "loss", "accuracy", "distance"]
    rows = [re.findall("<td>([^<]*)</td>", row) for row in re.findall(r'<tr><th scope="row">.*?</tr>', page)]
    assert [row[2:4] for row in rows] == [[f"{100 * history().final('accuracy'):.1f} %", "–"], ["–", "0.5000"]]
