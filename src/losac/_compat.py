"""The few places where JAX changed its names between 0.6 and today."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.experimental

__all__ = ["enable_x64", "evaluate", "shard_map"]


def enable_x64(on: bool) -> AbstractContextManager[Any]:
    """Return the context where new arrays may have 64 bits."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    return getattr(jax.experimental, "enable_x64")(on)  # noqa: B009


def evaluate(eqn: Any, values: list[Any]) -> list[Any]:
    """Return the outcome of one equation of a traced function."""
    bound = eqn.primitive.get_bind_params(eqn.params)
    functions, settings = bound if isinstance(bound, tuple) else ((), bound)
    outcome = eqn.primitive.bind(*functions, *values, **settings)
    return list(outcome) if eqn.primitive.multiple_results else [outcome]


def shard_map(function: Any, mesh: Any, in_specs: Any, out_specs: Any) -> Any:
    """Return the function as it runs on every device's shard."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    from jax.experimental.shard_map import shard_map as old

    return old(function, mesh, in_specs, out_specs, check_rep=False)
