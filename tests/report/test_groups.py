"""Only equal runs are averaged; labels say what differs; what did not end is told beside its number."""

from __future__ import annotations

import dataclasses
import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rich.console import Console

import losac
from commands import losac as command
from losac import report
from losac.history import History
from losac.history.conditions import _plain
from losac.report.entries import from_runs
from losac.report.groups import group_entries
from losac.runs import find_runs
from losac.simulation.sampling import Available, Weighted
from run_folders import write_run


def history(algorithm="scaffold", seed=0, *, rounds=5, accuracy=0.5, diverged=None, planned=None, **settings):
    """A hand-made run of so many evaluations, one in two rounds."""
    steps = np.arange(rounds)
    return History(
        algorithm=algorithm,
        settings={"step_size": 0.1, **settings},
        task="toy",
        seed=seed,
        rounds=steps * 2,
        metrics={"loss": 2.0 * 0.5**steps, "accuracy": accuracy * steps / (rounds - 1)},
        costs={"bytes_up": steps * 10, "bytes_down": steps * 10, "gradients": steps * 1.0},
        seconds=steps * 0.5,
        diverged=diverged,
        conditions={} if planned is None else {"rounds": planned},
    )


def labels(*histories):
    return [group.label for group in report.group_histories(histories)]


def text_of(table):
    console = Console(width=200, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def test_runs_of_different_lengths_are_not_averaged():
    long, short = history(seed=0, rounds=6, accuracy=0.9), history(seed=1, rounds=2, accuracy=0.1)
    assert labels(long, short) == ["scaffold, rounds=10", "scaffold, rounds=2"]
    assert [row.final["accuracy"] for row in report.comparison_rows([long, short])] == [(0.9,), (0.1,)]


def test_labels_say_what_differs_from_others_and_nothing_else():
    plain, far = history("losac", server_step=1.0), history(server_step=5)
    assert labels(plain, far) == ["losac", "scaffold, server_step=5"]
    assert labels(plain, history(server_step=1)) == ["losac", "scaffold"]
    assert labels(plain, far, history(server_step=1)) == ["losac", "scaffold, server_step=5", "scaffold, server_step=1"]
    assert labels(history("feddyn", alpha=3.0), plain) == ["feddyn, alpha=3", "losac"]
    tuned = history("losac", step_size=0.3)
    assert labels(tuned, history()) == ["losac, step_size=0.3", "scaffold, step_size=0.1"]


def test_settings_that_differ_beyond_the_digits_shown_are_different_settings():
    close = 0.1 * (1 + 1e-9)
    assert labels(history(), history(seed=1, step_size=close)) == [
        "scaffold, step_size=0.1",
        f"scaffold, step_size={close!r}",
    ]


def test_schedules_are_told_apart_by_their_values():
    def schedule(last):
        def step(round_index):
            return jnp.where(round_index < 2, 0.1, last)

        return step

    data = losac.data.load("quadratic", clients=3, samples=4, dim=2, seed=0)
    task = losac.regression(losac.models.linear(2), data)
    runs = [losac.simulate(task, losac.algorithms.fedavg(schedule(last)), rounds=2) for last in (0.1, 0.01, 0.01)]
    assert [len(group.entries) + len(group.repeats) for group in report.group_histories(runs)] == [1, 2]


@pytest.fixture(scope="module")
def problem():
    data = losac.data.load("quadratic", clients=4, samples=4, dim=2, seed=0)
    return losac.regression(losac.models.linear(2), data)


def run(task, *, rounds=3, seed=0, **options):
    return losac.simulate(task, losac.algorithms.fedavg(0.01), rounds=rounds, seed=seed, **options)


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ("rounds", {"rounds": 5}),
        ("clients_per_round", {"clients_per_round": 2}),
        ("dtype", {"dtype": "float64"}),
        ("sampling", {"sampling": [[0, 1, 2, 3]] * 3}),
        ("local_steps", {"local_steps": [1, 2, 1, 1]}),
        ("eval_every", {"eval_every": 3}),
    ],
)
def test_a_history_knows_how_it_was_simulated(problem, option, other):
    runs = [run(problem), run(problem, seed=1), run(problem, seed=2, **other)]
    groups = report.group_histories(runs)
    assert [len(group.runs) for group in groups] == [2, 1]
    assert option in groups[1].label


