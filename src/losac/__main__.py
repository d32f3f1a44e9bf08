"""``losac``, and ``python -m losac``: the command line; Ctrl-C ends it at any time without a traceback."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from types import FrameType

_SECONDS_TO_WAIT = 0.05


def main() -> None:
    """Run the command line."""
    try:
        signal.signal(signal.SIGINT, interrupt)
        from losac.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but not before an import has ended.

    If interrupted while they load, some packages print a traceback, swallow the interrupt or crash.
    """
    if _is_importing(frame):
        again = threading.Timer(_SECONDS_TO_WAIT, _thread.interrupt_main)
        again.daemon = True
        again.start()
    else:
        signal.default_int_handler(number, frame)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


if __name__ == "__main__":
    main()
