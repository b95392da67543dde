"""A process group whose other members do not exist: each is assumed to make this rank's requests, with the same data."""

from collections.abc import Callable, Mapping

from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed.distributed_c10d import init_process_group

from emu.backend.rank.count import pause_counting
from emu.backend.rank.process_group import BACKEND
from emu.backend.rank.rank_requests import RankRequest
from emu.backend.rank.record import Recorder
from emu.backend.rank.request_work import RequestWork
from emu.cluster.call_matcher import RequestCounter

_OF_ROOT = ("gather", "scatter")  # operations whose size the root alone sees
_TIMES: Mapping[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda data, n: data * n,
    "product": lambda data, n: data**n,
    "xor": lambda data, n: data * (n % 2),
}


class FakeRequests:
    """A handler that answers the requests of the one existing rank as soon as it makes them.

    Args:
        rank: The rank.
        recorder: The recorder of the rank.
        forget: A function that gets real tensors whose content only another rank knows.
    """

    def __init__(self, rank: int, recorder: Recorder, forget: Callable[[list[Tensor]], None]) -> None:
        self._rank = rank
        self._recorder = recorder
        self._forget = forget
        self._places = RequestCounter()

    def join(self, n_ranks: int) -> None:
        """Make PyTorch's default group."""
        init_process_group(BACKEND, store=HashStore(), rank=self._rank, world_size=n_ranks)

    def submit(self, call: RankRequest) -> RequestWork:
        """Record a request, and return its work, which is done."""
        work = RequestWork(call.result, lambda *_: None, lambda _: None)
        work.watch = self._recorder.request(call, self._places.arrival(call, work).instance)
        work.watch.on_size(_size(call))
        if not isinstance(call.output, FakeTensor) and not isinstance(call.input, FakeTensor):
            self._answer(call)
        with pause_counting():
            call.deliver()
        work.finish()
        return work

    def _answer(self, call: RankRequest) -> None:
        """Write the answer that equal members would give, for whole numbers, which are real."""
        n, at = len(call.group.ranks), call.rank
        if call.operation in ("broadcast", "scatter", "recv") and call.root != at:
            self._forget(call.result)
            return
        with unset_fake_temporarily(), pause_counting():
            given, made = call.input.view(-1), call.output.view(-1)
            if call.operation in ("reduce_scatter", "scatter", "all_to_all") and given.numel() % n == 0:
                given = given.view(n, -1)[at]
            if call.operation in ("reduce_scatter", "all_reduce", "reduce") and call.reduce in _TIMES:
                given = _TIMES[call.reduce](given, n)
            if given.numel() and made.numel() % given.numel() == 0:
                made.copy_(given.repeat(made.numel() // given.numel()))


def _size(call: RankRequest) -> int:
    """Return the elements of the largest buffer of any member."""
    n = len(call.group.ranks)
    if call.operation in _OF_ROOT:
        return n * int(call.known.elements.max(initial=0))
    return call.count
