"""``losac attack`` as a user calls it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from commands import losac, refused
from losac.attacks import Audit, Data
from losac.attacks.pictures import draw
from losac.cli.attack import verdict

SMALL = [
    "attack", "run", "--clients", "2", "--samples", "3", "--victims", "1", "--rounds", "2", "--steps", "30",
    "--attacks", "rowspace", "--printed", "paper",
]  # fmt: skip


def test_run_prints_what_leaks_and_saves_what_it_says(tmp_path):
    result = losac(*SMALL, "--algorithm", "dsgd", "--out", str(tmp_path / "new"))
    assert result.exit_code == 0, result.output
    assert "2 of 2" in result.stdout
    assert "no attack" in result.stdout
    assert "The server knows 2 of 2 gradients exactly." in result.stdout
    for name in ("audit.json", "pictures.png", "config.json"):
        assert (tmp_path / "new" / name).stat().st_size > 0
        assert str(tmp_path / "new" / name) in result.stdout
    audit = json.loads((tmp_path / "new" / "audit.json").read_text())
    assert audit["exact_error"] < 1e-5
    assert audit["labels"] == 1
    assert list(audit["psnr"]) == ["class mean", "analytic", "paper, as printed", "rowspace"]
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    assert (config["samples"], config["plan"]["rounds"]) == (3, 2)
    assert "--overwrite" in refused(*SMALL, "--out", str(tmp_path / "new"))


def test_an_experiment_file_names_the_problem_and_the_algorithm(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text('[problem]\nclients = 6\n[algorithm]\nname = "dsgd"\n[simulation]\nrounds = 500\n')
    result = losac(*SMALL, str(file), "--json")
    assert result.exit_code == 0, result.output
    config = json.loads(result.stdout)["config"]
    assert (config["algorithm"], config["clients"], config["plan"]["rounds"]) == ("dsgd", 2, 2)
    assert "is of a comparison" in refused(*SMALL, str(compared(file)))


def compared(file):
    file.write_text('[compare]\nalgorithms = ["dsgd", "losac"]\n')
    return file


def test_noise_is_added_and_counted():
    pytest.importorskip("dp_accounting")
    result = losac(*SMALL, "--algorithm", "fedavg", "--local-steps", "1", "--clip", "0.1", "--noise", "2", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)["result"]
    assert 1 < answer["epsilon"] < 20
    assert answer["exact"] == 0
    assert answer["error"] > 0.9, "under so much noise the best estimate is next to nothing"
    assert answer["psnr"]["rowspace"] < answer["psnr"]["class mean"]
    assert "None of these attacks recovers the rows" in answer["verdict"]
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--algorithm", "scafold"], "did you mean 'scaffold'"),
        (["--attacks", "invertin"], "did you mean 'inverting'"),
        (["--printed", "dgl"], "did you mean 'dlg'"),
        (["--data", "digit"], "digits"),
        (["--model", "softmx"], "softmax"),
        (["--samples", "2000"], "at most 719"),
        (["--victims", "3"], "give at most 2"),
        (["--blocks", "4"], "raise --samples"),
        (["--noise", "1"], "--clip"),
        (["--clip", "a"], "must be a number"),
        (["--algorithm", "losac:momentum=1"], "has no setting 'momentum'"),
        (["--data", "quadratic"], "no labels"),
    ],
)
def test_wrong_values_are_refused_in_a_line(options, words):
    assert words in refused(*SMALL, "--quiet", *options)


def test_algebra_counts_from_the_code(tmp_path):
    page = tmp_path / "page.md"
    options = ["losac", "fedavg", "--blocks", "1", "--local-steps", "1,2,5", "--rounds", "3", "--markdown", str(page)]
    result = losac("attack", "algebra", *options, "--json")
    assert result.exit_code == 0, result.output
    found = {(leak["algorithm"], leak["local_steps"]): leak for leak in json.loads(result.stdout)}
    counts = {key: (leak["gradients"], leak["exact"], leak["at_sent"]) for key, leak in found.items()}
    assert counts == {
        ("losac", 1): (3, 3, 3), ("losac", 2): (6, 6, 3), ("losac", 5): (15, 3, 0),
        ("fedavg", 1): (3, 3, 3), ("fedavg", 2): (6, 0, 0), ("fedavg", 5): (15, 0, 0),
    }  # fmt: skip
    assert 0 < found["fedavg", 5]["left_open"] < 1
    assert found["losac", 1]["left_open"] is None
    text = page.read_text()
    assert "| `losac` | 1 | 5 | 15 | 3 | 0 |" in text
    assert "losac attack algebra losac fedavg --blocks 1 --local-steps 1,2,5 --rounds 3" in text


def test_algebra_prints_a_table_and_says_what_is_not_linear():
    result = losac("attack", "algebra", "tamuna", "dsgd", "--blocks", "1", "--rounds", "2")
    assert result.exit_code == 0, result.output
    assert "not linear" in result.stdout
    assert len(re.findall(r"\bown\b", result.stdout)) == 2


def test_algebra_names_quietly_what_gives_a_gradient_away():
    options = ["--blocks", "1", "--local-steps", "2", "--rounds", "2", "--quiet"]
    result = losac("attack", "algebra", "fedavg", "dsgd", *options)
    assert (result.stdout, result.stderr) == ("dsgd\n", "")


def test_algebra_refuses_wrong_values(tmp_path):
    assert "did you mean 'losac'" in refused("attack", "algebra", "losca")
    assert "such as 1,5" in refused("attack", "algebra", "losac", "--blocks", "one")
    assert "from 1 on" in refused("attack", "algebra", "losac", "--blocks", "0")
    assert "make it first" in refused("attack", "algebra", "losac", "--markdown", str(tmp_path / "no" / "page.md"))


def audit_of(**psnr):
    found = {name.replace("_", " "): value for name, value in psnr.items()}
    return Audit(10, 4, 1e-7, 0.5, 0.1, 1.0, 0.0, found, {}, {})


def test_the_verdict_follows_the_best_attack_and_the_control():
    assert "It can read" in verdict(audit_of(class_mean=12.0, dlg=35.0))
    assert "something" in verdict(audit_of(class_mean=12.0, dlg=16.0))
    assert "does not prove" in verdict(audit_of(class_mean=12.0, dlg=13.0))
    assert "something" in verdict(audit_of(dlg=13.0))


@pytest.mark.parametrize("image", [(2, 2), None])
def test_pictures_are_labelled_with_their_decibels(image):
    real = np.array([[0.0, 1, 1, 0], [1, 0, 0, 1]])
    figure = draw({"real": real, "dlg": real + 0.1}, Data((4,), (0.0, 1.0), 2, image))
    words = [panel.get_ylabel() for panel in figure.axes]
    assert "real" in words
    assert "dlg\n20.0 dB" in words
    assert sum(len(panel.images) for panel in figure.axes) >= (4 if image else 2)
