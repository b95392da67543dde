"""A `Work` object whose failure is seen by `wait()`, by its future in Python, and by C++ code that waits on it.

PyTorch's own `_create_work_from_future(f).wait()` never raises, and `Future.set_exception` is no error to C++. With either
alone, the survivors of a dead rank would continue as if nothing had happened.

A sum of sparse tensors is one Work of three requests, as with gloo: for the number of entries of each rank, for their places,
and for their values. The first is waited for at once, because the size of the others follows from it.
"""

import math
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial, reduce
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Variable

from emu.backend.rank.operator_counter import pause_counting
from emu.backend.rank.rank_requests import ANY
from emu.backend.rank.record import Recorder
from emu.errors import must_be

_BACKWARD = "_engine_run_backward"  # the last Python function before autograd's C++ code


class RequestWork(dist.Work):
    """The PyTorch Work of one request.

    Args:
        tensors: The tensors that will hold the answer.
        block: A function that returns when this work is done; other ranks of the process run meanwhile. With a clock, it
            raises PyTorch's error if that takes longer than the caller would wait.
        poll: A function that lets other ranks run for a moment, for a program that asks repeatedly whether the work is done.
        later: True if the rank can compute while the request runs, as with a clock: a backward pass that takes the future
            in C++ then continues, and waits at its end.
    """

    def __init__(
        self,
        tensors: list[Tensor],
        block: "Callable[[RequestWork, timedelta | None], None]",
        poll: "Callable[[RequestWork], None]",
        *,
        later: bool = False,
    ) -> None:
        super().__init__()
        self._later = later
        self.done = False
        self.key = object()  # identifies the work where its tensors must not be held
        self.recorder: Recorder  # of the rank
        self.event = -1  # the number of the request in it; -1: it is not recorded
        self.due_s = -math.inf  # with a clock: the time at which the work was due, set when it is done
        self.source = ANY  # the group rank that sent the message of a finished receive
        self._tensors = tensors
        self._block = block
        self._poll = poll
        self._error: BaseException | None = None

    def finish(self, error: BaseException | None = None) -> None:
        """Mark the work as done, or as failed with an error."""
        self._error = error
        self.done = True

    def set_agreed_size(self, count: int, message: tuple[int, int] | None = None) -> None:
        """Set the elements of the largest buffer of any member, and the sender and the instance of a received message."""
        self.source = message[0] if message else ANY
        if self.event >= 0:
            self.recorder.set_agreed_size(self.event, count, message)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until the answer has arrived; raise the error of the request if it failed."""
        self._block(self, timeout)
        if self.event >= 0:
            self.recorder.depend_on(self.event)
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        """Block until the answer has arrived, like `wait`."""
        self.wait()

    def get_future(self) -> "torch.futures.Future[Any]":
        """Return a future that is completed before anybody waits for it, because a wait in C++ would block all ranks."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        answer = future.then(lambda f: f.wait())  # C++ takes a callback that raises for an error
        if self._later and _in_backward(sys._getframe(1)):  # DDP waits in a callback that it queues after this one
            Variable._execution_engine.queue_callback(partial(self._settle, future))
        else:
            self._settle(future)
        if self.event >= 0:
            self.recorder.defer(self.event)
        return answer

    def _settle(self, future: "torch.futures.Future[Any]") -> None:
        self._block(self, None)
        if self._error is None:
            future.set_result(self._tensors)
        else:
            future.set_exception(self._error)

    def is_completed(self) -> bool:
        """Return whether the request is done: its answer has arrived, or it has failed."""
        if not self.done:
            self._poll(self)
        return self.done

    def is_success(self) -> bool:
        """Return whether the answer has arrived without an error."""
        return self.done and self._error is None

    def exception(self) -> BaseException | None:
        """Return the error of the request, or None."""
        return self._error

    def result(self) -> list[Tensor]:
        """Return the tensors that hold the answer."""
        return self._tensors

    def _source_rank(self) -> int:
        return self.source


def _in_backward(caller: FrameType) -> bool:
    """Return whether autograd's C++ code calls directly, not through a Python function."""
    return torch._C._current_graph_task_id() >= 0 and caller.f_code.co_name == _BACKWARD


