"""The command line; nothing heavy is imported before a command needs it."""

from losac.cli.app import app, main

__all__ = ["app", "main"]
