"""The reproduction: jobs are measured once and kept, and what is concluded follows from what was kept."""

from __future__ import annotations

import itertools
import json
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import toys
from losac.algorithms.losac import damping
from losac.reproduce import STUDIES, Job, JobsFailedError, Measured, Options, read_results, run_jobs, write_results
from losac.reproduce.output import markdown, render_index, render_page
from losac.reproduce.paper import TABLE_2, Cell
from losac.reproduce.parts import damped_findings as damped
from losac.reproduce.parts import table2
from losac.reproduce.parts.fair_findings import Interval, interval
from losac.reproduce.runner import plain

FULL, QUICK = Options(), Options(quick=True)


# The runner


def test_each_result_is_stored_at_once_and_found_again(tmp_path):
    kept, seen = tmp_path / "jobs", []
    jobs = toys.squares(tmp_path / "calls", [1.0, 2.0, 3.0])

    def report(progress):
        stored = list(kept.iterdir())
        assert len(stored) == progress.done
        assert {path.suffix for path in stored} == {".json"}
        seen.append((progress.done, progress.total, progress.found, progress.label))

    measured = run_jobs(jobs, kept, report=report)
    assert [one.result for one in measured] == [{"square": 1.0}, {"square": 4.0}, {"square": 9.0}]
    assert seen == [(1, 3, 0, "square of 1.0"), (2, 3, 0, "square of 2.0"), (3, 3, 0, "square of 3.0")]
    assert run_jobs(jobs[::-1], kept, report=report) == measured[::-1]
    assert toys.calls(tmp_path / "calls") == [1, 2, 3]


def test_a_cut_off_file_counts_as_missing(tmp_path):
    jobs = toys.squares(tmp_path / "calls", [1.0, 2.0])
    measured = run_jobs(jobs, tmp_path / "jobs")
    whole = tmp_path / "jobs" / f"{jobs[1].digest}.json"
    whole.write_text(whole.read_text()[:20])
    again = run_jobs(jobs, tmp_path / "jobs")
    assert [one.result for one in again] == [one.result for one in measured]
    assert toys.calls(tmp_path / "calls") == [1, 2, 2]


def test_a_new_version_or_argument_is_a_new_job_and_a_new_label_is_not():
    arguments = {"seconds": 1.0}
    old = Job(toys.wait, arguments, "wait")
    assert Job(toys.wait, {**arguments}, "rest", cost=7.0).digest == old.digest
    others = [Job(toys.wait, arguments, "wait", version=2), Job(toys.wait, {"seconds": 2.0}, "wait"),
              Job(toys.squared, arguments, "wait")]  # fmt: skip
    assert len({old.digest, *(job.digest for job in others)}) == 4


@pytest.mark.parametrize("workers", [1, 2])
def test_a_job_that_fails_loses_no_other_and_equal_jobs_run_once(tmp_path, workers):
    jobs = toys.squares(tmp_path / "calls", [1.0, -2.0, 3.0, 1.0])
    before = dict(os.environ)
    said = r"1 of 4 jobs failed \(square of -2.0: ValueError: -2.0 is negative\)"
    with pytest.raises(JobsFailedError, match=said) as caught:
        run_jobs(jobs, tmp_path / "jobs", workers)
    assert dict(os.environ) == before
    assert list(caught.value.failures) == ["square of -2.0"]
    assert toys.calls(tmp_path / "calls") == [-2, 1, 3]
    rest = [job for job in jobs if job.arguments["value"] > 0]
    assert [one.result["square"] for one in run_jobs(rest, tmp_path / "jobs", workers)] == [1, 9, 1]
    assert toys.calls(tmp_path / "calls") == [-2, 1, 3]


def test_the_first_of_several_failures_is_named_and_the_others_are_counted(tmp_path):
    with pytest.raises(JobsFailedError, match=r"2 of 3 jobs failed \(square of -1.0: .*, and 1 more\)"):
        run_jobs(toys.squares(tmp_path / "calls", [-1.0, -2.0, 3.0]), tmp_path / "jobs")


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path):
    jobs, found = toys.squares(tmp_path / "calls", [1.0, 2.0, 3.0]), []

    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, tmp_path / "jobs", report=interrupt)
    assert len(run_jobs(jobs, tmp_path / "jobs", report=lambda p: found.append((p.found, p.done, p.total)))) == 3
    assert found == [(1, 1, 2), (1, 2, 2)]
    assert toys.calls(tmp_path / "calls") == [1, 2, 3]


