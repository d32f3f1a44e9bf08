"""Ends a federation's processes, in an order that leaves nothing behind.

SuperNodes sign off at the SuperLink, so they go first; a SuperNode that cannot would block its next start.
"""

from __future__ import annotations

import dataclasses

from losac.deploy.folder import SUPEREXEC, SUPERLINK, FederationFolder
from losac.deploy.processes import forget, members, read_records, terminate

PATIENCE = 15.0
"""Seconds between SIGTERM and SIGKILL."""


def stop_all(folder: FederationFolder, *, patience: float = PATIENCE) -> list[str]:
    """End all processes of a federation; return the names of those that ran. Stale pid files are removed."""
    records = read_records(folder.pids)
    ran = [name for name, record in records.items() if members(record)]
    nodes = [name for name in records if name not in (SUPEREXEC, SUPERLINK)]
    for stage in (nodes, [SUPEREXEC], [SUPERLINK]):
        chosen = [records[name] for name in stage if name in records]
        terminate(chosen, patience=patience)
        for record in chosen:
            forget(record, folder.pids)
    settings = folder.read()
    if settings is not None and settings.ready:
        folder.write(dataclasses.replace(settings, ready=False))
    return ran
