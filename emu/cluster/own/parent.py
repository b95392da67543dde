"""Whose child a process is: one that ends with its parent, and one that is given the children of those that have ended."""

import ctypes
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PDEATHSIG, _SUBREAPER, _IS_SUBREAPER = 1, 36, 37  # of Linux's <sys/prctl.h>


def ends_with_parent(number: int = signal.SIGKILL) -> None:
    """Let a signal end this process as soon as the thread that has forked it is gone; nothing happens but on Linux."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, number, 0, 0, 0)


@contextmanager
def adopts() -> Iterator[None]:
    """Be the parent of every process that descends from this one and whose own parent ends, while the context lasts.

    Only Linux gives a process such children (it calls the process a *subreaper*).
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