def test_the_time_left_goes_by_the_costs(tmp_path, monkeypatch):
    monkeypatch.setattr("losac.reproduce.runner.time", SimpleNamespace(perf_counter=lambda: toys.NOW[0]))
    jobs = [Job(toys.wait, {"seconds": 2.0 * cost}, f"cost {cost}", cost) for cost in (1.0, 3.0, 4.0)]
    left, seconds = [], []
    for one in run_jobs(jobs, tmp_path, report=lambda progress: left.append(progress.left)):
        seconds.append(one.seconds)
    assert left == [14.0, 8.0, 0.0]
    assert seconds == [2.0, 6.0, 8.0]


def test_plain_is_what_json_gives_back():
    value = {
        1: np.float32(0.1), "b": (np.int64(3), True, None, "nan"), "c": np.array([[1.0, np.inf], [-np.inf, np.nan]]),
        "d": 123456789.0, "e": 1 / 3, "f": math.nan,
    }  # fmt: skip
    found = plain(value)
    assert found == {
        "1": 0.1, "b": [3, True, None, "nan"], "c": [[1.0, None], [None, None]], "d": 123457000.0, "e": 0.333333,
        "f": None,
    }  # fmt: skip
    assert json.loads(json.dumps(found, allow_nan=False)) == found == plain(found)


# What is left behind


def test_what_was_written_gives_the_same_findings(tmp_path):
    study = toys.study(tmp_path / "calls")
    options = Options((3, 4), quick=True)
    measured = run_jobs(study.jobs(options), tmp_path / "jobs")
    findings, page = write_results(study, measured, options, tmp_path / "squares")
    again, with_options = read_results(tmp_path / "squares")
    assert (again, with_options) == (measured, options)
    assert study.conclude(again, with_options) == findings
    assert page.exists()
    assert (tmp_path / "squares" / "squares.csv").read_text(encoding="utf-8") == "x,x²,–\n1.0,1.0,\n2.0,4.0,\n"
    content = json.loads((tmp_path / "squares" / "results.json").read_text(encoding="utf-8"))
    assert content["command"] == "losac reproduce squares --seeds 3,4 --quick"
    content["format"] = "other"
    (tmp_path / "squares" / "results.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="does not hold results of this version"):
        read_results(tmp_path / "squares")


def test_pages_hold_every_claim_and_no_foreign_markup(tmp_path):
    study = toys.study(tmp_path)
    findings = study.conclude([Measured("", {"value": 2.0}, {"square": 4.0}, 0.0)], QUICK)
    pages = [render_page(study, findings, QUICK, tmp_path), render_index({"squares": (study, findings)}, QUICK)]
    for page in pages:
        assert "Squares add up to a &lt;b&gt;lot&lt;/b&gt; | [bold]." in page
        assert "Sec. 1 &amp; 2" in page
        assert "The sum is 4 &gt; 0." in page
        assert "[red] &amp; &lt;i&gt;" in page
        assert "<b>lot" not in page
        assert "No verdict here is final" in page
    assert 'href="squares/report.html"' in pages[1]
    assert "No verdict here is final" not in render_page(study, findings, FULL, tmp_path)
    text = markdown(study, findings, FULL, "pictures")
    assert r"| Squares add up to a <b>lot</b> \| [bold]. (Sec. 1 & 2) | **holds** | The sum is 4 > 0. |" in text
    assert "| 2 | 4 | – |" in text


# The studies


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_knows_its_jobs(name):
    study = STUDIES[name]
    assert study.name == name
    for options in (FULL, QUICK):
        jobs = study.jobs(options)
        assert jobs
        assert len({job.digest for job in jobs}) == len(jobs)
        for job in jobs:
            assert json.loads(json.dumps(job.arguments, allow_nan=False)) == job.arguments
            assert job.label
            assert job.cost > 0
            assert job.function.__module__.startswith("losac.reproduce.")


def test_the_short_form_is_a_small_part_of_the_whole():
    costs = {
        options: [sum(job.cost for job in study.jobs(options)) for study in STUDIES.values()]
        for options in (FULL, QUICK)
    }
    assert all(quick <= full / 2 for quick, full in zip(costs[QUICK], costs[FULL]))
    assert sum(costs[QUICK]) < sum(costs[FULL]) / 20


def test_the_papers_table_2():
    places = itertools.product(("mnist", "har", "esr"), ("scaffold", "losac"), (2, 3, 5), (2, 4, 6))
    assert set(TABLE_2) == set(places)
    assert len(TABLE_2) == 54
    assert TABLE_2["mnist", "scaffold", 5, 2] == Cell(57, 0.1847, 0.9438)
    assert TABLE_2["har", "losac", 3, 6] == Cell(35, 0.1035, pytest.approx(0.9277))
    assert TABLE_2["esr", "losac", 5, 6] == Cell(180, 0.1967, pytest.approx(0.9154))
    assert all(0 < cell.loss < 0.5 and 0.79 < cell.accuracy < 0.98 for cell in TABLE_2.values())


def texts(findings):
    cells = [str(cell) for table in findings.tables for row in table.rows for cell in row]
    return [findings.summary, *(claim.evidence for claim in findings.claims), *cells]


def told(findings):
    """No text has a number that is none."""
    return not any(word.strip(".,;()") in ("nan", "inf") for text in texts(findings) for word in text.split())


def cell(first, loss, seeds=(0, 1, 2)):
    """Equal seeds of a cell; None for what none of them has."""
    accuracy = None if loss is None else 0.9
    row = {"diverged": None if loss is not None else 7, "first": first, "stayed": first, "loss": loss}
    return [{"seed": seed, "accuracy": accuracy, "round": 500, **row} for seed in seeds]


def made_up(values, options=FULL):
    """Table 2 where each method has the same numbers in every cell."""
    return [Measured(job.label, job.arguments, cell(*values[job.arguments["method"]]), 1.0)
            for job in table2.jobs(options)]  # fmt: skip


@pytest.mark.parametrize("options", [FULL, QUICK], ids=["full", "quick"])
@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ({"scaffold": (200, 0.3), "losac": (50, 0.1), "long": (50, 0.1)}, "holds only at equal step size"),
        ({"scaffold": (200, 0.3), "losac": (50, 0.1), "long": (150, 0.2)}, "holds"),
        ({"scaffold": (50, 0.1), "losac": (50, 0.1), "long": (50, 0.1)}, "fails"),
        ({"scaffold": (None, None), "losac": (None, None), "long": (None, None)}, "not testable"),
    ],
    ids=["longer steps", "better", "equal", "nothing"],
)
def test_table_2_tells_a_better_method_from_longer_steps(values, verdict, options):
    findings = table2.conclude(made_up(values, options), options)
    assert [claim.verdict for claim in findings.claims[:3]] == [verdict] * 3
    assert told(findings)


