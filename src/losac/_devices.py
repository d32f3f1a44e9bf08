"""Sets JAX up when losac is first used: a host device per core, a folder of compiled programs, peer processes.

Only what the user has not set up otherwise, and only before JAX starts.
"""

from __future__ import annotations

import os
from pathlib import Path

CACHE_BYTES = 2**30
"""How much of compiled programs is kept."""


def prepare_jax() -> None:
    """Ask JAX for as many CPU devices as there are cores, and let it keep compiled programs for the next run.

    ``LOSAC_CPU_DEVICES`` sets another number of devices (1: leave JAX as it is); programs are kept in the folder of
    ``LOSAC_CACHE``, and not at all with ``LOSAC_PROGRAMS=off``. What JAX was told already stays.
    """
    _one_device_per_core()
    _keep_programs()


def _one_device_per_core() -> None:
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


def _keep_programs() -> None:
    import jax

    from losac._folders import cache_dir

    if os.environ.get("LOSAC_PROGRAMS") == "off" or getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = cache_dir() / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # without a folder to write to, every run compiles anew
    _forget_oldest(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))


def _forget_oldest(folder: Path) -> None:
    """Delete the programs that were not used for the longest time, beyond what the folder may hold."""
    files = sorted(folder.glob("*"), key=lambda file: file.stat().st_mtime, reverse=True)
    held = 0
    for file in files:
        held += file.stat().st_size
        if held > CACHE_BYTES:
            file.unlink(missing_ok=True)


def distributed(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Join this process to others, on this host or on several, so that :func:`losac.simulate` runs over all devices.

    Every process calls it first of all, with the same program after it; each then gets the same history.

    Args:
      coordinator: ``"host:port"`` of the first process; by default ``JAX_COORDINATOR_ADDRESS``.
      processes: how many there are; by default ``JAX_NUM_PROCESSES``.
      process: the number of this one, from 0; by default ``JAX_PROCESS_ID``.

    Under Slurm or Open MPI, and on TPU pods, nothing need be given.
    """
    import jax

    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    processes = _number("JAX_NUM_PROCESSES") if processes is None else processes
    process = _number("JAX_PROCESS_ID") if process is None else process
    prepare_jax()
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except RuntimeError as error:
        if "must be called before" in str(error):
            raise RuntimeError(
                "losac.distributed() comes too late, since JAX has started already: call it before anything else that "
                "computes or asks for devices"
            ) from error
        if "only be called once" in str(error):
            raise RuntimeError("losac.distributed() was called twice; this process has joined already") from error
        raise
    except ValueError as error:
        raise ValueError(
            f"losac.distributed(coordinator={coordinator!r}, processes={processes!r}, process={process!r}): {error} "
            "Say all three, or set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID; they are found by "
            "themselves only under Slurm, Open MPI and on TPU pods"
        ) from error


def _number(variable: str) -> int | None:
    value = os.environ.get(variable)
    return None if value is None else int(value)