@pytest.mark.parametrize(
    "other",
    [
        {"data": losac.data.load("quadratic", clients=4, samples=4, dim=2, seed=9)},
        {"reduction": "mean"},
        {"weights": [1, 1, 1, 2]},
        {"regularizer": losac.prox.l1(0.1)},
        {"test": (np.ones((2, 2), "float32"), np.ones(2, "float32"))},
    ],
    ids=lambda other: next(iter(other)),
)
def test_a_history_knows_its_problem(problem, other):
    changed = dataclasses.replace(problem, **other)
    algorithm = losac.algorithms.fedmid(0.01)
    runs = [losac.simulate(task, algorithm, rounds=2, seed=seed) for seed, task in enumerate((problem, changed))]
    one, two = report.group_histories(runs)
    assert one.label != two.label


def test_sweeps_and_saved_histories_know_it_too(problem, tmp_path):
    one = run(problem, eval_every=3)
    member = losac.sweep(problem, losac.algorithms.fedavg(0.01), {}, [0], rounds=3, eval_every=3).members[0]
    assert member.conditions == one.conditions
    assert History.load(one.save(tmp_path / "one.npz")).conditions == one.conditions


def test_data_dealt_again_by_each_seed_is_one_experiment():
    def one(seed, data_seed):
        data = losac.data.load("digits", clients=4, partition="dirichlet:0.5", seed=data_seed)
        task = losac.classification(losac.models.softmax_regression(64, 10), data)
        return losac.simulate(task, losac.algorithms.fedavg(1e-3), rounds=1, seed=seed)

    assert labels(one(0, 0), one(1, 1), one(2, 2)) == ["fedavg"]
    assert labels(one(0, 0), one(1, 0), one(2, 1)) == ["fedavg, data_seed=0", "fedavg, data_seed=1"]


def test_a_repeat_is_not_another_seed():
    (row,) = report.comparison_rows([history(seed=0), history(seed=0), history(seed=1)])
    assert row.seeds == (0, 1)
    assert len(row.final["accuracy"]) == 2
    assert row.fate == "1 repeat of a seed does not count"
    assert "1 repeat of a seed does not count" in text_of(report.comparison_table([history(), history()]))
    figure = report.plot_comparison([history(seed=0), history(seed=0)])
    assert not figure.axes[0].collections


def test_of_a_repeated_seed_the_run_that_ended_counts():
    cut, whole = history(rounds=3, planned=8), history(rounds=5, planned=8)
    for order in ([cut, whole], [whole, cut]):
        (group,) = report.group_histories(order)
        assert group.runs == (whole,)


def test_what_has_not_ended_is_told_beside_the_number_and_not_averaged():
    done, cut = history(seed=0, planned=8, accuracy=0.9), history(seed=1, rounds=3, planned=8, accuracy=0.2)
    (row,) = report.comparison_rows([done, cut])
    assert (row.final["accuracy"], row.unfinished) == ((0.9,), 1)
    assert row.fate == "1 of 2 seeds stopped"
    text = text_of(report.comparison_table([done, cut]))
    assert "90.0 % (1 of 2)" in text
    assert "1 of 2 seeds stopped" in text
    (record,) = report.comparison_frame([done, cut]).to_dict("records")
    assert (record["seeds"], record["seeds_unfinished"], record["accuracy"]) == (2, 1, 0.9)


def test_where_none_has_ended_the_last_common_round_is_shown_with_it():
    early, later = history(seed=0, rounds=3, planned=20), history(seed=1, rounds=5, planned=20)
    (row,) = report.comparison_rows([early, later])
    assert row.final["accuracy"] == (early.final("accuracy"), later.metrics["accuracy"][2])
    assert "(round 4)" in text_of(report.comparison_table([early, later]))


