"""A Flower server app, read from the run's configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from losac.algorithms.contract import Algorithm
from losac.federation import configuration, logs
from losac.federation.book import Rules
from losac.federation.central import Central
from losac.federation.configuration import CONFIG
from losac.federation.secure import configured as secure
from losac.flower.server import Strategy
from losac.task import Task

LOG = logging.getLogger("losac")


def server_app(
    central: Callable[[Mapping[str, Any]], Task | Central], algorithm: Callable[[Mapping[str, Any]], Algorithm]
) -> ServerApp:
    """Return a Flower app for the server of a federation.

    Args:
      central: ``central(run_config)``: a task (only the first model and the test data are used), or a
        :class:`losac.federation.central.Central`.
      algorithm: ``algorithm(run_config)``; the clients must be given the same.

    The run's configuration holds ``rounds``, ``clients``, and what :data:`losac.federation.configuration.CONFIG` lists.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        logs.show(str(context.run_config.get("log-format") or "text"))
        config = Read(context.run_config)
        strategy = make_strategy(config, algorithm(config))
        problem = central(config)
        if unread := sorted(set(context.run_config) - config.names):
            LOG.warning("the server reads none of these settings: %s", ", ".join(unread))
        history = strategy.start(grid, problem, int(context.run_config["rounds"]))
        LOG.info("%r", history)

    return app


class Read(dict[str, Any]):
    """A configuration that knows which of its names were asked for."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__(config)
        self.names: set[str] = set(CONFIG)

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or another where there is none."""
        self.names.add(name)
        return super().get(name, default)


RULES = ("clients-per-round", "seed", "fewest", "recovery", "largest", "dtype", "secure")
"""The keys that are rules of the federation."""


def make_strategy(config: Mapping[str, Any], algorithm: Algorithm) -> Strategy:
    """Read a strategy from Flower's run configuration, where 0 or an empty text stands for the default."""
    values = configuration.read(config)
    secure.settle(values, config)
    clients = values.pop("clients")
    del values["rounds"], values["log-format"]
    ruled = {name.replace("-", "_"): values.pop(name) for name in RULES}
    rules = Rules(clients=clients, **ruled | {"clients_per_round": ruled["clients_per_round"] or clients})
    options = {name.replace("-", "_"): value for name, value in values.items()}
    return Strategy(secure.configured(algorithm, config), rules, **options)
