"""Table 1, Figs. 2 to 5 and the search for ESR's preprocessing: verdicts follow from the numbers given."""

from __future__ import annotations

import math

import numpy as np
import pytest

from losac_reproduction import STUDIES, JobResult, Options, pool
from losac_reproduction.studies import esr, esr_flow, fig2, table1
from losac_reproduction.studies.esr_candidates import CANDIDATES, prepare
from losac_reproduction.studies.esr_flow import POINTS
from losac_reproduction.studies.sensitivity import (
    LONG,
    MEMBERS,
    SINGLE,
    Case,
    draw_curves,
    fluctuation,
    last,
    measure,
    over,
    runs_of,
)

OPTIONS = (Options(), Options(quick=True))


def run(seed=0, loss=0.5, accuracy=0.9, late=0.01, diverged=None, points=3, stayed=None):
    curve = [2.3, *[loss] * (points - 1)]
    rise = [0.1, *[accuracy] * (points - 1)]
    if diverged is not None:
        curve[1:], rise[1:], late = [None] * (points - 1), [None] * (points - 1), None
    there = 40 if accuracy >= 0.85 and diverged is None else None
    return {"seed": seed, "diverged": diverged, "reached": there, "stayed": stayed or there, "early": 0.02,
            "late": late, "loss": curve, "accuracy": rise}  # fmt: skip


