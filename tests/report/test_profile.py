"""The feature table: measured on the program, complete, and told by the command line."""

from __future__ import annotations

import inspect
import json
import re

import pytest
from typer.testing import CliRunner

import losac.algorithms as A
from losac.cli import app
from losac.report.describe import describe
from losac.report.profile import blank_task, drift, example, measure, profile, state_in_words

TASK = blank_task("softmax")


def losac(*arguments: str):
    return CliRunner().invoke(app, ["algorithms", *arguments])


@pytest.mark.parametrize(
    ("name", "down", "up", "kept", "server", "rows", "gradients"),
    [
        ("dsgd", 1, 1, "0", 1, 0, 0.25),
        ("fedavg", 1, 1, "0", 1, 0, 1.25),
        ("scaffold", 2, 2, "1", 2, 0, 1.25),
        ("losac", 2, 2, "M", 2, 0, 1.25),
        ("fedsaga", 1, 1, "1 + M", 1, 0, 1.25),
        ("fedvarp", 1, 1, "0", 2, 1, 1.25),
        ("mifa", 1, 1, "0", 2, 1, 1.25),
        ("fedadam", 1, 1, "0", 3, 0, 1.25),
        ("mime_svrg", 3, 2, "0", 2, 0, 3.5),
        ("fedlin", 3, 2, "1", 2, 0, 2.25),
        ("local_svrg", 3.5, 1.5, "0", 3, 0, 3.0),
    ],
)
def test_rows(name, down, up, kept, server, rows, gradients):
    found = measure(name, TASK)
    assert (found.down, found.up, state_in_words(found)) == (down, up, kept)
    assert (found.server_state, found.server_rows, found.gradients) == (server, rows, gradients)


def test_the_phases_of_local_svrg():
    """With probability 1/2 all clients send a full gradient; then the sampled ones take steps of two gradients."""
    renewal, training = measure("local_svrg", TASK).phases
    assert (renewal.clients, renewal.chance, renewal.steps, renewal.gradients) == ("all", 0.5, 0, 1)
    assert (training.clients, training.chance, training.steps, training.gradients_per_step) == ("sample", 1, 5, 2)


def test_bytes_are_those_of_the_model():
    record = measure("scaffold").record()
    assert (record["parameters"], record["model_bytes"]) == (199_210, 796_840)
    assert (record["bytes_down"], record["bytes_up"]) == (2 * 796_840, 2 * 796_840)


def test_the_table_grows_with_the_blocks():
    assert [profile(A.losac(0.1, 2, m), TASK).table_state for m in (1, 3, 8)] == [1, 3, 8]


def test_compression_shrinks_the_upload_only():
    """A quarter of the entries, and a bit for each place; a byte for a float is a quarter."""
    plain, top, error = (
        profile(A.fedavg(0.1, uploads=uploads), TASK)
        for uploads in ((), (A.top_k(0.25, error_feedback=False),), (A.top_k(0.25),))
    )
    assert (top.down, top.client_state, error.client_state) == (1, 0, 1)
    assert top.up == error.up == pytest.approx(plain.up * (1 / 4 + 1 / 32), rel=1e-3)
    assert measure("fedpaq", TASK).up == (7850 + 2 * 4) / (7850 * 4)  # a byte an entry, a norm for each of two arrays
    assert profile(A.tamuna(0.1, sparsity=2), TASK).up == pytest.approx(0.5, rel=1e-3)


def test_random_numbers_of_steps_count_by_their_mean():
    (found,) = profile(A.scaffnew(0.1, probability=0.25), TASK).phases
    assert found.steps == pytest.approx(4, rel=1e-3)


def test_mini_batches():
    found = profile(A.fedavg(0.1, batch_size=4, epochs=3), TASK)
    assert (found.phases[0].steps, found.gradients) == (6, 3)


@pytest.mark.parametrize("name", A.names())
def test_every_algorithm_can_be_profiled_and_described(name):
    found = measure(name, TASK)
    assert found.samples_clients == example(name).partial
    assert found.regulariser == example(name).composite
    assert found.down >= 1
    assert 0 < found.up <= 2 + 1e-3
    assert found.server_state >= 1
    assert found.corrects_drift is None
    words = describe(name)
    assert {kind for kind, _ in words.body} == {"text", "math"}
    assert words.parameters[0][:2] == ("step_size", "required")
    assert words.parameters[0].meaning.startswith("η")
    assert ".. math" not in str(words.body)
    assert any(year in words.reference for year in map(str, range(2012, 2027))) or "LoSAC" in words.reference


@pytest.mark.parametrize("name", A.names())
def test_an_algorithm_states_its_own_facts(name: str):
    cls = A.ALGORITHMS[name]
    assert {"title", "theory"} <= vars(cls).keys(), "title and theory are not inherited"
    assert cls.title.lower().replace("-", "_") != ""
    assert len(cls.tuned) <= 1
    words = inspect.getdoc(cls) or ""
    assert ">>> algorithm = losac.algorithms." + name + "(" in words
    assert re.search(r"\nReference: https://(arxiv\.org/abs/\d{4}\.\d{5}|openreview\.net/forum\?id=\w+)$", words)


def test_titles_tell_algorithms_apart():
    assert len({cls.title for cls in A.ALGORITHMS.values()}) == len(A.ALGORITHMS)


def test_drift():
    assert drift("fedavg") > 1e-3
    assert drift("scaffold") < 1e-9


def test_the_command_prints_all_names():
    assert losac("--quiet").stdout.split() == list(A.names())
    result = losac("--model", "softmax")
    assert result.exit_code == 0, result.output
    assert [name for name in A.names() if f" {name} " not in result.stdout] == []


def test_the_command_tells_about_one():
    result = losac("scaffold", "--model", "softmax")
    assert result.exit_code == 0, result.output
    for word in ("w ← prox_{ηΨ}(w - η(g_i(w) - c_i + c)),", "option", "1 or 2", "Karimireddy", "7,850 parameters"):
        assert word in result.stdout


def test_the_command_as_json():
    (found,) = json.loads(losac("losac", "--model", "softmax", "--json").stdout)
    assert (found["name"], found["down"], found["table_state"]) == ("losac", 2, 4)
    assert found["corrects_drift"] is None
    assert found["settings"][0]["name"] == "step_size"


@pytest.mark.parametrize(
    ("arguments", "hint"), [(["scafold"], "did you mean 'scaffold'?"), (["--model", "softmx"], "'softmax'")]
)
def test_a_wrong_name_is_one_line_and_exit_code_2(arguments, hint):
    result = losac(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert hint in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
