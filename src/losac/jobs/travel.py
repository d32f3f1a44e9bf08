"""How calls and results travel between processes and machines, and what a worker does with a call.

Functions and classes of the user's own files travel by value: the other machine does not need the files. Arrays mapped
from files travel as the files' paths: these must be on a disk that both machines have.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import platform
import site
import socket
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle

import losac
from losac._own import raised

if TYPE_CHECKING:
    import numpy as np

_ENVIRONMENT = ("LOSAC_PROGRAMS",)
_LONGEST_LOG = 20_000


class SentCall(NamedTuple):
    """A call on its way: the function with its arguments, and the shared arguments by name with key and place.

    ``reads_data``: whether the job reads data sets itself.
    """

    content: bytes
    shared: Mapping[str, tuple[str, Any]]
    reads_data: bool = False


class Sender(NamedTuple):
    """What a worker needs to know of the process that sends calls."""

    version: str
    python: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    data_dir: str | None = None


class JobReply(NamedTuple):
    """What comes back: the packed result or an error in words; what the job printed, and where it ran."""

    result: bytes = b""
    error: str | None = None
    trace: str = ""
    log: str = ""
    host: str = ""


def sender(devices: int) -> Sender:
    """Return what a worker needs to know of this process, and how many CPU devices it should use."""
    told = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    told["LOSAC_CPU_DEVICES"] = str(devices)
    data = os.environ.get("LOSAC_DATA_DIR")
    data_dir = str(Path(data).expanduser().resolve()) if data else None
    return Sender(losac.__version__, platform.python_version(), tuple(sys.argv), told, data_dir)


def pack(value: Any, name: str) -> bytes:
    """Return a value as bytes that another machine can read."""
    content = io.BytesIO()
    try:
        with _by_value():
            _Pickler(content, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception as error:
        raise ValueError(
            f"{name} cannot be sent to another process: {type(error).__name__}: {error}; run it in this one, or make "
            "what it holds of plain functions, classes and arrays"
        ) from error
    return content.getvalue()


def unpack(content: bytes) -> Any:
    """Return the value of :func:`pack`."""
    return pickle.loads(content)


def serve(sent: Sender, content: bytes, shared: Mapping[str, tuple[str, Any]], reads_data: bool = False) -> JobReply:
    """Make a call; every error is part of the reply, so that what fails otherwise is the machine's fault.

    Args:
      sent: who sends it.
      content: function and arguments.
      shared: name → key and place of further arguments: bytes, or the path of a file that holds them.
      reads_data: whether the folder of the data sets must be there.
    """
    host, told = os.environ.get("SLURMD_NODENAME") or socket.gethostname(), io.StringIO()
    before = sys.argv
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            _check_same(sent, host)
            os.environ.update(sent.environment)
            if reads_data and sent.data_dir:
                os.environ["LOSAC_DATA_DIR"] = _there(sent.data_dir, host)
            sys.argv = list(sent.command)
            common = {name: _shared(key, place) for name, (key, place) in shared.items()}
            function, arguments = unpack(content)
            result = pack(function(**arguments, **common), "its result")
        except Exception as error:
            words = f"{type(error).__name__}: {' '.join(str(error).split())}" if str(error) else raised(error)
            return JobReply(error=words, trace=traceback.format_exc(), log=_end(told), host=host)
        finally:
            sys.argv = before
    return JobReply(result, log=_end(told), host=host)


class NotThereError(ValueError):
    """A file that a job needs is not on the machine that it runs on."""


def _check_same(sent: Sender, host: str) -> None:
    """Refuse calls from another version: code travels, and would not be understood."""
    mine = losac.__version__, platform.python_version()
    if mine != (sent.version, sent.python):
        raise ValueError(
            f"{host} has losac {mine[0]} and Python {mine[1]}, and the sender has {sent.version} and {sent.python}; "
            "install the same on all machines"
        )


def _there(folder: str, host: str) -> str:
    """Return the folder of the data sets, which the machine must have."""
    if not Path(folder).is_dir():
        raise NotThereError(
            f"LOSAC_DATA_DIR={folder} is not there on {host}; put the data on a disk that all machines share, under "
            "the same path"
        )
    return folder


_LAST: dict[str, Any] = {}
"""The shared arguments of the last calls, by key: the next call mostly has the same."""


def _shared(key: str, place: Any) -> Any:
    if key not in _LAST:
        while len(_LAST) > 1:
            del _LAST[next(iter(_LAST))]
        _LAST[key] = unpack(place if isinstance(place, bytes) else Path(place).read_bytes())
    return _LAST[key]


def _end(told: io.StringIO) -> str:
    text = told.getvalue().strip()
    return text if len(text) <= _LONGEST_LOG else f"…\n{text[-_LONGEST_LOG:]}"


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Sends arrays that are mapped from files as the files' paths."""

    def reducer_override(self, obj: Any) -> Any:
        import numpy as np  # here, since commands write down what they were asked before such an import

        if isinstance(obj, np.ndarray) and (place := _mapped(obj)) is not None:
            return _map, place
        return super().reducer_override(obj)


def _mapped(array: np.ndarray) -> tuple[str, str, int, tuple[int, ...]] | None:
    """Return where an array lies in a file, if it does as a whole."""
    import numpy as np

    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or not array.flags.c_contiguous:
        return None
    offset = root.offset + array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return str(Path(root.filename).resolve()), array.dtype.str, int(offset), array.shape


def _map(path: str, dtype: str, offset: int, shape: tuple[int, ...]) -> np.ndarray:
    if not Path(path).is_file():
        raise NotThereError(
            f"{path} is not on this machine, {socket.gethostname()}; data that are mapped from files do not travel: "
            "put them on a disk that all machines share, under the same path"
        )
    import numpy as np

    return np.memmap(path, dtype, mode="r", offset=offset, shape=shape)


@contextlib.contextmanager
def _by_value() -> Iterator[None]:
    """Send what the user's own files define by value, as what they define in ``__main__`` is anyway."""
    mine = [module for name, module in list(sys.modules.items()) if _is_of_user(name, module)]
    known = cloudpickle.list_registry_pickle_by_value()
    mine = [module for module in mine if module.__name__ not in known]
    for module in mine:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in mine:
            cloudpickle.unregister_pickle_by_value(module)


def _is_of_user(name: str, module: Any) -> bool:
    """Whether a module is neither installed nor a part of Python or of this library."""
    if not isinstance(module, ModuleType) or module.__name__ != name or name.partition(".")[0] in _by_name():
        return False
    file = getattr(module, "__file__", None)
    return bool(file) and not str(file).startswith(_INSTALLED)


@cache
def _by_name() -> frozenset[str]:
    """Return the packages that must be installed on all machines: this one, and those that add commands to it."""
    return frozenset(["losac", "__main__", *(each.module.partition(".")[0] for each in entry_points(group=_COMMANDS))])


_COMMANDS = "losac.commands"
_INSTALLED = tuple(
    {f"{folder}{os.sep}" for folder in (*sysconfig.get_paths().values(), *site.getsitepackages(), sys.prefix) if folder}
)