def made_up(study, options, loss, stayed=lambda loss: None, accuracy=lambda loss: 0.9):
    """The results of a study's jobs, where loss(method, partition, s, t) is the last loss, or None for a divergence;
    the accuracy and the sustained rounds follow from the loss.
    """
    found = []
    for job in STUDIES[study].jobs(options):
        a = job.arguments
        runs = {}
        for partition in a["partitions"]:
            value = loss(a["method"], partition, a["s"], a["t"])
            lost = None if value is not None else 1
            runs[partition] = [
                run(seed, value or 0.0, accuracy(value or 0.0), diverged=lost, stayed=lost or stayed(value))
                for seed in a["seeds"]
            ]
        result = {"round": [0, a["rounds"] // 2, a["rounds"]], "runs": runs}
        found.append(JobResult(job.label, a, result, 1.0))
    return found


def texts(findings):
    cells = [str(cell) for table in findings.tables for row in table.rows for cell in row]
    return [findings.summary, *(claim.evidence for claim in findings.claims), *cells]


@pytest.mark.parametrize("options", OPTIONS, ids=["full", "quick"])
@pytest.mark.parametrize("study", ["fig2", "fig3", "fig4", "fig5"])
def test_runs_that_diverge_are_named_and_nothing_is_nan(study, options):
    lost = lambda method, partition, s, t: None if method in ("losac", "fedavg", LONG) else 0.4  # noqa: E731
    findings = STUDIES[study].findings(made_up(study, options, lost), options)
    assert "Diverged: " in findings.summary
    assert "LoSAC" in findings.summary.partition("Diverged: ")[2]
    assert not any("nan" in text or "inf" in text.split() for text in texts(findings))
    for figure in findings.figures[:1]:
        assert figure.draw().axes


def suffering(method, partition, s, t):
    c = float(partition.split(":")[1])
    return 0.2 * (1 + c * {"fedavg": 4.0, "fedsaga": 5.0, "fedsaga_mean": 5.0, "fedcm": 2.0}.get(method, 0.1))


def test_fig2_holds_where_the_numbers_are_as_the_paper_says():
    findings = STUDIES["fig2"].findings(made_up("fig2", Options(), suffering), Options())
    assert [claim.verdict for claim in findings.claims[:4]] == ["holds"] * 4


def test_fig2_fails_where_they_are_the_other_way_round():
    turned = lambda method, partition, s, t: 1 / suffering(method, partition, s, t)  # noqa: E731
    verdicts_found = [c.verdict for c in STUDIES["fig2"].findings(made_up("fig2", Options(), turned), Options()).claims]
    assert verdicts_found[0] == "fails"
    assert verdicts_found[3] == "fails"


def test_fig2_deals_the_share_that_it_says():
    """mixture:c sorts a share c of the rows by label: the labels per client fall from 10 to 1 or 2."""
    from losac.data import load

    assert [fig2.share(Case("mnist", f"mixture:{c:g}", 50, 5)) for c in fig2.SHARES] == list(fig2.SHARES)
    purity = []
    for c in fig2.SHARES:
        data = load("digits", 20, f"mixture:{c:g}")
        counts = [np.bincount(data.client(i)[1], minlength=10) for i in range(20)]
        purity.append(np.mean([n.max() / n.sum() for n in counts]))
    assert all(np.diff(purity) > 0)
    assert purity[0] < 0.25
    assert purity[-1] > 0.8


def test_a_lead_over_short_steps_only_holds_only_at_equal_step_size():
    level = {"losac": 0.1, LONG: 0.1}
    findings = STUDIES["fig3"].findings(made_up("fig3", Options(), lambda m, p, s, t: level.get(m, 0.4)), Options())
    found = {claim.text: claim.verdict for claim in findings.claims}
    assert found["In the non-IID setting LoSAC outperforms SCAFFOLD."] == "holds only at equal step size"
    level[LONG] = 0.3
    findings = STUDIES["fig3"].findings(made_up("fig3", Options(), lambda m, p, s, t: level.get(m, 0.4)), Options())
    found = {claim.text: claim.verdict for claim in findings.claims}
    assert found["In the non-IID setting LoSAC outperforms SCAFFOLD."] == "holds"


def test_more_clients_and_more_steps_are_judged_along_their_series():
    falls = lambda method, partition, s, t: 1 / (s * t)  # noqa: E731
    follow = {"stayed": lambda loss: 1e4 * loss, "accuracy": lambda loss: 0.99 - loss / 4}
    by_s = STUDIES["fig3"].findings(made_up("fig3", Options(), falls, **follow), Options()).claims
    by_t = STUDIES["fig4"].findings(made_up("fig4", Options(), falls, **follow), Options()).claims
    assert by_s[0].verdict == by_s[1].verdict == by_t[0].verdict == "holds"
    assert by_t[1].verdict == "fails"  # more steps do not degrade FedCM here
    assert "T = 2, 4, 6, 8: accuracy" in by_t[0].evidence
    later = follow | {"stayed": lambda loss: 1 / loss}
    by_s = STUDIES["fig3"].findings(made_up("fig3", Options(), falls, **later), Options()).claims
    assert by_s[0].verdict == "holds in part"  # better, but not faster


def test_fedsaga_is_judged_as_printed_and_shown_both_ways():
    level = {"fedsaga": 0.9, "fedsaga_mean": 0.4}
    frames = {name: made_up(name, Options(), lambda m, p, s, t: level.get(m, 0.4)) for name in ("fig3", "fig4")}
    parts = {name: STUDIES[name].findings(found, Options()).claims for name, found in frames.items()}
    claim = next(c for c in pool(parts) if c.text == "FedSaga performs worse than FedAvg.")
    assert claim.verdict == "holds"
    assert claim.numbers == {"printed": 16, "mean": 0, "of": 16}
    assert "in 8 of 8 settings; averaged over the sampled clients, 1/S, in 0 of 8" in claim.evidence


def test_har_with_fewer_steps_is_judged_against_equally_long_steps_too():
    loss = {"losac": 0.1, LONG: 0.05}
    findings = STUDIES["fig5"].findings(made_up("fig5", Options(), lambda m, p, s, t: loss.get(m, 0.4)), Options())
    claim = next(c for c in findings.claims if "LoSAC with T = 2 performs better" in c.text)
    assert claim.verdict == "holds only at equal step size"


def test_fluctuation_is_what_a_curve_goes_back_and_forth():
    rng = np.random.default_rng(0)
    rising = np.cumsum(rng.uniform(size=50))
    assert fluctuation(rising) == 0
    noise = rng.normal(size=51)
    steps = np.diff(noise)
    assert fluctuation(noise) == pytest.approx((np.abs(steps).sum() - abs(noise[-1] - noise[0])) / 50, abs=1e-6)
    assert fluctuation([0.5]) is None


def arrays(*runs):
    """Runs as the conclusions have them."""
    return {name: np.array([one[name] for one in runs], float) for name in ("loss", "accuracy", "diverged")}


def test_a_lost_run_counts_as_the_worst():
    assert last(arrays(run(), run(diverged=1))) == math.inf
    assert last(arrays(run(), run(diverged=1)), "accuracy") == 0
    assert over(0.5, math.inf) == math.inf


def test_a_figure_marks_the_run_that_diverged():
    found = {"losac": arrays(run(), run(diverged=1)), "scaffold": arrays(run(), run())}
    drawing = draw_curves([[("one", "loss", [0, 1, 2], found), ("two", "loss", [0, 1, 2], found)]])
    assert "LoSAC (1 of 2)" in drawing.axes[0].texts[0].get_text()
    assert [text.get_text() for text in drawing.legends[0].get_texts()] == ["LoSAC", "SCAFFOLD"]


@pytest.mark.real_data
def test_a_measured_run_has_what_the_figures_need(real_data):
    found = measure("har", "losac", ["sorted"], clients=100, s=2, t=1, rounds=2, seeds=[0], every=1)
    assert found["round"] == [0, 1, 2]
    only = found["runs"]["sorted"][0]
    assert len(only["loss"]) == len(only["accuracy"]) == 3
    assert only["diverged"] is None
    measured = [JobResult("", {"data": "har", "method": "losac", "s": 2, "t": 1}, found, 1.0)]
    cases, rounds = runs_of(STUDIES["fig5"].frame(measured))
    assert list(cases) == [Case("har", "sorted", 2, 1)]
    assert rounds == {"har": [0, 1, 2]}


def test_every_algorithm_of_the_paper_runs_in_figs_2_to_4_and_mime_not_in_fig_5():
    for study in ("fig2", "fig3", "fig4"):
        assert {job.arguments["method"] for job in STUDIES[study].jobs(Options())} - set(SINGLE) == set(MEMBERS)
    assert "mime_svrg" not in {job.arguments["method"] for job in STUDIES["fig5"].jobs(Options())}


# Table 1


def row(**changes):
    found = {"steps": 5, "gradients_per_step": 1, "full_gradients": 0, "up": 1.0, "down": 1.0, "partial": True,
             "drift": 0.02, "distances": [1.0] * 21, "sent": {"1": {"message": 0.0, "known": 0.0, "local": 0.0},
             "5": {"message": 0.1, "known": 0.1, "local": 0.0}}, "race": []}  # fmt: skip
    return found | changes


def test_table_1_marks_what_agrees():
    linear = [10.0**-k for k in range(21)]
    results = {
        "fedavg": row(),
        "losac": row(drift=1e-14, distances=linear),
        "mime_svrg": row(drift=0.5, full_gradients=1.0, sent={"5": {"message": 0.0, "known": 0.0, "local": 0.0}}),
    }
    measured = [JobResult("", {"name": name}, result, 1.0) for name, result in results.items()]
    made = table1.results(table1.STUDY.frame(measured))
    cells = {name: table1.judge_cells(name, made) for name in results}
    assert all(right is not False for _, right in cells["fedavg"].values())
    assert cells["losac"]["model divergence"][1] is True
    assert "linear" in cells["losac"]["speed"][0]
    assert cells["mime_svrg"]["model divergence"][1] is False
    assert cells["mime_svrg"]["defends against DLG"] == ("∇f_i(x) sent at T = 5; paper no", None)
    assert "a local gradient known at T = 5" in cells["losac"]["defends against DLG"][0]  # judged with Figure 6
    findings = table1.STUDY.findings(measured, Options())
    assert [claim.verdict for claim in findings.claims] == ["holds", "holds", "holds in part"]


def test_the_gradient_is_found_in_what_is_sent():
    """One local step of FedAvg with a full batch sends −η∇f_i(x); LoSAC's messages add up to it."""
    average, losac = table1.sent("fedavg", 1), table1.sent("losac", 1)
    assert average["message"] < 1e-12
    assert losac["message"] > 1e-3
    assert losac["known"] < 1e-10


def test_the_fastest_step_size_is_one_that_every_seed_reaches_the_target_with():
    assert table1.fastest({0.1: [10, math.nan], 0.2: [30, 20]}) == (25.0, 0.2)
    assert table1.fastest({0.1: [math.nan]}) is None


# ESR


def test_candidates_do_what_they_say():
    rng = np.random.default_rng(0)
    train, test = (rng.normal(3, 50, size=(n, 7)).round().astype(np.int16) for n in (40, 5))
    raw = test.astype(float)
    made = {name: prepare(name, train, test)[1] for name in CANDIDATES}
    assert all(np.isfinite(x).all() and x.dtype == np.float32 for x in made.values())
    low, high = raw.min(1, keepdims=True), raw.max(1, keepdims=True)
    np.testing.assert_allclose(made["row ±1"], 2 * (raw - low) / (high - low) - 1, atol=1e-6)
    np.testing.assert_allclose(made["standard"], (raw - train.mean(0)) / train.std(0), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(made["row unit"], axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(made["standard unit"], axis=1), 1, atol=1e-6)
    assert made["whole"].min() >= -1


def test_esr_s_eighteen_cells_lie_on_multiples_of_the_smallest_time():
    assert round(esr.UNIT, 9) == 9.2
    assert len(POINTS) == 18
    assert sorted({point.units for point in POINTS}) == [1, 2, 3, 4, 5, 6, 9, 10, 15]


def test_esr_ranks_by_distance_and_bears_with_a_divergence():
    exact = {"loss": [0.0] * 15, "accuracy": [0.0] * 15, "diverged": None}
    for point in POINTS:
        exact["loss"][point.units - 1], exact["accuracy"][point.units - 1] = point.loss, point.accuracy
    far = exact | {"loss": [2 * v for v in exact["loss"]]}
    lost = {"loss": [], "accuracy": [], "diverged": 3}
    flows = [
        JobResult(
            "", {"candidate": name, "split": "random", "per_unit": 1}, [{"start": "he", "output": "softmax"} | r], 1.0
        )
        for name, r in {"row": far, "standard": exact, "log": lost}.items()
    ]
    ends = [{"candidate": "row", "output": "softmax", "runs": [{"loss": 0.4213, "accuracy": 0.7966}]},
            {"candidate": "log", "output": "softmax", "runs": [{"loss": None, "accuracy": None}]}]  # fmt: skip
    cells = [JobResult("", {"method": "scaffold", "m": 2, "t": 2, "candidates": ["row", "log"]}, ends, 1.0)]
    descent, federated = esr_flow.STUDY.findings(flows, Options()), esr.STUDY.findings(cells, Options())
    assert [line[0] for line in descent.tables[0].rows] == ["standard", "row", "log"]
    assert [line[0] for line in federated.tables[0].rows] == ["the paper", "row", "log"]
    assert "row" in federated.summary.partition("federated")[2]
    assert descent.figures[0].draw().axes


@pytest.mark.real_data
def test_the_library_prepares_rows_as_the_candidate_does(real_data):
    from losac.data import load

    for name, option in (("row", "row"), ("row mean", "row-mean"), ("row centred max", "row-max")):
        ours, theirs = esr.prepared(name, 2, "iid"), load("esr", 2, "iid", preprocessing=option)
        np.testing.assert_allclose(ours.x, theirs.x, atol=1e-6)
