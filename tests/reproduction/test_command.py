"""`losac reproduce`: what it prints, what it keeps, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import toys
from losac.cli import app
from losac.data import DataError

EMPTY = pytest.mark.filterwarnings("always:LOSAC_DATA_DIR")
"""Where data sets are missing, the folder that does not have them is named in a warning, which is a line on stderr."""


@pytest.fixture
def losac(tmp_path, monkeypatch):
    """The command on two toy studies; it refuses to download anything."""
    monkeypatch.chdir(tmp_path)
    for name, folder in (("LOSAC_DATA_DIR", "empty"), ("LOSAC_CACHE", "cache")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(name, str(tmp_path / folder))

    def no_network(source, **options):
        asked.append(source.name)
        raise DataError(f"{source.name} could not be\ndownloaded")

    asked: list[str] = []
    monkeypatch.setattr("losac.data.store.fetch_source", no_network)
    studies = {
        "squares": toys.study(tmp_path / "calls"),
        "cubes": toys.study(tmp_path / "calls", (2.0, 3.0), "cubes"),
        "mnist": toys.study(tmp_path / "calls", (7.0,), "mnist", ("mnist",)),
        "both": toys.study(tmp_path / "calls", (8.0,), "both", ("mnist", "har")),
        "wrong": toys.study(tmp_path / "calls", (5.0, -1.0), "wrong"),
    }
    monkeypatch.setattr("losac_reproduction.STUDIES", studies)

    def command(*arguments):
        from typer.testing import CliRunner

        jobs = ["--jobs", "1"] if arguments and arguments[0] != "report" else []
        return CliRunner().invoke(app, ["reproduce", *arguments, *jobs])

    command.asked = asked
    return command


@pytest.mark.parametrize("arguments", [["--list"], []])
def test_the_parts_are_listed(losac, arguments, tmp_path):
    result = losac(*arguments)
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["squares", "cubes", "mnist", "both", "wrong"]
    assert "The cubes of numbers" in result.stdout
    assert not (tmp_path / "calls").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["square"],
            "no part 'square' (did you mean 'squares'?); there are squares, cubes, mnist, both, wrong and all",
        ),
        (["squares", "--seeds", "a"], "separated by commas"),
        (["squares", "--seeds", "1,1"], "twice"),
        (["squares", "--out", "file"], "--out file is a file; give a folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(losac, arguments, said, tmp_path):
    (tmp_path / "file").touch()
    result = losac(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "calls").exists()


def test_claims_are_printed_as_they_are_written_and_pages_are_named(losac, tmp_path):
    result = losac("squares", "cubes", "squares", "--quick")
    assert result.exit_code == 0, result.output
    assert "[red] & <i>" in result.stdout
    assert "[bold]" in result.stdout
    assert "No verdict here is final" in result.stdout
    for page in ("index.html", "squares/report.html", "cubes/report.html"):
        assert f"reproduction-quick/{page}" in result.stdout
        assert (tmp_path / "reproduction-quick" / page).exists()
    assert "1 of 3" in result.stderr
    assert "square of 1.0" in result.stderr
    assert toys.calls(tmp_path / "calls") == [1, 2, 3]


def test_a_second_command_goes_on_and_says_so(losac, tmp_path):
    assert losac("squares", "--out", "found").exit_code == 0
    assert losac("squares", "--out", "found").stderr == ""
    result = losac("cubes", "--out", "found")
    assert "1 found from before" in result.stderr
    assert toys.calls(tmp_path / "calls") == [1, 2, 3]


def test_json_is_all_that_is_printed(losac):
    result = losac("squares", "--json", "--seeds", "4,5")
    assert result.exit_code == 0
    assert result.stderr == ""
    answer = json.loads(result.stdout)
    assert (answer["quick"], answer["seeds"], answer["failed"]) == (False, [4, 5], {})
    (claim,) = answer["parts"]["squares"]["claims"]
    assert (claim["verdict"], claim["evidence"]) == ("holds", "The sum is 5 > 0.")
    assert [os.path.exists(page) for page in answer["pages"]] == [True]


def test_quiet_prints_paths_only(losac, tmp_path):
    result = losac("squares", "cubes", "--quiet", "--out", "found")
    assert result.stdout.splitlines() == ["found/index.html", "found/squares/report.html", "found/cubes/report.html"]
    assert result.stderr == ""


@EMPTY
def test_parts_without_their_data_are_left_out(losac, tmp_path):
    result = losac("squares", "mnist", "both", "--quiet", "--out", "found")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == ["found/squares/report.html"]
    assert "losac: mnist is left out: mnist could not be downloaded\n" in result.stderr
    assert "losac: both is left out: mnist could not be downloaded; har could not be downloaded\n" in result.stderr
    assert result.stderr.count("warning: LOSAC_DATA_DIR=") == len(losac.asked) == 2
    assert toys.calls(tmp_path / "calls") == [1, 2]


@EMPTY
def test_with_no_part_left_nothing_is_made(losac, tmp_path):
    result = losac("mnist", "--json", "--out", "found")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert (answer["parts"], answer["pages"]) == ({}, [])
    assert answer["failed"] == {"mnist": "mnist could not be downloaded"}
    assert not (tmp_path / "found").exists()


def test_a_job_that_fails_is_one_line_and_exit_1(losac, tmp_path):
    result = losac("wrong", "--quiet", "--out", "found")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1
    assert "1 of 2 jobs failed (square of -1.0: ValueError: -1.0 is negative)" in result.stderr
    assert len(list((tmp_path / "found" / "jobs").iterdir())) == 1


def test_an_interrupt_exits_130_and_keeps_what_was_measured(losac, tmp_path, monkeypatch):
    squared = toys.squared

    def interrupted(folder, number):
        if number == 2:
            raise KeyboardInterrupt
        return squared(folder, number)

    monkeypatch.setattr(toys, "squared", interrupted)
    result = losac("squares", "--out", "found")
    assert result.exit_code == 130
    assert "interrupted; what was measured is in found, and the same command continues from there" in result.stderr
    assert len(list((tmp_path / "found" / "jobs").iterdir())) == 1


def pdf_pages(path):
    return path.read_bytes().count(b"/Type /Page\n") or path.read_bytes().count(b"/Type /Page ")


def test_a_report_of_the_last_run_is_a_page_or_a_pdf_of_four(losac, tmp_path):
    losac("squares", "cubes", "--quick", "--out", "reproduction")
    result = losac("report")
    assert (result.exit_code, result.stdout) == (0, "reproduction/report.html\n"), result.output
    assert "2 parts from reproduction" in result.stderr
    page = (tmp_path / "reproduction" / "report.html").read_text()
    assert "Squares add up to a &lt;b&gt;lot" in page
    assert "No verdict here is final" in page
    result = losac("report", "reproduction", "--pdf", "--quiet", "--out", "filed")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "filed/report.pdf\n", "")
    assert pdf_pages(tmp_path / "filed" / "report.pdf") == 4
    assert toys.calls(tmp_path / "calls") == [1, 2, 3]


def test_a_report_without_a_folder_is_of_the_last_run_else_of_the_published_results(losac, tmp_path, monkeypatch):
    monkeypatch.setattr("losac_reproduction.command.PUBLISHED", tmp_path / "published")
    result = losac("report", "--pdf")
    assert result.exit_code == 2
    assert "nothing to report: no results in reproduction; run losac reproduce all" in result.stderr
    losac("cubes", "--out", "published")
    told = json.loads(losac("report", "--json").stdout)
    assert told == {"results": str(tmp_path / "published"), "parts": ["cubes"], "page": "reproduction/report.html"}
    losac("squares", "--out", "reproduction")
    assert json.loads(losac("report", "--json").stdout)["results"] == "reproduction"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "nowhere"], "there is no folder nowhere"),
        (["report", "file"], "there is no folder file"),
        (["report", "empty"], "nothing to report in empty: no part has results there"),
        (["report", "empty", "cache"], "takes one folder of results, not 2"),
        (["report", "empty", "--quick"], "--quick has no effect on losac reproduce report"),
        (["report", "empty", "--seeds", "1"], "--seeds has no effect on losac reproduce report"),
        (["report", "cut"], "cut/squares cannot be read (JSONDecodeError: "),
        (["report", "old"], "old/squares cannot be read (ValueError: "),
        (["report", "half"], "half/squares cannot be read (FileNotFoundError: "),
        (["report", "good", "--pdf", "--out", "file"], "--out file is a file"),
        (["squares", "--pdf"], "--pdf is an option of losac reproduce report"),
    ],
)
def test_what_cannot_be_reported_is_one_line_and_exit_2(losac, arguments, said, tmp_path):
    (tmp_path / "file").touch()
    losac("squares", "--out", "good", "--quiet")
    whole = (tmp_path / "good" / "squares" / "results.json").read_text()
    for folder, content in (("cut", whole[:40]), ("old", '{"format": "losac results 0"}'), ("half", whole)):
        (tmp_path / folder / "squares").mkdir(parents=True)
        (tmp_path / folder / "squares" / "results.json").write_text(content)
    result = losac(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert said in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "file").is_dir()


def test_help_names_the_number_of_processes():
    from typer.testing import CliRunner

    words = CliRunner().invoke(app, ["reproduce", "--help"], env={"COLUMNS": "200"}).stdout
    assert "one per core, at most 8" in " ".join(words.replace("│", " ").split())


@pytest.mark.parametrize("arguments", [["reproduce", "fair", "--quick"], ["attack", "report", "--help"]])
def test_without_the_package_of_the_studies_it_is_named(arguments):
    hidden = "import importlib.metadata\nimportlib.metadata.entry_points = lambda **_: ()\n"
    code = f"{hidden}from losac.cli import app\napp({arguments})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert " needs the package losac-reproduction, " in line
    assert "pip install ./reproduction" in line


def test_the_library_does_not_import_its_studies():
    import losac

    files = Path(losac.__file__).parent.rglob("*.py")
    assert not [path for path in files if "losac_reproduction" in path.read_text(encoding="utf-8")]
