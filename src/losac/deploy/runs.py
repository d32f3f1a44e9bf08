"""Runs of a Flower app: submit one, wait for it, ask for its status, read its log."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from losac._checks import nearest
from losac.deploy.commands import CONNECTION, call, flwr, write_toml
from losac.deploy.errors import DeployError
from losac.federation.configuration import CONFIG, REQUIRED, read

_PAUSE = 1.0


def app_config(app: Path) -> dict[str, Any]:
    """Return an app's configuration, the ``[tool.flwr.app.config]`` of its pyproject.toml."""
    path = app / "pyproject.toml"
    if not path.is_file():
        raise ValueError(f"{app} is no Flower app: it has no pyproject.toml; make one with losac deploy init")
    with path.open("rb") as file:
        try:
            content = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
    described = content.get("tool", {}).get("flwr", {}).get("app")
    if described is None:
        raise ValueError(f"{path} describes no Flower app: it has no [tool.flwr.app]")
    return dict(described.get("config", {}))


def checked_settings(app: Path, run_config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return values that an app's configuration can take."""
    known = app_config(app)
    for name in run_config:
        if name not in known:
            near = nearest(name, [*known, *CONFIG])
            way_out = f"; add a line for it to {app / 'pyproject.toml'}" if name in CONFIG else near
            listed = ", ".join(sorted(known)) or "none"
            raise ValueError(f"{app} has no setting {name!r}{way_out}; it has {listed}")
    if set(REQUIRED) <= set(known):  # else it is an app that reads its settings itself
        read({**known, **run_config})
    return run_config


def submit(home: Path, app: Path, run_config: Mapping[str, Any]) -> str:
    """Start a run with some values of the app's configuration changed; return its id."""
    options: list[str] = []
    if run_config:
        options = ["--run-config", str(write_toml(home / "run-config.toml", run_config))]
    return str(flwr(home, "run", str(app), CONNECTION, *options)["run-id"])


def stop(home: Path, run_id: str) -> None:
    """End a run; its checkpoint and results stay."""
    flwr(home, "stop", run_id, CONNECTION)


def status(home: Path, run_id: str) -> dict[str, Any]:
    """Return what Flower knows of a run; ``status`` is pending, starting, running or finished:…"""
    return list_runs(home, "--run-id", run_id)[0]


def list_runs(home: Path, *options: str) -> list[dict[str, Any]]:
    """Return what Flower knows of all runs, the newest first."""
    return list(flwr(home, "list", *options, CONNECTION)["runs"])


def list_nodes(home: Path) -> list[dict[str, Any]]:
    """Return what the SuperLink knows of its SuperNodes."""
    return list(flwr(home, "supernode", "list", CONNECTION)["nodes"])


def log(home: Path, run_id: str) -> str:
    """Return what a run's ServerApp wrote so far."""
    return call(home, "log", run_id, CONNECTION, "--show", timeout=60).stdout


def wait(home: Path, run_id: str, timeout: float) -> dict[str, Any]:
    """Wait until a run is finished, and return its status."""
    end = time.monotonic() + timeout
    while True:
        try:
            # The stream of the log ends with the run: nothing needs to be polled from here.
            call(home, "log", run_id, CONNECTION, "--stream", timeout=max(end - time.monotonic(), 0.1))
            told = status(home, run_id)
        except DeployError as error:
            if "not found" in str(error):
                raise
            if time.monotonic() >= end:
                raise DeployError(f"run {run_id} did not finish in {timeout:g} s") from None
            told = {"status": "unknown"}
        if str(told["status"]).startswith("finished"):
            return told
        time.sleep(_PAUSE)


def register(home: Path, public_key: Path) -> str:
    """Register a SuperNode's key; return the node's id."""
    return str(flwr(home, "supernode", "register", str(public_key), CONNECTION)["node-id"])
