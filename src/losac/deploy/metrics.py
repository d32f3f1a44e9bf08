"""Runs as Prometheus metrics: each scrape reads the status files of the results, so that no run is disturbed.

``losac deploy metrics`` serves them on this machine alone unless another address is given: they name clients.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from losac._extras import need
from losac.federation.status import STATUS, read_status

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

GAUGES = {
    "round": "Rounds that were accepted.",
    "rounds": "Rounds to accept.",
    "places": "N, the number of places for clients.",
    "written": "When the server last wrote its status, in seconds since 1970.",
}
COUNTERS = {
    "attempts": "Attempts at a round, including those that did not count.",
    "void": "Attempts at a round that did not count.",
    "refused": "Messages, claims and orders that were refused or failed.",
}
COSTS = {
    "bytes_up": "Bytes that clients sent.",
    "bytes_down": "Bytes that the server sent.",
    "gradients": "Gradients of single rows that clients computed.",
    "seconds": "Seconds that rounds took.",
}


def results_of(folders: Iterable[Path]) -> list[Path]:
    """Return the folders of results in some folders: themselves, those below, and those of a federation."""
    found = {path.parent for folder in folders for path in (*folder.glob(STATUS), *folder.glob(f"*/{STATUS}"))}
    found |= {path.parent for folder in folders for path in folder.glob(f"results/*/{STATUS}")}
    return sorted(found)


class Runs:
    """A collector of the Prometheus client; folders are looked through at every scrape."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = list(folders)
        self._core: Any = need("prometheus_client.core", "losac deploy metrics", "prometheus")

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of all runs."""
        gauge, counter = self._core.GaugeMetricFamily, self._core.CounterMetricFamily
        families = {name: gauge(f"losac_{name}", text, labels=["run"]) for name, text in GAUGES.items()}
        families |= {name: counter(f"losac_{name}", text, labels=["run"]) for name, text in (COUNTERS | COSTS).items()}
        more = {
            "running": gauge("losac_running", "1 while the server works, by its own last word.", labels=["run"]),
            "asked": gauge("losac_asked", "Clients asked in the last attempt.", labels=["run"]),
            "answered": gauge("losac_answered", "Clients that answered in it, if it counts.", labels=["run"]),
            "present": gauge("losac_client_present", "1 if the client was there.", labels=["run", "client"]),
            "last": gauge("losac_client_round", "The last round that a client took part in.", labels=["run", "client"]),
            "metric": gauge("losac_metric", "What was measured of the model.", labels=["run", "name"]),
            "invariant": gauge("losac_invariant_error", "The last comparison of the sums.", labels=["run"]),
        }  # fmt: skip
        for out in results_of(self.folders):
            try:
                told = read_status(out)
            except ValueError:
                continue
            if told is not None:
                _add(str(out), told, families, more)
        yield from (*families.values(), *more.values())


def _add(run: str, told: Mapping[str, Any], families: Mapping[str, Any], more: Mapping[str, Any]) -> None:
    """Add one run to all families."""
    for name, family in families.items():
        value = told.get("costs", {}).get(name) if name in COSTS else told.get(name)
        if isinstance(value, int | float):
            family.add_metric([run], value)
    more["running"].add_metric([run], float(told.get("state") == "running"))
    for name in ("asked", "answered"):
        more[name].add_metric([run], len(told.get(name, [])))
    for client, about in told.get("members", {}).items():
        more["present"].add_metric([run, client], float(bool(about.get("present"))))
        if about.get("answered") is not None:
            more["last"].add_metric([run, client], about["answered"])
    for name, value in told.get("metrics", {}).items():
        if isinstance(value, int | float):
            more["metric"].add_metric([run, name], value)
    error = (told.get("invariant") or {}).get("relative_error")
    if error is not None:
        more["invariant"].add_metric([run], error)


def serve(folders: Iterable[Path], host: str, port: int) -> tuple[WSGIServer, threading.Thread]:
    """Serve the metrics of the runs in some folders in a thread; return the server, which has ``server_port``."""
    client = need("prometheus_client", "losac deploy metrics", "prometheus")
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(Runs(folders))
    try:
        server, thread = client.start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ValueError(f"port {port} of {host} is in use; give another with --port") from None
        raise ValueError(f"cannot listen at {host}: {error.strerror or error}") from None
    return server, thread
