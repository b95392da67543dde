"""A Work whose failure is seen: by `wait()`, by its future in Python, and by the C++ code that waits on that future.

PyTorch's own `_create_work_from_future(f).wait()` never raises, and `Future.set_exception` is no error to C++: with either
alone, the survivors of a dead rank go on as if all were well.
"""

import math
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Variable

from emu.backend.rank.call import ANY

_BACKWARD = "_engine_run_backward"  # the last function in Python before autograd's C++


class Watch(Protocol):
    """Is told what the program waits for: only that is a dependency, not that the host was blocked."""

    def joined(self) -> None:
        """The program waited."""

    def taken(self) -> None:
        """The program took the future, and will wait where nobody sees it."""

    def sized(self, count: int) -> None:
        """All members have called; the largest buffer of any has `count` elements."""

    def matched(self, peer: int, instance: int) -> None:
        """A receive has its message: whose, by group rank, and which one of that rank's."""


class Unwatched:
    """Nobody records."""

    def joined(self) -> None:
        """Do nothing."""

    def taken(self) -> None:
        """Do nothing."""

    def sized(self, count: int) -> None:
        """Do nothing."""

    def matched(self, peer: int, instance: int) -> None:
        """Do nothing."""


class Work(dist.Work):
    """One request under way.

    Args:
        tensors: That will hold the answer.
        block: Returns when this work is done; switches to other ranks meanwhile, where they share the process. By a clock it
            raises what PyTorch does where that takes longer than the caller would wait.
        poll: Lets the others go on for a moment, for a program that asks again and again whether the work is done.
        later: Whether there is something to do meanwhile, as there is by a clock: a backward that takes the future in C++ then
            goes on, and waits at its end.
    """

    def __init__(
        self,
        tensors: list[Tensor],
        block: "Callable[[Work, timedelta | None], None]",
        poll: "Callable[[Work], None]",
        *,
        later: bool = False,
    ) -> None:
        super().__init__()
        self._later = later
        self.done = False
        self.key = object()  # by which it is known where its tensors must not be held
        self.watch: Watch = Unwatched()
        self.due_s = -math.inf  # by a clock, and once it is done: when it was to be
        self.source = ANY  # of a receive that is done: the group rank that has sent
        self._tensors = tensors
        self._block = block
        self._poll = poll
        self._error: BaseException | None = None

    def finish(self, error: BaseException | None = None) -> None:
        """Mark it done, or failed."""
        self._error = error
        self.done = True

    def met(self, peer: int, instance: int) -> None:
        """A receive: which message of which rank it is."""
        self.source = peer
        self.watch.matched(peer, instance)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until the answer is there; raise if the request failed."""
        self._block(self, timeout)
        self.watch.joined()
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Do as `wait`."""
        self.wait()

    def get_future(self) -> "torch.futures.Future[Any]":
        """A future of the tensors that is done before anybody waits for it: a wait in C++ would let no other rank go on."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        answer = future.then(lambda f: f.wait())  # a callback that raises is what C++ takes for an error
        if self._later and _in_backward(sys._getframe(1)):  # DDP's, which waits in a callback that it queues after this one
            Variable._execution_engine.queue_callback(partial(self._settle, future))
        else:
            self._settle(future)
        self.watch.taken()
        return answer

    def _settle(self, future: "torch.futures.Future[Any]") -> None:
        self._block(self, None)
        if self._error is None:
            future.set_result(self._tensors)
        else:
            future.set_exception(self._error)

    def is_completed(self) -> bool:
        """Whether the answer is there, or the request failed."""
        if not self.done:
            self._poll(self)
        return self.done

    def is_success(self) -> bool:
        """Whether the answer is there."""
        return self.done and self._error is None

    def exception(self) -> BaseException | None:
        """What the request failed of."""
        return self._error

    def result(self) -> list[Tensor]:
        """The tensors that hold the answer."""
        return self._tensors

    def _source_rank(self) -> int:
        return self.source


def _in_backward(caller: FrameType) -> bool:
    """Whether it is autograd's C++ that calls, and not a function in Python that it has called."""
    return torch._C._current_graph_task_id() >= 0 and caller.f_code.co_name == _BACKWARD


class Together(dist.Work):
    """Requests that were coalesced, each of which runs as its own."""

    def __init__(self, works: list[Work]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until all are done; raise what the first failed of, if one did."""
        return all(work.wait(timeout) for work in self._works)

    def synchronize(self) -> None:
        """Do as `wait`."""
        self.wait()

    def get_future(self) -> "torch.futures.Future[Any]":
        """A future of all their tensors, that is done already."""
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        return futures.then(lambda done: [tensor for each in done.wait() for tensor in each.wait()])

    def is_completed(self) -> bool:
        """Whether all are done."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Whether all have succeeded."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> BaseException | None:
        """What the first to fail failed of."""
        return next((error for error in map(Work.exception, self._works) if error), None)

    def result(self) -> list[Tensor]:
        """All tensors that hold answers."""
        return [tensor for work in self._works for tensor in work.result()]
