"""What a strand waits for that comes from outside of Python: files, sockets and pipes, other processes.

While it waits it has no turn, if its rank has other threads: one of them may be what makes it come. A rank without threads of
its own keeps its turn, so that the order of the ranks is the same in every run.
"""

import multiprocessing.connection as pipes
import selectors
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch

from emu.cluster.strands.locks import Replacement
from emu.cluster.strands.strand import Strand, current, take_turn

_pipes: Any = pipes  # the stubs do not have what is used here


def waits() -> Iterator[Replacement]:
    """Return what stands in place of what waits for the system."""
    known = {getattr(selectors, name, None) for name in ("SelectSelector", "PollSelector", "EpollSelector", "KqueueSelector")}
    for selector in filter(None, known):
        yield selector, "select", outside(selector.select)
    yield _pipes.Connection, "_recv", outside(_pipes.Connection._recv)
    yield _pipes.Connection, "_send", outside(_pipes.Connection._send)
    yield torch.futures.Future, "wait", _future_waits(torch.futures.Future.wait)


def outside(wait: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that waits as the one that is given, and lets other strands run meanwhile."""

    @wraps(wait)
    def waited(*args: Any, **kwargs: Any) -> Any:
        strand = current()
        if strand is None or not hands_on(strand):
            return wait(*args, **kwargs)
        strand.turns.step_out(strand)
        try:
            return wait(*args, **kwargs)
        finally:
            take_turn(strand)

    return waited


def hands_on(strand: Strand) -> bool:
    """Return whether a strand that waits for the system hands on its turn: it has it, and its rank has other threads."""
    return not (strand.is_free or strand.is_native) and strand.turns.has_threads(strand.rank)


def _future_waits(wait: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def waited(future: Any) -> Any:
        return wait(future) if future.done() else outside(wait)(future)

    return waited
