"""The command line; nothing heavy is imported before a command needs it."""

import warnings

with warnings.catch_warnings():
    # typer imports a name that newer releases of click deprecate; that is no news for our users.
    warnings.filterwarnings("ignore", "'click.utils", DeprecationWarning)
    import typer as _typer  # noqa: F401

from losac.cli.app import app, main

__all__ = ["app", "main"]
