"""The devices of this process and its peers: set up before JAX starts, and only where the user has not done so."""

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
    one_device_per_core()
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
