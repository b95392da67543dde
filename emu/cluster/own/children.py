"""Processes that ranks start: they end with the run, whoever is their parent by then.

While ranks run, their process adopts what they leave behind, so that all that they start are its descendants.
"""

import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from typing import Any

import psutil

from emu.cluster.own.parent import adopts

_GRACE_S, _KILL_S, _LOOK_S = 2.0, 5.0, 0.02  # for a process to end when it is asked to, or when it is killed


@contextmanager
def ended() -> Iterator[None]:
    """End every process that is started while the context lasts when it ends: by SIGTERM, then by SIGKILL."""
    before = set(_children())
    with adopts():
        try:
            yield
        finally:
            with _unheard():
                end_all(before)


@contextmanager
def _unheard() -> Iterator[None]:
    """Let no handler be called as processes end: PyTorch's takes the end of a process that loads data for an error."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


def end_all(but: Collection[psutil.Process] = (), grace_s: float = _GRACE_S) -> None:
    """End the descendants of this process, but for some of its children with all that these have started."""
    until = time.monotonic() + grace_s
    asked: set[psutil.Process] = set()
    while (found := _descendants(but)) and time.monotonic() < until + _KILL_S:
        late = time.monotonic() > until
        for process in found - (set() if late else asked):
            with suppress(psutil.NoSuchProcess):
                process.kill() if late else process.terminate()
        asked |= found
        time.sleep(_LOOK_S)


def _descendants(but: Collection[psutil.Process]) -> set[psutil.Process]:
    """Those that live; what has ended is let go of."""
    found = set[psutil.Process]()
    for child in _children():
        if child not in but:
            with suppress(psutil.NoSuchProcess):
                found |= {child, *child.children(True)}
    return {process for process in found if _lives(process)}


def _children() -> list[psutil.Process]:
    """Those of this process; in place of what Python starts to help them, which ends with this process, its children."""
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
