"""Ctrl-C and SIGTERM: let a run save itself before it ends."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

from losac.history import History


class Interrupted(KeyboardInterrupt):
    """A run was interrupted, and saved; ``history`` is what it measured."""

    def __init__(self, history: History) -> None:
        super().__init__(f"interrupted at round {int(history.rounds[-1])}, and saved")
        self.history = history


class _Interruptible(Protocol):
    interrupted: bool


@contextlib.contextmanager
def interruptible(keeper: _Interruptible) -> Iterator[None]:
    """Let the first signal set ``keeper.interrupted``, which ends the run at its next evaluation, and a second end it.

    Signals reach the main thread only: elsewhere nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if keeper.interrupted:
            raise KeyboardInterrupt
        keeper.interrupted = True

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
