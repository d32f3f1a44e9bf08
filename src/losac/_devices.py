"""Sets JAX up when losac is first used: a host device per core, a folder of compiled programs, peer processes.

It leaves what the user has set up alone, and does nothing once JAX has started.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

CACHE_BYTES = 2**30
"""The most bytes of compiled programs kept."""


def prepare_jax() -> None:
    """Ask JAX for as many CPU devices as there are cores, and let it keep compiled programs for the next run.

    ``LOSAC_CPU_DEVICES`` sets another number of devices (1: change nothing in JAX); programs are kept in the folder of
    ``LOSAC_CACHE``, and not at all with ``LOSAC_PROGRAMS=off``. Settings already made in JAX stay.
    """
    _one_device_per_core()
    _keep_programs()


def _one_device_per_core() -> None:
    import jax

    chosen = _number("LOSAC_CPU_DEVICES", least=1)
    told = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    told = told or "JAX_NUM_CPU_DEVICES" in os.environ or getattr(jax.config, "jax_num_cpu_devices", 0) != -1
    if told and chosen is None:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    devices = chosen or cores
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
        return  # without a folder to write to, every run compiles again
    _forget_oldest(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))


def _forget_oldest(folder: Path) -> None:
    """Delete the least recently used programs, beyond what the folder may hold."""
    found = []
    for file in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):  # another process forgets programs too
            found.append((file.stat(), file))
    held = 0
    for facts, file in sorted(found, key=lambda each: each[0].st_mtime, reverse=True):
        held += facts.st_size
        if held > CACHE_BYTES:
            file.unlink(missing_ok=True)


def distributed(coordinator: str | None = None, processes: int | None = None, process: int | None = None) -> None:
    """Join this process to others, on this host or several, to run :func:`losac.simulate` over all their devices.

    Every process calls it before anything else and then runs the same program; each gets the same history.

    Args:
      coordinator: ``"host:port"`` of the first process; by default ``JAX_COORDINATOR_ADDRESS``.
      processes: how many there are; by default ``JAX_NUM_PROCESSES``.
      process: the number of this one, from 0; by default ``JAX_PROCESS_ID``.

    Under Slurm or Open MPI, and on TPU pods, no argument is needed.
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
            "Give all three, or set JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID; they are found "
            "automatically only under Slurm, Open MPI and on TPU pods"
        ) from error


def _number(variable: str, least: int = 0) -> int | None:
    """Return the whole number in an environment variable; None where it is not set, or empty."""
    value = os.environ.get(variable)
    if not value:
        return None
    if not value.isdecimal() or int(value) < least:
        raise ValueError(f"the environment has {variable}={value!r}, which must be a whole number of at least {least}")
    return int(value)