def test_a_diverged_seed_is_told_beside_the_number():
    runs = [history(seed=0, planned=8), history(seed=1, rounds=3, planned=8, diverged=6)]
    text = text_of(report.comparison_table(runs))
    assert "50.0 % (1 of 2)" in text
    assert "1 of 2 seeds diverged" in text


def test_given_labels_may_join_unequal_runs_which_is_told():
    runs = [history("losac", rounds=3), history("fedavg", seed=1, rounds=5)]
    (group,) = report.group_histories(runs, ["one", "one"])
    assert group.fate == "runs of unequal algorithm, rounds together"


def test_run_folders_of_different_lengths_are_different_rows(tmp_path):
    write_run(tmp_path / "long", "losac", 0)
    write_run(tmp_path / "short", "losac", 1, steps=3, last=6)
    groups = group_entries(from_runs(find_runs(tmp_path)))
    assert [group.label for group in groups] == ["losac, rounds=16", "losac, rounds=6"]
    page = report.write_report(find_runs(tmp_path), tmp_path / "page.html").read_text()
    assert "6 to 16 rounds" in page


def test_compare_prints_and_saves_what_differs(tmp_path):
    out = tmp_path / "out"
    options = ["--rounds", "2", "--seeds", "0,1", "--clients", "4", "--out", str(out)]
    result = command("compare", "losac", "scaffold:server_step=5", *options)
    assert result.exit_code == 0, result.output
    assert "scaffold, server_step=5" in result.output
    assert '"scaffold, server_step=5"' in (out / "comparison.csv").read_text()
    assert json.dumps("scaffold, server_step=5") in (out / "report.html").read_text()


def test_what_most_have_is_not_told_of_other_algorithms():
    runs = [history("losac"), history("scaffold"), history("fedavg", step_size=0.3), history("fedsaga", rounds=9)]
    assert labels(*runs) == ["losac", "scaffold", "fedavg, step_size=0.3", "fedsaga, rounds=16"]


def test_samplers_that_differ_anywhere_are_different_conditions():
    """Long arrays, which NumPy shortens in words, and numbers that differ in their last digits."""
    trace = np.ones((400, 4), bool)
    other = trace.copy()
    other[200, 1] = False
    weights = np.ones(4) / 3, np.ones(4) / 3 + np.array([1e-12, 0, 0, 0])
    for one, two in ((Available(trace, 2), Available(other, 2)), [Weighted(w, 2) for w in weights]):
        assert _plain(one) != _plain(two)


def scaled_loss(scale):
    return lambda params, batch: scale * jnp.mean((batch[0] @ params - batch[1]) ** 2)


def drawn_from(first):
    return lambda round_index, rng, history: [(first + round_index) % 4]


def dropped_at(last):
    return lambda round_index: jnp.where(round_index < last, 0.01, 0.001)


def sgd_times(factor):
    return lambda step_size: optax.sgd(factor * step_size)


def own_task(scale=1.0, start=0.0, metric=1.0, **options):
    data = losac.data.load("quadratic", clients=4, samples=4, dim=2, seed=0)
    metrics = {"error": scaled_loss(metric)}
    return losac.Task(scaled_loss(scale), np.full(2, start, "float32"), data, metrics=metrics, **options)


