"""Exit codes, and errors as one line instead of a traceback."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from typing import NoReturn

import typer

from losac._own import blamed

FAILED, BAD_INPUT, DIVERGED, INTERRUPTED, CLOSED_PIPE = 1, 2, 3, 130, 141
EXIT_CODES = {
    0: "done",
    FAILED: "failed: a part of the work, or an error that should not happen",
    BAD_INPUT: "bad input: an option, a value, a file or a folder that will not do",
    DIVERGED: "diverged: no run stayed within the finite numbers",
    INTERRUPTED: "interrupted by Ctrl-C",
    CLOSED_PIPE: "the reader of the output went away, as head does",
}
_WAYS_OUT = {
    errno.ENOSPC: "free some space, or choose a folder on another disk",
    errno.EDQUOT: "free some space, or choose a folder on another disk",
    errno.EACCES: "choose a file or folder that you may use",
    errno.EPERM: "choose a file or folder that you may use",
    errno.EROFS: "choose a folder that can be written to",
    errno.ENOENT: "check the path",
    errno.EEXIST: "choose another path",
    errno.ENOTDIR: "choose another path, or move the file out of the way",
    errno.EISDIR: "give a file",
}


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn every error into one line on stderr and an exit code, and warnings into lines too.

    A wrong value or file is bad input. An unexpected error is one line as well, which names the file with the
    traceback. With LOSAC_DEBUG=1 the traceback of any error is shown above its line.
    """
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: say(f"warning: {message}")
        try:
            yield
            sys.stdout.flush()
        except KeyboardInterrupt:
            fail("interrupted", INTERRUPTED)
        except BrokenPipeError:
            _forget_stdout()
            raise typer.Exit(CLOSED_PIPE) from None
        except OSError as error:
            _show_traceback()
            fail(in_words(error), BAD_INPUT)
        except ValueError as error:
            _show_traceback()
            fail(blamed(error) or str(error), BAD_INPUT)
        except Exception as error:
            if _is_of_the_command_line(error):
                raise
            _show_traceback()
            if told := blamed(error):
                fail(told, BAD_INPUT)
            fail(_unforeseen(error), BAD_INPUT if _can_be_installed(error) else FAILED)


def say(message: str) -> None:
    """Print a line on stderr."""
    typer.echo(message, err=True)


def fail(message: str, code: int) -> NoReturn:
    """Say what is wrong, in one line, and stop."""
    say(f"losac: {' '.join(message.split())}")
    raise typer.Exit(code)


def in_words(error: OSError) -> str:
    """Return what went wrong with a file, without its error number, and a way out if there is one.

    >>> in_words(FileNotFoundError(errno.ENOENT, "No such file or directory", "runs/a"))
    'runs/a: no such file or directory; check the path'
    """
    if error.errno is None or not error.strerror:
        return str(error)
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    way_out = f"; {_WAYS_OUT[error.errno]}" if error.errno in _WAYS_OUT else ""
    return f"{where}{error.strerror[:1].lower()}{error.strerror[1:]}{way_out}"


def _unforeseen(error: Exception) -> str:
    """Return the line for an error that is not the input's: no memory, no package, or a mistake in the program."""
    if _can_be_installed(error):
        return str(error)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return "out of memory; try fewer clients per round, smaller batches or a smaller model"
    what = (
        f"{type(error).__name__}: {str(error).strip().splitlines()[0]}" if str(error).strip() else type(error).__name__
    )
    return f"an error that should not happen: {what}; {_kept_traceback()}"


def _kept_traceback() -> str:
    """Write the traceback into a new file, and say where; if no file can be written, say how to see it."""
    again = "LOSAC_DEBUG=1 shows it"
    if debugging():
        return "its traceback is above"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="losac-", suffix=".log", delete=False, encoding="utf-8") as file:
            file.write(f"{sys.argv}\n{traceback.format_exc()}")
    except OSError:
        return f"{again} with its traceback"
    return f"its traceback is in {file.name} ({again} here)"


def debugging() -> bool:
    """Whether tracebacks are shown."""
    return os.environ.get("LOSAC_DEBUG", "") not in ("", "0")


def _show_traceback() -> None:
    if debugging():
        say(traceback.format_exc())


def _can_be_installed(error: Exception) -> bool:
    """Whether a package is missing that only some commands need, and the error says how to get it."""
    return isinstance(error, ImportError) and "pip install" in str(error)


def _is_of_the_command_line(error: Exception) -> bool:
    """Whether an error is the parser's own way to stop or to explain how a command is used."""
    return isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "format_message")


def _forget_stdout() -> None:
    """Send what is still to be written nowhere, or Python would complain when it ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
