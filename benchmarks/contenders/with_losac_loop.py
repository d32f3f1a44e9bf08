"""The members of a sweep one after the other, each by losac.simulate."""

from __future__ import annotations

from typing import Any

from protocol import serve
from simulator import make_algorithm
from with_losac import Sweep

import losac


class Loop(Sweep):
    """A Python loop over the members; they share one compiled program."""

    about = "a loop over the members, which share one compiled program"

    def members(self, rounds: int) -> Any:
        return [
            losac.simulate(
                self.task,
                make_algorithm(self.job).replace(step_size=step),
                rounds=rounds,
                eval_every=rounds,
                clients_per_round=self.job.sampled,
                seed=seed,
            )
            for step in self.job.swept_steps
            for seed in self.job.swept_seeds
        ]


if __name__ == "__main__":
    serve(Loop)