def test_table_2_bears_seeds_without_a_value():
    measured = made_up({"scaffold": (200, 0.3), "losac": (50, 0.1), "long": (50, 0.1)})
    for one in measured:
        one.result[0] |= {"first": None, "stayed": None}
        if one.arguments["t"] == 6:
            one.result[1] |= {"loss": None, "accuracy": None, "diverged": 3}
    findings = table2.conclude(measured, FULL)
    assert told(findings)
    assert any("1 of 3 never" in text for text in texts(findings))
    assert any("1 of 3 diverged" in text for text in texts(findings))
    assert findings.figures[0].draw().axes


# The rule for δ and the step

LENGTHS, DELTAS = [3.0, 12.0, 48.0], [0.0, 0.02, 0.1, 1.0]
LOSSES = np.array([[0.9, 0.8, 0.7, 0.6], [0.5, 0.2, 0.1, 0.3], [0.9, 0.4, 3.0, 3.0]])
SETTING = {"data": "har", "partition": "sorted", "clients": 100, "sampled": 25, "blocks": 5, "steps": 2, "gamma": 1.0}
MAP = damped.Map(SETTING, np.array(LENGTHS), np.array(DELTAS), LOSSES)


def test_a_map_is_read_exactly_where_it_was_measured():
    for (i, length), (j, delta) in itertools.product(enumerate(LENGTHS), enumerate(DELTAS)):
        if delta > 0:
            assert damped.at(MAP, length, delta) == pytest.approx(LOSSES[i, j])
    assert damped.at(MAP, 12.0, (0.02 * 0.1) ** 0.5) == pytest.approx((0.2 * 0.1) ** 0.5)
    assert damped.at(MAP, 6.0, 0.1) == pytest.approx((0.7 * 0.1) ** 0.5)
    assert damped.at(MAP, 0.1, 1e-9) == pytest.approx(LOSSES[0, 1])


def test_no_point_is_better_than_the_best():
    points = itertools.product(np.geomspace(1, 100, 9), np.geomspace(0.005, 1, 9))
    assert all(damped.regret(MAP, *point) >= 1 - 1e-12 for point in points)
    assert damped.regret(MAP, 12.0, 0.1) == pytest.approx(1)


