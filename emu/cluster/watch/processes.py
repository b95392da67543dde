"""The processes that this one has started: whether there are any, whether they are at work, and what comes from them."""

import os
import socket
import stat
import struct
import time
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from pathlib import Path

import psutil


def has_processes() -> bool:
    """Return whether this process has started others, which may be at work for it."""
    return bool(psutil.Process().children())


class Idle:
    """One look after another at the processes that this one has started: how long they have done nothing.

    What lies between two looks counts up to `LONGEST_S`: on a busy machine this process may be kept from looking for longer,
    and what a process did meanwhile, in less than a tick of its clock, is not seen.
    """

    LONGEST_S = 0.02

    def __init__(self) -> None:
        self._spent_s, self._looked_s, self._idle_s = -1.0, time.monotonic(), 0.0

    def time_s(self) -> float:
        """Return for how long none of them has been seen to run, to be ready to, or to use a disk."""
        spent_s, runs = 0.0, False
        for process in _descendants():
            with suppress(psutil.Error):  # it has ended
                spent_s += sum(process.cpu_times()[:2])
                runs = runs or is_at_work(process)
        last_s, self._looked_s = self._looked_s, time.monotonic()
        is_idle, self._spent_s = not runs and spent_s == self._spent_s, spent_s
        self._idle_s = self._idle_s + min(self._looked_s - last_s, self.LONGEST_S) if is_idle else 0.0
        return self._idle_s


def is_at_work(process: psutil.Process) -> bool:
    """Return whether a thread of a process runs, is ready to, or uses a disk.

    What the system tells of a process is the state of its first thread alone, which sleeps while another is about to send what
    the process has made. Where it does not tell the states of threads, the first one stands for all.
    """
    states = [stat.rpartition(")")[2].split()[0] for stat in _stats_of_threads(process.pid)]
    if states:
        return any(state in ("R", "D") for state in states)
    return process.status() in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)


def _stats_of_threads(pid: int) -> Iterator[str]:
    """Yield what Linux tells of each thread of a process: its number, its name in parentheses, its state and more."""
    with suppress(OSError):  # it has ended
        for thread in os.scandir(f"/proc/{pid}/task"):
            with suppress(OSError):  # the thread has ended
                yield Path(thread.path, "stat").read_text(errors="replace")


def are_of_processes(files: Sequence[int]) -> bool:
    """Return whether all that may come through some pipes and sockets comes from processes that this one has started.

    Args:
        files: Their descriptors.
    """
    processes = _descendants()
    held = {file for process in processes for file in _held_by(process.pid)}
    ends = any(map(_has_ended, processes))  # its files are closed at any moment now
    return bool(processes and files) and all(_is_of_process(each, held, ends) for each in files)


def _descendants() -> list[psutil.Process]:
    """Return the processes that this one has started, and those that they have started."""
    found: list[psutil.Process] = psutil.Process().children(True)
    return found


def _has_ended(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


def _held_by(pid: int) -> Iterator[str]:
    """Return the names of the files that a process holds; none where the system does not tell."""
    with suppress(OSError):  # it has ended
        for each in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it has closed it
                yield str(Path(each.path).readlink())


def _is_of_process(file: int, held: Set[str], ends: bool) -> bool:
    """Return whether another process holds the other end: of a pipe one that holds what is `held`, or one that has ended."""
    if not stat.S_ISSOCK(os.fstat(file).st_mode):
        return ends or (bool(held) and str(Path(f"/proc/self/fd/{file}").readlink()) in held)
    with socket.socket(fileno=os.dup(file)) as end:
        if end.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
            return False
        pid, _, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(pid) not in (0, os.getpid())
