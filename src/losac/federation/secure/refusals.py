"""What secure aggregation needs of a federation, and what it cannot be combined with."""

from __future__ import annotations

import jax

from losac._settings import LOOKED_AT
from losac.algorithms.fixed_point import FixedPoint
from losac.federation.errors import RefusedError
from losac.federation.secure.levels import credited
from losac.federation.setting import Setting
from losac.federation.shapes import own_phase_index
from losac.simulation.program.client import averages_by_weight

LEAST = 3
"""The fewest clients of a sum: of two, each learns the other's upload."""
WORD = 63
"""Bits of a sum, besides its sign."""


def check_secure(setting: Setting) -> None:
    """Refuse what needs to see single uploads, or would show them."""
    algorithm, rules = setting.given, setting.rules
    name = algorithm.label
    if algorithm.server_rows:
        raise RefusedError(
            f"{name} keeps a row for each client at the server, so the server must see single uploads: secure "
            "aggregation shows it sums only; use another algorithm"
        )
    if rules.recovery != "reset":
        why = {
            "ledger": "the server keeps what each client added, and so must see single uploads",
            "resync": "the sum before a client's loss less the sum after it is what that client alone held",
        }
        raise RefusedError(
            f"recovery={rules.recovery!r}: {why[rules.recovery]}; with secure aggregation, use recovery='reset'"
        )
    if rules.largest is not None:
        raise RefusedError(
            f"largest={rules.largest!r} bounds the norm of single uploads, which secure aggregation hides: leave it "
            "out (every entry is within the range in any case), or clip at the clients with gaussian(clip=…)"
        )
    if algorithm.aggregation:
        raise RefusedError(
            f"aggregation={algorithm.aggregation} compares single uploads, which secure aggregation hides: a server "
            "that cannot look at uploads cannot reject one; leave out one of the two"
        )
    if any(averages_by_weight(phase) for phase in algorithm.phases()):
        raise RefusedError(
            f"{name} weighs the uploads at the server, which no longer sees them: use weighting='loss', with which "
            "the clients' weights act in their own losses"
        )
    if jax.tree.leaves(setting.model_state):
        raise RefusedError(
            "the model has a state (such as batch statistics), which has no declared range: use a model without one, "
            "such as group instead of batch norm"
        )
    for phase in algorithm.phases():
        transforms = algorithm.transforms_of(phase)
        if not (transforms and isinstance(transforms[-1], FixedPoint)):
            raise RefusedError(
                f"{name} does not send whole numbers: let fixed_point(limit) be the last of its uploads' transforms"
            )
        most = rules.clients * 2 ** transforms[-1].bits
        if most.bit_length() > WORD:
            raise RefusedError(
                f"the sum of {rules.clients} uploads of bits={transforms[-1].bits} may not fit into 64 bits: use fewer"
            )
    if rules.clients_per_round < LEAST:
        raise RefusedError(
            f"clients_per_round={rules.clients_per_round}: a sum over fewer than {LEAST} clients protects nobody: "
            "of two, each learns the other's upload"
        )
    _check_credit(setting)


def _check_credit(setting: Setting) -> None:
    """Refuse sums that weigh the rounds differently: they are no sums of whole numbers."""
    algorithm, payload = setting.given, setting.payload_like(own_phase_index(setting.algorithm))
    looked_at = [[part[:2] for part in credited(algorithm.at(number), payload)] for number in LOOKED_AT]
    if any(found != looked_at[0] for found in looked_at):
        raise RefusedError(
            f"{algorithm.label} adds up uploads times a number that changes by a schedule: what clients hold is then "
            "no sum of whole numbers; use a constant"
        )
