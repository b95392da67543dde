"""The parent of a process: a process can end with its parent, and can adopt the children of processes that have ended."""

import ctypes
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PDEATHSIG, _SUBREAPER, _IS_SUBREAPER = 1, 36, 37  # of Linux's <sys/prctl.h>


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Let a signal end this process when the thread that forked it is gone; nothing happens on other systems than Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, number, 0, 0, 0)


@contextmanager
def adopt_orphans() -> Iterator[None]:
    """Make this process the parent of all its descendants whose own parent ends, while the context lasts.

    Only Linux can do this (it calls the process a *subreaper*).
    """
    if sys.platform != "linux":
        yield
        return
    prctl, was = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(_IS_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SUBREAPER, was.value, 0, 0, 0)
