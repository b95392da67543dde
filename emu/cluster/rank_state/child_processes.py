"""The processes that ranks start: all of them end with the run, whatever process is their parent by then.

While ranks run, their process adopts orphans, so that all processes that they start are its descendants.

The parent of a process: a process can end with its parent, and can adopt the children of processes that have ended.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from typing import Any

import psutil

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


_GRACE_S, _KILL_S, _LOOK_S = 2.0, 5.0, 0.02  # after SIGTERM, after SIGKILL, and between two looks


@contextmanager
def end_children() -> Iterator[None]:
    """End every process that was started inside the context: first by SIGTERM, then by SIGKILL."""
    before = set(_children())
    with adopt_orphans():
        try:
            yield
        finally:
            with _without_handlers():
                end_all(before)


@contextmanager
def _without_handlers() -> Iterator[None]:
    """Block the program's handlers of SIGCHLD while processes end: PyTorch's takes the end of a data loader for an error."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def end_all(but: Collection[psutil.Process] = (), grace_s: float = _GRACE_S) -> None:
    """End the descendants of this process.

    Args:
        but: Children that stay, with all their descendants.
        grace_s: Seconds between SIGTERM and SIGKILL.
    """
    until = time.monotonic() + grace_s
    asked, none_left = set[psutil.Process](), False
    while time.monotonic() < until + _KILL_S:
        found = _descendants(but)
        if not found and (none_left or not asked):
            return
        none_left = not found  # once more: a look may miss a process whose parent ends meanwhile
        late = time.monotonic() > until
        for process in found - (set() if late else asked):
            with suppress(psutil.NoSuchProcess):
                process.kill() if late else process.terminate()
        asked |= found
        time.sleep(_LOOK_S)


def _descendants(but: Collection[psutil.Process]) -> set[psutil.Process]:
    """Return the descendants that live; processes that have ended are reaped."""
    while True:
        found = set[psutil.Process]()
        try:
            for child in _children():
                if child not in but:
                    found |= {child, *child.children(True)}
        except psutil.NoSuchProcess:  # it has ended meanwhile, and its own children are this process's now
            continue
        return {process for process in found if _lives(process)}


def _children() -> list[psutil.Process]:
    """Return the children of this process, with the children of Python's fork server instead of it, without its tracker."""
    tracker: Any = resource_tracker._resource_tracker
    server: Any = forkserver._forkserver
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        if child.pid == server._forkserver_pid:
            with suppress(psutil.NoSuchProcess):
                found += child.children()
        elif child.pid != tracker._pid:
            found.append(child)
    return found


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        if process.status() != psutil.STATUS_ZOMBIE:
            return True
        with suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)
    return False
