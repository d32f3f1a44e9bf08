"""A server that sees sums only: a group of clients is attacked as one client with the rows of all."""

from __future__ import annotations

import pytest

import losac
from losac.attacks.algebra import solve, system_of
from losac.attacks.measures import relative_error
from losac.attacks.public import cut
from losac.attacks.sums import pooled, watch_sum
from losac.attacks.transcript import mean_gradient
from losac.trees import scale

A = losac.algorithms
DATA = cut(losac.data.load("digits", clients=3), rows=4).clients
TASK = losac.classification(losac.models.softmax_regression(64, 10), DATA)


@pytest.mark.parametrize("method", [A.dsgd(1e-3), A.losac(1e-4, 1)], ids=lambda method: method.label)
def test_the_sum_gives_away_the_gradient_of_all_rows_together(method):
    seen = watch_sum(TASK, method, [0, 2], rounds=2)
    x, y = pooled(TASK, [0, 2])
    found = solve(system_of(seen))
    assert found
    for one in found:
        assert one.exact
        assert relative_error(one.gradient, scale(len(x), mean_gradient(TASK.loss)(one.model, (x, y)))) < 1e-4


def test_what_is_no_sum_of_the_same_steps_is_refused():
    with pytest.raises(ValueError, match="draws blocks or batches"):
        watch_sum(TASK, A.losac(1e-4, 1, 2), [0, 1], rounds=1)
    with pytest.raises(ValueError, match="changes its uploads"):
        watch_sum(TASK, A.fedavg(1e-4, uploads=(A.fixed_point(1.0),)), [0, 1], rounds=1)
