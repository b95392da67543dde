"""The child processes of this process: whether they exist, whether they are busy, and how they are ended.

All processes that ranks start end with the run, whatever process is their parent by then: while ranks run, their process adopts
orphans, so that all processes that they start stay its descendants. A process can also end with its parent.
"""

import ctypes
import os
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Collection, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import psutil

from emu.cluster.rank_failure import handled_signals

_PDEATHSIG, _SUBREAPER, _IS_SUBREAPER = 1, 36, 37  # of Linux's <sys/prctl.h>


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Arrange that a signal ends this process when the thread that forked it ends.

    Nothing is done on other systems than Linux.
    """
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
            with handled_signals(signal.SIG_DFL, signal.SIGCHLD):  # PyTorch takes the end of a data loader for an error
                end_all(before)


def end_all(but: Collection[psutil.Process] = (), grace_s: float = _GRACE_S) -> None:
    """End the descendants of this process, first by SIGTERM and then by SIGKILL.

    Args:
        but: Children that stay, with all their descendants.
        grace_s: The seconds between SIGTERM and SIGKILL.
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
    """Return the living processes that this process or its children have started, and reap those that have ended."""
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
    """Return the children of this process.

    The children of Python's fork server count instead of it, and its tracker is left out.
    """
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
    """Return whether a process still runs; reap it if it has ended."""
    if not has_ended(process):
        return True
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    return False


def has_processes() -> bool:
    """Return whether this process has child processes, which may be working for it."""
    return bool(psutil.Process().children())


class Idle:
    """A measure of the time for which the child processes of this process have been idle, from repeated samples.

    The time between two looks counts up to `LONGEST_S`. On a busy machine, this process may be kept from looking for longer,
    and less than a tick of processor time of another process in that time would not be seen.
    """

    LONGEST_S = 0.02

    def __init__(self) -> None:
        self._spent_s, self._looked_s, self._idle_s = -1.0, time.monotonic(), 0.0

    def time_s(self) -> float:
        """Return the seconds for which none of the processes has been seen to run, to be ready to run, or to use a disk."""
        spent_s, runs = 0.0, False
        for process in psutil.Process().children(True):
            with suppress(psutil.Error):  # it has ended
                spent_s += sum(process.cpu_times()[:2])
                runs = runs or is_at_work(process)
        last_s, self._looked_s = self._looked_s, time.monotonic()
        is_idle, self._spent_s = not runs and spent_s == self._spent_s, spent_s
        self._idle_s = self._idle_s + min(self._looked_s - last_s, self.LONGEST_S) if is_idle else 0.0
        return self._idle_s


def is_at_work(process: psutil.Process) -> bool:
    """Return whether a thread of a process runs, is ready to run, or uses a disk.

    The system's state of a process is that of its first thread alone, which sleeps while another thread is about to send a
    result. If the system does not show the states of threads, the first one stands for all.
    """
    states = [stat.rpartition(")")[2].split()[0] for stat in _stats_of_threads(process.pid)]
    if states:
        return any(state in ("R", "D") for state in states)
    return process.status() in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)


def _stats_of_threads(pid: int) -> Iterator[str]:
    """Yield Linux's line about each thread of a process: its number, its name in parentheses, its state and more."""
    with suppress(OSError):  # it has ended
        for thread in os.scandir(f"/proc/{pid}/task"):
            with suppress(OSError):  # the thread has ended
                yield Path(thread.path, "stat").read_text(errors="replace")


def are_of_processes(files: Sequence[int]) -> bool:
    """Return whether only child processes can send data through the given pipes and sockets.

    Args:
        files: The descriptors of the pipes and sockets.
    """
    processes = psutil.Process().children(True)
    held = {file for process in processes for file in _held_by(process.pid)}
    ends = any(map(has_ended, processes))  # its files are closed at any moment now
    return bool(processes and files) and all(_is_of_process(each, held, ends) for each in files)


def has_ended(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if its parent has not reaped it yet."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


def _held_by(pid: int) -> Iterator[str]:
    """Return the names of the open files of a process; none if the system does not show them."""
    with suppress(OSError):  # it has ended
        for each in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it has closed it
                yield str(Path(each.path).readlink())


def _is_of_process(file: int, held: Set[str], ends: bool) -> bool:
    """Return whether another process holds the other end of a pipe or socket.

    Args:
        file: The descriptor of this end.
        held: The names of the open files of other processes.
        ends: Whether one of these processes has ended; the other end of a pipe may have been its own.
    """
    if not stat.S_ISSOCK(os.fstat(file).st_mode):
        return ends or (bool(held) and str(Path(f"/proc/self/fd/{file}").readlink()) in held)
    with socket.socket(fileno=os.dup(file)) as end:
        if end.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
            return False
        pid, _, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(pid) not in (0, os.getpid())
