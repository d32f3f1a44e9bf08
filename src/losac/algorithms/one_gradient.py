"""The common part of methods whose clients take no local steps and send something computed from one gradient."""

from __future__ import annotations

from losac.algorithms.contract import Algorithm, Draw


class OneGradient(Algorithm):
    """A method with one draw of a client's data a round."""

    def validate(self) -> None:
        """A client takes no local steps."""
        super().validate()
        if self.local_steps not in (None, 1) or self.epochs:
            raise ValueError(
                f"{self.label} sends one gradient a round: local_steps must be 1; use fedavg for local steps"
            )

    @property
    def draw(self) -> Draw:
        """One draw, of a block or a batch."""
        return Draw(1, self.blocks or 1, self.batch_size)