def own_run(seed, *, step_size=0.01, sampling="uniform", optimizer=1.0, strength=None, **task):
    psi = {} if strength is None else {"regularizer": losac.prox.l1(strength)}
    method = losac.algorithms.fedavg(step_size, local_optimizer=sgd_times(optimizer))
    if psi:
        method = losac.algorithms.fedmid(step_size)
    options = {"clients_per_round": 1, "sampling": sampling}
    return losac.simulate(own_task(**task, **psi), method, rounds=2, seed=seed, **options)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"scale": 2.0}),
        ({}, {"start": 1e-3}),
        ({}, {"metric": 2.0}),
        ({}, {"optimizer": 2.0}),
        ({"sampling": drawn_from(0)}, {"sampling": drawn_from(1)}),
        ({"step_size": dropped_at(20)}, {"step_size": dropped_at(60)}),
        ({"strength": 0.1}, {"strength": 0.1 + 1e-9}),
    ],
    ids=["loss", "parameters", "metric", "optimizer", "sampling", "schedule", "strength"],
)
def test_what_differs_only_inside_is_told_apart_and_what_is_made_again_is_not(one, other, tmp_path):
    """Functions of one name, numbers whose first digits agree, initial parameters; in memory and from files."""
    runs = [own_run(0, **one), own_run(1, **one), own_run(2, **one | other)]
    files = [History.load(run.save(tmp_path / f"{seed}.npz")) for seed, run in enumerate(runs)]
    for histories in (runs, files, [files[0], *runs[1:]]):
        groups = report.group_histories(histories)
        assert [[run.seed for run in group.runs] for group in groups] == [[0, 1], [2]]
        assert groups[0].label != groups[1].label


def test_parameters_drawn_by_the_seed_are_one_experiment():
    def init(key):
        return jax.random.normal(key, (2,))

    task = dataclasses.replace(own_task(), params=init)
    runs = [losac.simulate(task, losac.algorithms.fedavg(0.01), rounds=1, seed=seed) for seed in (0, 1)]
    assert len(report.group_histories(runs)) == 1


def test_a_run_that_went_on_from_another_one_is_not_equal_to_one_from_the_start(problem):
    half = run(problem, rounds=2, keep_state=True)
    same = run(problem, rounds=1, state=half)
    assert len(report.group_histories([same, run(problem, seed=1)])) == 1
    other = losac.simulate(problem, losac.algorithms.fedavg(0.02), rounds=1, state=half, keep_state=True)
    again = losac.simulate(problem, losac.algorithms.fedavg(0.02), rounds=1, state=other)
    from_start = [losac.simulate(problem, losac.algorithms.fedavg(0.02), rounds=r, seed=1) for r in (3, 4)]
    for one, whole in zip((other, again), from_start):
        groups = report.group_histories([one, whole])
        assert [len(group.runs) for group in groups] == [1, 1]
        assert groups[0].label == "fedavg, earlier=step_size=0.01 to round 2"
    without_record = run(problem, rounds=1, state=half.state, keep_state=True)
    assert len(report.group_histories([without_record, run(problem, seed=1)])) == 2
    assert (
        len(report.group_histories([run(problem, rounds=1, state=without_record), run(problem, rounds=4, seed=1)])) == 2
    )


def test_histories_of_before_are_grouped_among_themselves_as_before():
    old = {"rounds": 8, "loss_digest": "0123456789ab", "sampling": "draw"}
    runs = [dataclasses.replace(history(seed=seed, local_optimizer="<lambda>"), conditions=old) for seed in (0, 1)]
    assert [group.label for group in report.group_histories(runs)] == ["scaffold"]


def test_torch_modules_and_functions_are_told_apart_and_weights_are_part_of_the_seed():
    torch = pytest.importorskip("torch")
    data = losac.data.load("quadratic", clients=4, samples=4, dim=2, seed=0)

    def loss_times(scale):
        return lambda outputs, y: scale * ((outputs[:, 0] - y) ** 2).mean()

    def one(seed, *, scale=1.0, start=0.0, metric=1.0, negative=False):
        class Model(torch.nn.Linear):
            if negative:

                def forward(self, x):
                    return -super().forward(x)

        module = Model(2, 1)
        torch.nn.init.constant_(module.weight, start)
        torch.nn.init.constant_(module.bias, 0.0)
        metrics, method = {"error": loss_times(metric)}, losac.algorithms.fedavg(0.01)
        return losac.torch.simulate(module, loss_times(scale), data, method, rounds=1, seed=seed, metrics=metrics)

    runs = [one(0), one(1, start=1.0), one(2, scale=2.0), one(4, metric=2.0), one(5, negative=True)]
    groups = report.group_histories(runs)
    assert [[run.seed for run in group.runs] for group in groups] == [[0, 1], [2], [4], [5]]
    assert len({group.label for group in groups}) == 4
