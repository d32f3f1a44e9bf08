"""The command line as a user calls it."""

from __future__ import annotations

from losac.cli import app


def losac(*arguments):
    """Run the command; return its exit code and what it wrote."""
    from typer.testing import CliRunner

    return CliRunner().invoke(app, list(arguments))


def refused(*arguments):
    """Run a command that must be refused, in one line and without a traceback; return the line."""
    result = losac(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr
