"""The processor on which the ranks of a process run, and the frequency of Python's garbage collection.

One rank runs at a time, and what it computes is small. Where another processor is idle, the system wakes the next rank there,
and it finds nothing in its caches: a step of 64 ranks took a third longer. So all ranks keep to one processor as long as they
have it for themselves, and go wherever the system likes when they had to wait for it. Work of this host is done outside of the
modes of PyTorch that a rank has set.
"""

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module

import torch

from emu.backend.rank.operator_counter import pause_counting
from emu.cluster.rank_state.rank_state import replace_attributes

_posixsubprocess = import_module("_posixsubprocess") if os.name == "posix" else None
_LOOK_S = 0.1  # how often it is asked whether the ranks have had the processor
_BIND_ABOVE, _UNBIND_BELOW = 0.95, 0.8  # share of the time since then for which the ranks had a processor
_here = threading.local()  # its `own`: the processors that a thread was told to keep to, and before
_NEW_OBJECTS = 200_000  # before the collector looks for cycles


class Processor:
    """The processor to which the ranks of one run are bound; without effect if the system does not allow binding."""

    def __init__(self) -> None:
        self._all = frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset[int]()
        self._wanted = self._all
        self._looked = time.perf_counter(), time.process_time()

    def bind_thread(self) -> None:
        """Move the calling thread, which has just got the baton, to the processor of the ranks."""
        if len(self._all) < 2:
            return
        now = time.perf_counter()
        if now - self._looked[0] > _LOOK_S:
            self._choose_processors(now, time.process_time())
        if getattr(_here, "own", self._all) != self._wanted:
            _here.own, _here.before = self._wanted, self._all
            with suppress(OSError):  # the process may use other processors by now
                os.sched_setaffinity(0, self._wanted)

    def _choose_processors(self, now_s: float, spent_s: float) -> None:
        """Choose the processors for the next turns, by the share of time for which this process had to wait for one.

        Args:
            now_s: The time of this host.
            spent_s: The processor time of this process.
        """
        share = (spent_s - self._looked[1]) / (now_s - self._looked[0])
        if share < _UNBIND_BELOW:
            self._wanted = self._all
        elif share > _BIND_ABOVE and self._wanted == self._all:
            self._wanted = frozenset({ctypes.CDLL(None).sched_getcpu()})
        self._looked = now_s, spent_s


def _let_go() -> None:
    """Let a forked process run on all processors."""
    if hasattr(_here, "before"):
        with suppress(OSError):
            os.sched_setaffinity(0, _here.before)


@contextmanager
def processor_release() -> Iterator[None]:
    """Let processes that are started in this context run on all processors, although the ranks stay on one.

    A process gets the processors of the thread that starts it. So the thread may use all of them inside the context.
    """
    places = ((_posixsubprocess, "fork_exec"), (subprocess, "_fork_exec"))
    with replace_attributes(
        *((place, name, _on_all_processors(getattr(place, name))) for place, name in places if hasattr(place, name))
    ):
        yield


def _on_all_processors(start: Callable[..., int]) -> Callable[..., int]:
    """Return a version of a function that starts a process, in which the process runs on all processors."""

    def started(*given: object) -> int:
        _let_go()
        try:
            return start(*given)
        finally:
            if hasattr(_here, "own"):
                with suppress(OSError):
                    os.sched_setaffinity(0, _here.own)

    return started


if sys.platform == "linux":
    os.register_at_fork(after_in_child=_let_go)


@contextmanager
def collect_less() -> Iterator[None]:
    """Run Python's garbage collector less often while the context lasts, because all ranks' objects are scanned."""
    thresholds = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@contextmanager
def outside_modes() -> Iterator[None]:
    """Leave all PyTorch modes of the running rank while the context lasts, for work on behalf of all ranks."""
    with pause_counting(), torch._C.DisableTorchFunction(), torch.inference_mode():  # which alone may write what was made in it
        yield
