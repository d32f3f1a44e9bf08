"""One host device per core, set up before JAX starts and only where the user has not set it up otherwise."""

from __future__ import annotations

import os


def one_device_per_core() -> None:
    """Ask JAX for as many CPU devices as there are cores; do nothing if it runs already or was told otherwise.

    ``LOSAC_CPU_DEVICES`` sets another number (1: leave JAX as it is).
    """
    import jax

    chosen = os.environ.get("LOSAC_CPU_DEVICES")
    told = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    told = told or "JAX_NUM_CPU_DEVICES" in os.environ or getattr(jax.config, "jax_num_cpu_devices", 0) != -1
    if told and chosen is None:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    devices = int(chosen) if chosen else cores
    if devices > 1:
        try:
            jax.config.update("jax_num_cpu_devices", devices)
        except RuntimeError:
            return  # JAX runs already, with the devices that the user's program gave it
