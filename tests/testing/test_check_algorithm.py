"""`check_algorithm` passes what keeps the laws, and names the law that a broken algorithm breaks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import losac
from catalogue import CATALOGUE
from losac.algorithms.fedavg import Fedavg
from losac.algorithms.scaffold import Scaffold
from losac.federation.shapes import payload_like
from losac.testing import Finding, Report, check_algorithm
from losac.trees import axpy, map_trees
from problems import quadratic


def broken_laws(report: Report) -> set[str]:
    return {finding.law for finding in report.failures}


def test_ours_pass():
    """FedLin has two phases and needs all clients; testing/test_laws.py tries the same laws on every algorithm."""
    entry = next(entry for entry in CATALOGUE if entry.name == "fedlin")
    report = check_algorithm(
        entry.make, full=entry.full, sampling=entry.sampling, random_blocks=entry.random_blocks, raise_=False
    )
    assert report.passed, str(report)
    assert {f.law for f in report.findings} == {
        "settings are checked",
        "settings say all",
        "uploads are arrays",
        "structure and dtype stay",
        "functions are pure",
        "the sum is enough",
        "credits add up",
        "the seed decides",
        "engine independence",
        "fixed point",
    }


class WrongSign(Scaffold):
    """SCAFFOLD with c − c_i for c_i − c, a mistake found in public code."""

    def step(self, here, message, c_i, w, grad):
        return map_trees(lambda w, g, ci, c: w - self.step_size * (g + ci - c), w, grad(w), c_i, message.c)


def test_a_control_variate_of_the_wrong_sign_breaks_the_fixed_point():
    with pytest.raises(AssertionError, match="fixed point") as caught:
        check_algorithm(WrongSign, sampling="exact")
    text = str(caught.value)
    assert "breaks 2 of" in text  # without a promise for all clients, it must at least end nearer than it began
    assert "full participation, full gradients: BROKEN: it left the finite numbers" in text
    assert "client sampling, full gradients" in text
    assert "measured inf" in text
    assert "allowed 1e-09" in text


class NarrowState(Scaffold):
    """Its clients' state becomes half as wide as it was."""

    def end(self, here, message, c_i, w):
        upload, renewed = super().end(here, message, c_i, w)
        return upload, map_trees(lambda leaf: leaf.astype("float16"), renewed)


def test_a_state_that_changes_its_dtype_is_named():
    report = check_algorithm(NarrowState, raise_=False)
    assert report.failures[0].law == "structure and dtype stay"
    assert "end changes the client's state from" in report.failures[0].words
    assert "float16" in report.failures[0].words


class OtherShape(Fedavg):
    """Its server forgets the tree that it was given."""

    def update(self, here, x, received):
        return [super().update(here, x, received)]


def test_a_state_that_changes_its_structure_is_named():
    report = check_algorithm(OtherShape, raise_=False)
    assert "structure and dtype stay" in broken_laws(report)
    assert "update changes the server's state" in str(report)


LAST = []


class Peeking(Fedavg):
    """Its server moves by the last client's upload instead of the mean."""

    def end(self, here, x, client, w):
        upload, client = super().end(here, x, client, w)
        LAST.append(upload)
        return upload, client

    def update(self, here, x, received):
        return axpy(1.0, LAST[-1], x)


class UndeclaredRows(Fedavg):
    """It wants to see single uploads, and does not say so."""

    def receive(self, row, upload):
        return map_trees(abs, upload), row


@pytest.mark.parametrize("peeking", [Peeking, UndeclaredRows])
def test_a_server_that_peeks_at_single_uploads_is_caught(peeking):
    assert broken_laws(check_algorithm(peeking, raise_=False)) == {"the sum is enough"}


class WrongHolding(Scaffold):
    """It would be taken out of the sum twice over."""

    def holding(self, here, start, c_i, table):
        return map_trees(lambda leaf: 2 * leaf, c_i)


def test_a_holding_that_is_not_the_sum_of_its_credits_is_caught():
    assert broken_laws(check_algorithm(WrongHolding, raise_=False)) == {"credits add up"}


