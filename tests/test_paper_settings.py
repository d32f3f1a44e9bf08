"""The paper's settings on the real data: loss and accuracy at round 500, within the spread over seeds.

The ranges are those of six seeds (docs/paper_settings.md), widened by half their width; the paper's numbers lie
within a few per cent of them. Seed 0 is not used: there LoSAC on MNIST swings late, at the edge of its stability, and
the rounding of single precision decides where it ends (0.11 to 0.19).
"""

from __future__ import annotations

import pytest

import losac

SPREAD = {  # loss, accuracy
    ("mnist", "scaffold"): ((0.190, 0.214), (0.940, 0.946)),
    ("mnist", "losac"): ((0.049, 0.157), (0.953, 0.977)),
    ("har", "scaffold"): ((0.228, 0.265), (0.882, 0.933)),
    ("har", "losac"): ((0.088, 0.177), (0.922, 0.951)),
}


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "label"), SPREAD)
def test_table_2_at_two_steps_and_five_blocks(real_data, name, label):
    data = losac.data.load(name, clients=100, partition="sorted", data_dir=real_data)
    model = losac.models.two_nn(data.x.shape[1], data.num_classes)
    algorithm = losac.algorithms.ALGORITHMS[label](step_size=1e-4, local_steps=2, blocks=5)
    run = losac.simulate(
        losac.classification(model, data), algorithm, rounds=500, clients_per_round=10, eval_every=500, seed=1
    )
    (low, high), (least, most) = SPREAD[name, label]
    assert low <= run.final("loss") <= high
    assert least <= run.final("accuracy") <= most
