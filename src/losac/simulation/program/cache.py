"""Compiled programs, in one place: each uses some dozens of memory maps, and a process may have about 65,000.

The least recently used programs are forgotten, to stay far below that. One that is needed again is compiled again,
with the same results.
"""

from __future__ import annotations

import functools
import gc
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

MOST = 256
"""The number of programs kept."""
SHARE_OF_MAPS = 0.5
"""The share of the allowed memory maps in use before programs are forgotten."""
DEFAULT_MAPS = 65530

_PROGRAMS: OrderedDict[Any, Any] = OrderedDict()


def tracked(*, static: int = 0, donate: tuple[int, ...] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function, as :func:`jax.jit` does, and keep its programs here.

    Args:
      static: how many arguments, the first ones, are static.
      donate: the places of the arguments that give their memory away.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            fixed, given = arguments[:static], arguments[static:]
            leaves, structure = jax.tree.flatten(given)
            kinds = tuple((jax.numpy.shape(leaf), getattr(leaf, "dtype", type(leaf))) for leaf in leaves)
            context = tuple(getattr(jax.config, name) for name in ("jax_enable_x64", "jax_default_matmul_precision"))
            key = function, fixed, structure, kinds, context
            if key not in _PROGRAMS:
                make_room()
                _PROGRAMS[key] = jax.jit(_bound(function, fixed), donate_argnums=tuple(k - static for k in donate))
            _PROGRAMS.move_to_end(key)
            return _PROGRAMS[key](*given)

        setattr(call, "_cache_size", lambda: count(function))  # noqa: B010
        return call

    return decorate


def count(function: Callable[..., Any] | None = None) -> int:
    """Return the number of programs kept, for one function or for all."""
    return sum(function is None or key[0] is function for key in _PROGRAMS)


def make_room() -> None:
    """Forget the oldest programs if there are many, or if they use many memory maps."""
    if len(_PROGRAMS) < MOST and memory_maps() < SHARE_OF_MAPS * most_memory_maps():
        return
    most = 3 * min(MOST, len(_PROGRAMS)) // 4
    while len(_PROGRAMS) > most:
        _PROGRAMS.popitem(last=False)[1].clear_cache()
    gc.collect()
    if memory_maps() >= SHARE_OF_MAPS * most_memory_maps():  # others than these use them, such as a user's own programs
        jax.clear_caches()


def memory_maps() -> int:
    """Return how many memory maps this process has; 0 if the system does not say."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


def most_memory_maps() -> int:
    """Return how many memory maps a process may have."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return DEFAULT_MAPS


def _bound(function: Callable[..., Any], fixed: tuple[Any, ...]) -> Callable[..., Any]:
    """Return the function of the remaining arguments; a new one for each program, which can then be freed."""

    def call(*given: Any) -> Any:
        return function(*fixed, *given)

    return call