class CoalescedWork(dist.Work):
    """The `Work` of several coalesced requests, each of which runs separately.

    Args:
        works: The works of these requests.
        finish: A function that makes the joint answer from the answers of the requests, once all are done; None: they are the
            answer.
    """

    def __init__(self, works: list[RequestWork], finish: Callable[[], Tensor] | None = None) -> None:
        super().__init__()
        self._works, self._finish = works, finish
        self._finished: list[Tensor] = []

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Block until all requests are done, and build the answer; raise the first error if any failed."""
        done = all(work.wait(timeout) for work in self._works)
        if self._finish is not None and not self._finished:
            self._finished = [self._finish()]
        return done

    def synchronize(self) -> None:
        """Block until all requests are done, like `wait`."""
        self.wait()

    def get_future(self) -> "torch.futures.Future[Any]":
        """Return a future of the tensors that hold the answer, which is done already."""
        futures = torch.futures.collect_all([work.get_future() for work in self._works])
        answers = futures.then(lambda done: [tensor for each in done.wait() for tensor in each.wait()])
        return answers if self._finish is None else answers.then(lambda done: done.wait() and self.wait() and self._finished)

    def is_completed(self) -> bool:
        """Return whether all requests are done: each answer has arrived, or a request has failed."""
        done = all(work.is_completed() for work in self._works)
        return done and (self._finish is None or not self.is_success() or self.wait())

    def is_success(self) -> bool:
        """Return True if all requests have succeeded."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> BaseException | None:
        """Return the error of the first request that failed, or None."""
        return next((error for error in map(RequestWork.exception, self._works) if error), None)

    def result(self) -> list[Tensor]:
        """Return the tensors with the answer, once it is complete."""
        return self._finished if self._finish else [tensor for work in self._works for tensor in work.result()]


_DIMS = 4  # limit of the sparse dims, and of the dense dims
Gather = Callable[[list[list[Tensor]], list[Tensor]], RequestWork]


def sum_sparse(tensor: Tensor, n: int, gather: Gather) -> CoalescedWork:
    """Start the sum of a sparse tensor in place over n ranks, and return its work, which ends when the tensor holds the sum.

    Args:
        tensor: A tensor in coordinate format.
        n: The number of ranks.
        gather: A function that gathers a tensor of every rank; their sizes may differ.

    Raises:
        InputError: more dims than gloo takes, or ranks whose tensors differ in shape.
    """
    with pause_counting():
        given = tensor.data.coalesce()
        indices, values = given.indices(), given.values()
        held = _header(given)
        all_held = [torch.empty_like(held) for _ in range(n)]
    gather([all_held], [held]).wait()
    with pause_counting():
        counts = [_count(held, other, rank) for rank, other in enumerate(all_held)]
        places = [indices.new_empty(given.sparse_dim(), count) for count in counts]
        shares = [values.new_empty(count, *values.shape[1:]) for count in counts]
    works = [gather([places], [indices]), gather([shares], [values])]
    return CoalescedWork(works, lambda: _add_entries(tensor, places, shares))


def _add_entries(tensor: Tensor, places: list[Tensor], shares: list[Tensor]) -> Tensor:
    """Return the tensor after adding the sparse entries of all ranks, in the order of ranks."""
    with pause_counting(), torch.no_grad():
        held = [
            torch.sparse_coo_tensor(place, share, tensor.shape, check_invariants=False)
            for place, share in zip(places, shares, strict=True)
        ]
        return tensor.copy_(reduce(torch.add, held).coalesce())  # `.data` of a sparse tensor is another one


def _header(given: Tensor) -> Tensor:
    """Return the shape of a sparse tensor as one tensor of a fixed length, which ranks can exchange.

    Returns:
        [9] the sizes of the sparse dims and those of the dense dims, each filled up with 0 to four, and the number of values.
    """
    sparse, dense = given.shape[: given.sparse_dim()], given.shape[given.sparse_dim() :]
    if max(len(sparse), len(dense)) > _DIMS:
        shape = f"{len(sparse)} and {len(dense)}"
        raise must_be("all_reduce", "a sparse tensor", f"of {_DIMS} sparse and {_DIMS} dense dims at most", shape)
    sizes = [*sparse, *[0] * (_DIMS - len(sparse)), *dense, *[0] * (_DIMS - len(dense))]
    return torch.tensor([*sizes, given._nnz()])


def _count(own: Tensor, other: Tensor, rank: int) -> int:
    """Return the number of values that another rank's part of a sparse sum has."""
    if not torch.equal(own[:-1], other[:-1]):
        sizes = [size for size in other[:-1].tolist() if size]
        raise must_be("all_reduce", "a sparse tensor", "of one shape on all ranks", f"{sizes} on rank {rank} of the group")
    return int(other[-1])
