"""The versions and hardware of a run."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("losac", "jax", "jaxlib", "numpy", "optax", "orbax-checkpoint")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect numbers."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def hardware() -> dict[str, Any]:
    """Return the processor, its memory, and the devices that JAX computes on."""
    import jax

    devices = jax.devices()
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory(),
        "devices": f"{len(devices)} × {devices[0].device_kind} ({jax.default_backend()})",
    }


def _memory() -> float | None:
    if not hasattr(os, "sysconf"):
        return None
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
