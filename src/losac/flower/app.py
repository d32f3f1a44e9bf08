"""A Flower server app, read from the run's configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from losac._settings import nearest
from losac.algorithms.contract import Algorithm
from losac.federation.book import Rules
from losac.federation.central import Central
from losac.flower.server import Strategy
from losac.task import Task

LOG = logging.getLogger("losac")


def server_app(
    central: Callable[[Mapping[str, Any]], Task | Central], algorithm: Callable[[Mapping[str, Any]], Algorithm]
) -> ServerApp:
    """Return a Flower app for the server of a federation.

    Args:
      central: ``central(run_config)``: a task, of which the first model and the test data are used, or a
        :class:`losac.federation.central.Central`.
      algorithm: ``algorithm(run_config)``; the clients must be given the same.

    The run's configuration holds ``rounds``, ``clients``, and what :data:`CONFIG` lists besides.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        logging.getLogger("losac").setLevel(logging.INFO)
        config = context.run_config
        strategy = make_strategy(config, algorithm(config))
        history = strategy.start(grid, central(config), int(config["rounds"]))
        LOG.info("%r", history)

    return app


CONFIG: Mapping[str, tuple[type, Any]] = {
    "clients-per-round": (int, None), "seed": (int, 0), "fewest": (int, 1), "recovery": (str, "resync"),
    "largest": (float, None), "dtype": (str, "float32"), "deadline": (float, 600.0), "out": (str, None),
    "mean-rows": (float, None), "evaluate-every": (int, 1), "evaluate-clients": (bool, False),
    "forget-after": (int, None), "patience": (float, 300.0), "attempts": (int, 20),
}  # fmt: skip
"""What the run's configuration may hold besides ``rounds`` and ``clients``: the type and the default of each."""

RULES = ("clients-per-round", "seed", "fewest", "recovery", "largest", "dtype")
"""Those of them that are rules of the federation."""


def make_strategy(config: Mapping[str, Any], algorithm: Algorithm) -> Strategy:
    """Read a strategy from Flower's run configuration, where 0 or an empty text stands for none."""
    for name in ("rounds", "clients"):
        if name not in config:
            near = nearest(name, list(config))
            raise ValueError(f"the run's configuration has no {name!r}{near}; set it in [tool.flwr.app.config]")
    values = {name: kind(config[name]) if config.get(name) else default for name, (kind, default) in CONFIG.items()}
    clients = int(config["clients"])
    ruled = {name.replace("-", "_"): values.pop(name) for name in RULES}
    rules = Rules(clients=clients, **ruled | {"clients_per_round": ruled["clients_per_round"] or clients})
    return Strategy(algorithm, rules, **{name.replace("-", "_"): value for name, value in values.items()})
