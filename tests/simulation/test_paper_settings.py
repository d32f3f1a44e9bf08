"""The paper's settings on the real data, over the first rounds: how fast, and to which loss and accuracy.

Table 2 counts the rounds to 85 % accuracy (T = 2, M = 5): on HAR 89 with LoSAC and 137 with SCAFFOLD, on MNIST 44 and
57. So the order of the two is seen long before round 500, up to which `examples/paper_settings.py` goes. On HAR every
one of seeds 1 to 6 needs less than the paper's 89 rounds with LoSAC (58 to 80) and more with SCAFFOLD; on MNIST 63
rounds are enough for four of these seeds with LoSAC (43 to 58 rounds, seed 1 among them) and for none with SCAFFOLD.

The ranges are those of losses and accuracies in the last round with seeds 0 to 6 (HAR) and 1 to 6 (MNIST), by this code
on two CPU devices, widened on each side by half their width.
"""

from __future__ import annotations

import numpy as np
import pytest

import losac

ROUNDS = {"har": 100, "mnist": 63}
DUE = {"har": 89, "mnist": 63}
"""By when LoSAC must have had 85 % and SCAFFOLD must not: on HAR the paper's own count."""
SPREAD = {  # least and most of the loss, of the accuracy
    ("mnist", "scaffold"): ((0.6039, 0.6843), (0.7775, 0.8378)),
    ("mnist", "losac"): ((0.4223, 0.6117), (0.8449, 0.8819)),
    ("har", "scaffold"): ((0.5713, 0.6183), (0.7489, 0.8402)),
    ("har", "losac"): ((0.3287, 0.3542), (0.8242, 0.8860)),
}


def within(value: float, least: float, most: float) -> bool:
    slack = (most - least) / 2
    return least - slack <= value <= most + slack


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "label"), SPREAD)
def test_table_2_at_two_steps_and_five_blocks(real_data, name, label):
    data = losac.data.load(name, clients=100, partition="sorted", data_dir=real_data)
    model = losac.models.two_nn(data.x.shape[1], data.num_classes)
    algorithm = losac.algorithms.ALGORITHMS[label](step_size=1e-4, local_steps=2, blocks=5)
    run = losac.simulate(
        losac.classification(model, data), algorithm, rounds=ROUNDS[name], clients_per_round=10,
        loss_every=ROUNDS[name], seed=1,
    )  # fmt: skip
    losses, accuracies = SPREAD[name, label]
    assert within(run.final("loss"), *losses)
    assert within(run.final("accuracy"), *accuracies)
    reached = np.max(run.metrics["accuracy"][: DUE[name] + 1]) >= 0.85
    assert reached == (label == "losac")
