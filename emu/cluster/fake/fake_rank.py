"""One rank of a script, run on tensors without data until a step repeats the requests of the step before.

The other members of its process groups do not exist: each is assumed to make this rank's requests, with the same data.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedFakeTensorException,
    unset_fake_temporarily,
)
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import init_process_group
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from emu.arrays import I64
from emu.backend.rank.operator_counter import pause_counting
from emu.backend.rank.process_group import BACKEND
from emu.backend.rank.rank_requests import Members, RankRequest
from emu.backend.rank.record import Recorder, Recording
from emu.backend.rank.recorded_events import RecordedEvents
from emu.backend.rank.request_work import RequestWork
from emu.backend.rank.source_lines import error_line, starts_rank, traceback_of
from emu.cluster.call_matcher import CallMatcher
from emu.cluster.cluster import Ranks
from emu.cluster.fake.fake_mode import CachedFakeMode
from emu.cluster.fake.fake_tensors import KnownNumbers, UnknownError, use_fake_tensors
from emu.cluster.rank_failure import RankExit, job_error
from emu.cluster.rank_state.cpu_device import emulate_device
from emu.cluster.rank_state.library_state import library_state
from emu.cluster.rank_state.rank_state import RankState, replace_attributes
from emu.cluster.threads.isolation import rank_isolation
from emu.errors import EmuError, InputError

_OF_ROOT = ("gather", "scatter")  # operations whose size the root alone sees
_TIMES: Mapping[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda data, n: data * n,
    "product": lambda data, n: data**n,
    "xor": lambda data, n: data * (n % 2),
}


def _write_answer(request: RankRequest) -> None:
    """Write the answer of a collective of whole numbers, which are real, as if all members had sent what this rank sends."""
    n, at = len(request.group.ranks), request.rank
    with unset_fake_temporarily(), pause_counting():
        given, made = request.input.view(-1), request.output.view(-1)
        if request.operation in ("reduce_scatter", "scatter", "all_to_all") and given.numel() % n == 0:
            given = given.view(n, -1)[at]
        if request.operation in ("reduce_scatter", "all_reduce", "reduce") and request.reduce in _TIMES:
            given = _TIMES[request.reduce](given, n)
        if given.numel() and made.numel() % given.numel() == 0:
            made.copy_(given.repeat(made.numel() // given.numel()))


def _size(request: RankRequest) -> int:
    """Return the elements of the largest buffer of any member."""
    n = len(request.group.ranks)
    if request.operation in _OF_ROOT:
        return n * int(request.known.elements.max(initial=0))
    return request.count


T = TypeVar("T")
_MOST_STEPS = 5
_NO_DATA = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException, UnknownError)


Mesh = tuple[tuple[str, ...], I64]  # the names of a device mesh's dims, and all ranks in its shape


class TracedRank(NamedTuple):
    """The events of one rank in one step, with the members of its groups and of their sister groups."""

    rank: int
    recorded_events: RecordedEvents  # of one step, as step 1; of the whole run if it had no step
    step: int  # the number of the step; 0: the script ended without a step
    sisters: tuple[I64, ...]  # for each group of `recorded_events`: [groups, members] it and the groups made with it
    meshes: tuple[Mesh, ...]
    left: RankExit | None  # the exit with a code other than 0, if any


class _EnoughError(BaseException):
    """The exception that ends a script whose further steps are not needed."""


class FakeRanks(Ranks):
    """One rank of a job whose other ranks do not exist; its requests are answered at once.

    Args:
        rank: The rank.
        n_ranks: The number of ranks of the job.
        own: Further state of the rank.
    """

    def __init__(self, rank: int, n_ranks: int, own: Sequence[RankState]) -> None:
        self.n_ranks = n_ranks
        self.seen: TracedRank | None = None
        self._rank, self._own = rank, own
        self._recording = Recording(1)
        self._recorder = self._recording.of(0)
        self._numbers = KnownNumbers(CachedFakeMode())
        self._calls = CallMatcher()
        self._meshes: list[Mesh] = []  # that the rank has made
        # Groups made one after another that share no rank, also those of which it is no member.
        self._layers: list[tuple[object, list[tuple[int, ...]]]] = []

    def run_bare(self, program: Callable[[int], T]) -> list[T]:
        """Run the program until it ends or has repeated a step; return [].

        Raises:
            InputError: The program needs the content of a tensor.
            RunError: The program failed; its own exception is the cause.
        """
        with (
            _rank_context(self._rank, self._own),
            rank_isolation(self.start_request),
            _group_left(),
            self._recording.hooks(),
            emulate_device(),
            self._watched_groups(),
            _repetition_watch(self._recorder),
            use_fake_tensors(self._numbers),
            self._recording.on(0),
        ):
            left = _run(self._rank, program)
        step = self._recorder.steps
        recorded_events = self._recorder.recorded_events().of_step(step)
        sisters = tuple(self._sisters(group) for group in recorded_events.groups)
        self.seen = TracedRank(self._rank, recorded_events, step, sisters, (*self._meshes,), left)
        return []

    def join(self, rank: int, n_ranks: int | None = None) -> None:
        """Create PyTorch's default group for the one rank that runs.

        Args:
            rank: Not used: the rank is that of the constructor.
            n_ranks: The number of members of the group, the first ranks; None: all ranks of the job.
        """
        init_process_group(BACKEND, store=HashStore(), rank=self._rank, world_size=n_ranks or self.n_ranks)

    def start_request(self, request: RankRequest) -> RequestWork:
        """Record a request, and return a work that is done at once, because no other rank exists."""
        work = RequestWork(request.result, lambda *_: None, lambda _: None)
        work.recorder = self._recorder
        work.event = work.recorder.request(request, self._calls.number_request(request, work).instance)
        work.set_agreed_size(_size(request))
        if not isinstance(request.output, FakeTensor) and not isinstance(request.input, FakeTensor):
            if request.operation in ("broadcast", "scatter", "recv") and request.root != request.rank:
                self._numbers.forget(request.result)  # another rank knows it
            else:
                _write_answer(request)
        with pause_counting():
            request.deliver()
        work.finish()
        return work

    def await_threads(self) -> None:
        """Do nothing: the process waits for its threads when it ends."""

    def streams(self, rank: int) -> None:
        """Return None: the rank prints to the streams of this process."""

    def _sisters(self, group: Members) -> I64:
        """Return [groups, members] the ranks of a group, and of the disjoint groups that were created together with it."""
        if len(group.ranks) == self.n_ranks:
            return np.array([group.ranks], np.int64)
        layer = next(rows for _, rows in self._layers if group.ranks in rows)
        return np.array(layer, np.int64)

    @contextmanager
    def _watched_groups(self) -> Iterator[None]:
        """Record the meshes and groups that are created while the context lasts."""
        new_group, init = distributed_c10d._new_group_with_tag, DeviceMesh.__init__

        def group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            in_order = sorted if kwargs.get("sort_ranks", True) else list
            self._group(tuple(in_order(ranks or ())), kwargs.get("group_desc"))
            return new_group(ranks, *args, **kwargs)

        def mesh(made: Any, *args: Any, **kwargs: Any) -> None:
            init(made, *args, **kwargs)
            if made._root_mesh is None and made._layout.numel() == dist.get_world_size():
                shape = made._layout.remap_to_tensor(made._rank_map)[0]
                self._meshes.append((made.mesh_dim_names or ("",) * shape.dim(), shape.numpy().astype(np.int64)))

        with replace_attributes((distributed_c10d, "_new_group_with_tag", group), (DeviceMesh, "__init__", mesh)):
            yield

    def _group(self, ranks: tuple[int, ...], what: object) -> None:
        key = (what, len(ranks))
        if self._layers and self._layers[-1][0] == key and not set(ranks) & {r for row in self._layers[-1][1] for r in row}:
            self._layers[-1][1].append(ranks)
        else:
            self._layers.append((key, [ranks]))


@contextmanager
def _rank_context(rank: int, of_script: Sequence[RankState]) -> Iterator[None]:
    """Set all per-process state to that of a starting rank, and restore it at the end of the context."""
    attributes, library = library_state()
    with attributes.watched():
        owns = (*library, *of_script)
        before = [own.save() for own in owns]
        for own in owns:
            own.load(own.of(rank))
        try:
            yield
        finally:
            for own, state in zip(owns, before, strict=True):
                own.load(state)


@starts_rank
def _run(rank: int, program: Callable[[int], object]) -> RankExit | None:
    """Run a program until it ends or repeats a step; return its exit if it exits with a code, else None."""
    torch.set_num_threads(1)
    try:
        program(rank)
    except _EnoughError:
        return None
    except SystemExit as left:
        ended = job_error(rank, left)
        return ended if isinstance(ended, RankExit) else None
    except _NO_DATA as error:
        _refuse(error)
    except Exception as error:
        failure = job_error(rank, error)
        if isinstance(failure, EmuError):
            failure.lines = tuple(traceback_of(error))
        raise failure from error
    return None


@contextmanager
def _group_left() -> Iterator[None]:
    """Leave the default group at the end of the context, even after an error."""
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _refuse(error: Exception) -> NoReturn:
    what = getattr(error, "func", None) or next(iter(error.args), "data")
    line = error_line(error)
    where = str(line) if line else "the script"
    raise InputError(
        f"fake: {where} needs the content of a tensor ({what}), and under --cluster fake tensors have shapes but no data; "
        f"let sizes and branches depend on no computed value, or run it with --cluster local on fewer ranks"
    ) from error


@contextmanager
def _repetition_watch(recorder: Recorder) -> Iterator[None]:
    """End the program with the first step that makes the same requests as the step before."""
    asked: list[object] = []

    def ended(optimizer: Optimizer, *_: object) -> None:
        if recorder.steps == len(asked):  # a part of an optimizer stepped
            return
        asked.append(recorder.requests_of_step(recorder.steps))
        if asked[-2:-1] == asked[-1:] or len(asked) == _MOST_STEPS:
            raise _EnoughError

    handle = register_optimizer_step_post_hook(ended)
    try:
        yield
    finally:
        handle.remove()
