"""One rank of a script under tensors without data, until a step of it is like the one before."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
)
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from emu.arrays import I64
from emu.backend.rank.call import Members
from emu.backend.rank.lines import raised_at, starts_rank, traceback_of
from emu.backend.rank.notes import Notes
from emu.backend.rank.record import Recorder, Recording
from emu.cluster.ends import RankExit, failed
from emu.cluster.fake.front import Front
from emu.cluster.fake.shapes import Shapes
from emu.cluster.fake.tensors import Numbers, without_data
from emu.cluster.fake.unknown import UnknownError
from emu.cluster.own.device import as_device, replaced
from emu.cluster.own.library import of_library
from emu.cluster.own.own import Own
from emu.cluster.threads.isolate import isolated
from emu.errors import EmuError, InputError

T = TypeVar("T")
_MOST_STEPS = 5
_NO_DATA = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedFakeTensorException, UnknownError)


class Mesh(NamedTuple):
    """A mesh of all ranks."""

    dims: tuple[str, ...]
    ranks: I64  # in the shape of its dims


class Seen(NamedTuple):
    """What one rank did in one step, and how it sees the others."""

    rank: int
    notes: Notes  # of one step, numbered 1; of all that ran where there was none
    step: int  # which one; 0: the script ended without one
    sisters: tuple[I64, ...]  # of each group of the notes: [groups, members] it and those made with it, of other ranks
    meshes: tuple[Mesh, ...]
    left: RankExit | None  # with a code other than 0


class _EnoughError(BaseException):
    """The script need not go on."""


class FakeRanks:
    """One rank of a job, whose other ranks are not there; as a `Script` finds it, which says what else is the rank's own."""

    def __init__(self, rank: int, n_ranks: int, own: Sequence[Own]) -> None:
        self.n_ranks = n_ranks
        self.seen: Seen | None = None
        self._rank, self._own = rank, own
        self._recording = Recording(1)
        self._recorder = self._recording.of(0)
        self._numbers = Numbers(Shapes())
        self._front = Front(rank, self._recorder, self._numbers.forget)

    def run(self, program: Callable[[int], T]) -> list[T]:
        """As `run_bare`, with PyTorch's default group made."""

        def joined(rank: int) -> T:
            self.join(rank)
            return program(rank)

        return self.run_bare(joined)

    def run_bare(self, program: Callable[[int], T]) -> list[T]:
        """Run the program until it ends or enough of it has been seen; no result.

        Raises:
            InputError: it asks for what a tensor holds.
            RunError: it failed; its own exception is the cause.
        """
        made = _Made()
        contexts = (isolated(self._front), _left(), self._recording.hooks(), as_device(), made.watched())
        with ExitStack() as stack:
            stack.enter_context(_as_rank(self._rank, self._own))
            for context in (*contexts, _until_alike(self._recorder), without_data(self._numbers)):
                stack.enter_context(context)
            stack.enter_context(self._recording.on(0))
            left = _run(self._rank, program)
        step = self._recorder.steps
        notes = self._recorder.notes().of_step(step)
        sisters = tuple(made.sisters(group, self.n_ranks) for group in notes.groups)
        self.seen = Seen(self._rank, notes, step, sisters, (*made.meshes,), left)
        return []

    def join(self, rank: int, n_ranks: int | None = None) -> None:
        """Make PyTorch's default group."""
        self._front.join(n_ranks or self.n_ranks)

    def await_threads(self) -> None:
        """Do nothing: the process waits for its threads when it ends."""

    def streams(self, rank: int) -> None:
        """What the rank prints goes to the streams of this process."""


@contextmanager
def _as_rank(rank: int, of_script: Sequence[Own]) -> Iterator[None]:
    """All that a process has once, as it is when a rank starts; as it was before at the end."""
    attributes, library = of_library()
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
    """Until it ends, or enough of it has been seen; how it left, if with a code."""
    torch.set_num_threads(1)
    try:
        program(rank)
    except _EnoughError:
        return None
    except SystemExit as left:
        ended = failed(rank, left)
        return ended if isinstance(ended, RankExit) else None
    except _NO_DATA as error:
        _refuse(error)
    except Exception as error:
        failure = failed(rank, error)
        if isinstance(failure, EmuError):
            failure.lines = tuple(traceback_of(error))
        raise failure from error
    return None


@contextmanager
def _left() -> Iterator[None]:
    """Leave the default group at the end, however that comes."""
    try:
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _refuse(error: Exception) -> NoReturn:
    what = getattr(error, "func", None) or next(iter(error.args), "data")
    line = raised_at(error)
    where = str(line) if line else "the script"
    raise InputError(
        f"fake: {where} asks for what a tensor holds ({what}), and under --cluster fake tensors have shapes but no data; "
        f"let sizes and branches hang on nothing that is computed, or run it with --cluster local on fewer ranks"
    ) from error


@contextmanager
def _until_alike(recorder: Recorder) -> Iterator[None]:
    """End the program with the first step that asks for what the step before it asked."""
    asked: list[object] = []

    def ended(optimizer: Optimizer, *_: object) -> None:
        if recorder.steps == len(asked):  # a part of an optimizer has stepped
            return
        asked.append(recorder.asked(recorder.steps))
        if asked[-2:-1] == asked[-1:] or len(asked) == _MOST_STEPS:
            raise _EnoughError

    handle = register_optimizer_step_post_hook(ended)
    try:
        yield
    finally:
        handle.remove()


class _Made:
    """The meshes and groups that a rank makes, of which it is a member or not."""

    def __init__(self) -> None:
        self.meshes: list[Mesh] = []
        self._layers: list[tuple[object, list[tuple[int, ...]]]] = []  # groups made one after another that share no rank

    def sisters(self, group: Members, n_ranks: int) -> I64:
        """[groups, members] a group, and those that were made with it and share no rank with it nor with one another."""
        if len(group.ranks) == n_ranks:
            return np.array([group.ranks], np.int64)
        layer = next(rows for _, rows in self._layers if group.ranks in rows)
        return np.array(layer, np.int64)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take down what is made."""
        new_group, init = distributed_c10d._new_group_with_tag, DeviceMesh.__init__

        def group(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            self._group(tuple(sorted(ranks or ())), kwargs.get("group_desc"))
            return new_group(ranks, *args, **kwargs)

        def mesh(made: Any, *args: Any, **kwargs: Any) -> None:
            init(made, *args, **kwargs)
            if made._root_mesh is None and made._layout.numel() == dist.get_world_size():
                shape = made._layout.remap_to_tensor(made._rank_map)[0]
                self.meshes.append(Mesh(made.mesh_dim_names or ("",) * shape.dim(), shape.numpy().astype(np.int64)))

        with replaced(distributed_c10d, "_new_group_with_tag", group), replaced(DeviceMesh, "__init__", mesh):
            yield

    def _group(self, ranks: tuple[int, ...], what: object) -> None:
        key = (what, len(ranks))
        if self._layers and self._layers[-1][0] == key and not set(ranks) & {r for row in self._layers[-1][1] for r in row}:
            self._layers[-1][1].append(ranks)
        else:
            self._layers.append((key, [ranks]))