class Unseeded(Fedavg):
    """Its steps are noisy, with numbers from nowhere."""

    def step(self, here, x, client, w, grad):
        noise = np.random.default_rng().normal()
        return map_trees(lambda w, g: w - self.step_size * (g + noise), w, grad(w))


def test_random_numbers_without_a_key_are_caught():
    report = check_algorithm(Unseeded, raise_=False)
    assert "functions are pure" in broken_laws(report)
    failure = next(f for f in report.failures if f.law == "functions are pure")
    assert failure.measured > failure.allowed == 0
    assert "here.common" in failure.words


class Unchecked(Fedavg):
    """It takes any settings."""

    def __post_init__(self):
        pass


def test_settings_that_nobody_checks_are_caught():
    report = check_algorithm(Unchecked, raise_=False)
    assert broken_laws(report) == {"settings are checked"}
    assert "step_size=-1.0 is accepted" in str(report)


class Secretive(Fedavg):
    """Part of what it is is no setting, so that neither a file nor a sweep would have it."""

    def validate(self):
        super().validate()
        object.__setattr__(self, "factor", 2.0)


def test_what_is_no_setting_is_caught():
    report = check_algorithm(Secretive, raise_=False)
    assert broken_laws(report) == {"settings say all"}
    assert "from its leaves: BROKEN: made again it has lost or changed factor" in str(report)


def test_a_promise_that_is_not_kept_is_said_in_words():
    """LoSAC is exact with sampled clients and random blocks, and needs not all of them."""
    own = losac.algorithms.losac(1.0, 5, scaling="exact")
    report = check_algorithm(own, full="biased", sampling="refused", random_blocks="exact", raise_=False)
    assert [(f.law, f.where) for f in report.failures] == [
        ("fixed point", "full participation, full gradients"),
        ("fixed point", "client sampling, full gradients"),
    ]
    assert report.failures[0].measured < report.failures[0].allowed == 1e-3
    assert "partial = False" in str(report)


def test_what_cannot_be_made_or_is_no_algorithm_is_said():
    report = check_algorithm(losac.algorithms.feddyn, no_such=1, raise_=False)
    assert "cannot be made with (step_size, local_steps, blocks)" in str(report)
    with pytest.raises(TypeError, match="needs an algorithm"):
        check_algorithm(lambda curvature, regime: 3)
    with pytest.raises(TypeError, match="must set server_step itself"):
        check_algorithm(lambda curvature, regime: Fedavg(1.0), server_step=2.0)


def test_a_finding_in_words():
    finding = Finding("fixed point", "here", False, "it ends away", 0.5, 1e-9)
    assert str(finding) == "fixed point, here: BROKEN: it ends away (measured 0.5, allowed 1e-09)"
    assert str(Report("mine()", (finding,))) == f"mine()\n- {finding}"


class Counted(NamedTuple):
    x: Any
    number: Any


class Counting(Fedavg):
    """Each upload says how many it is, as a Python number."""

    def end(self, here, x, client, local):
        move, client = super().end(here, x, client, local)
        return Counted(move, 1.0), client

    def update(self, here, x, received):
        return super().update(here, x, received._replace(total=received.total.x))


def test_a_python_number_in_an_upload_is_named_wherever_it_is_met():
    """It has no dtype: one layout would take it, another fail, and a federation could not check it."""
    report = check_algorithm(Counting, raise_=False)
    assert broken_laws(report) == {"uploads are arrays"}
    assert "has the Python number 1.0 at .number" in str(report)
    problem = quadratic(clients=2, samples=4, dim=2)
    with pytest.raises(TypeError, match=r"counting: its upload has the Python number 1\.0 at \.number"):
        losac.simulate(problem.task, Counting(0.01), rounds=1)
    with pytest.raises(TypeError, match=r"Python number 1\.0 at \.number"):
        payload_like(Counting(0.01), 0, np.zeros(2), 2, 2)