def test_the_rules_for_delta():
    renewed = 0.25 * (1 - 0.8**2)
    assert MAP.refreshed == pytest.approx(renewed)
    wanted = [0.1, renewed**0.5 / 5, renewed, 0.06, 0.05, 1.0]
    assert [rule(MAP) for rule in damped.RULES.values()] == pytest.approx(wanted)
    assert next(iter(damped.RULES.values()))(MAP) == damping(100, 25)


def test_the_best_delta_is_that_of_the_mean_of_a_round():
    eigenvalues, renewed, steps = np.array([0.05, 0.4, 2.0]), 0.1, 4

    def radius(alpha, delta):
        """The largest growth of (x, αG) by G ← (1 − p)G + pH(x − uαG), x ← x − α((1 − δ)G + δHx)."""
        greatest = 0.0
        for h in eigenvalues:

            def one_round(x, g, h=h):
                ahead = x - (steps - 1) / (2 * steps) * alpha * g
                return x - alpha * ((1 - delta) * g + delta * h * x), (1 - renewed) * g + renewed * h * ahead

            columns = np.array([one_round(1.0, 0.0), one_round(0.0, 1.0)])
            greatest = max(greatest, np.abs(np.linalg.eigvals(columns.T)).max())
        return greatest

    alpha, delta, rate = damped.best_delta(eigenvalues, renewed, steps)
    assert rate == pytest.approx(radius(alpha, delta))
    others = itertools.product(np.geomspace(0.3, 150, 15) / eigenvalues[-1], np.geomspace(0.004, 1, 15))
    assert rate <= min(radius(*point) for point in others) + 2e-3
    assert rate < 1


# The tuned comparison


def tuned(method, rounds, accuracy=0.9, failed=None):
    """What the comparison measures of a method; one number of rounds for each seed, None where it never got there."""
    result = {"sampled": 10}
    if failed is not None:
        result["failed"] = failed
    else:
        to_target = [None if r is None else {"round": r, "bytes": 100 * r, "gradients": 10.0 * r} for r in rounds]
        runs = [{"reached": {"0.9": one}, "final": {"accuracy": accuracy, "test_loss": 0.3}} for one in to_target]
        result |= {"best": {"step_size": 1e-4}, "edges": {"step_size": "inside"}, "client_state": 1.0, "runs": runs,
                   "trials": [[1e-4, 0.5], [3e-4, None]], "axes": ["step_size"]}  # fmt: skip
    return Measured(method, {"data": "har", "partition": "sorted", "method": method}, result, 1.0)


def fair(*measured):
    findings = STUDIES["fair"].conclude(measured, FULL)
    assert told(findings)
    for figure in findings.figures:
        assert figure.draw().axes
    winners = {row[2]: row[3:] for row in findings.tables[0].rows}
    return findings, winners


def test_the_interval_is_students():
    values = [3.0, 5.0, 4.5, 7.0, 1.0]
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    found = interval(values)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    assert interval([2.0]) == Interval(2.0, 0.0)
    assert interval([]) is interval([1.0, None]) is None


def test_methods_are_ranked_and_those_not_told_apart_are_named():
    findings, winners = fair(
        tuned("fedavg", [50, 51, 52], 0.95), tuned("scaffold", [20, 22, 24]), tuned("losac", [20, 21, 22]),
        tuned("fedcm", [10, None, 10], 0.8), tuned("fedsaga", None, failed="all of 8 trials diverged"),
    )  # fmt: skip
    assert winners["rounds to target"] == ["LoSAC", "SCAFFOLD", "LoSAC: 1 of 5"]
    assert winners["accuracy"][0] == "FedAvg"
    table = findings.tables[1]
    assert [row[0] for row in table.rows] == ["LoSAC", "SCAFFOLD", "FedAvg", "FedCM", "FedSaga"]
    assert table.rows[-1][1] == "all of 8 trials diverged"
    assert all(len(row) == len(table.columns) for row in table.rows)
    superior, twice, _ = findings.claims
    assert superior.verdict == "holds"
    assert twice.verdict == "fails"
    assert "1.05" in twice.evidence


def test_a_lead_beyond_the_intervals_is_one():
    _, winners = fair(tuned("scaffold", [40, 41, 42]), tuned("losac", [20, 21, 22]))
    assert winners["rounds to target"] == ["LoSAC", None, "LoSAC: 1 of 2"]


def test_nobody_wins_where_nobody_gets_there():
    findings, winners = fair(tuned("scaffold", [None] * 3), tuned("losac", None, failed="all trials diverged"))
    assert winners["rounds to target"][0] == "nobody"
    assert [claim.verdict for claim in findings.claims[:2]] == ["fails", "not testable"]
