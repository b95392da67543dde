"""Take down what every rank does, as a Trace: operators, requests, what the program waited for, and steps.

That the host thread is blocked is no dependency; only a wait is one. A future that DDP waits for in C++, unseen, is joined
at the end of the backward that took it, any other at the next optimizer step. Step 0 is set-up, up to the first forward of
a module, and whatever comes after the last optimizer step; each optimizer step ends one.

Ranks of one process whose program says that they compute the same are counted once: of the others only requests are taken
down, which must be those of the rank that is counted.
"""

import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain

import torch
from torch.autograd import Variable
from torch.nn.modules.module import Module, register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from emu.backend.rank.call import Call, Members, dtype_name
from emu.backend.rank.count import Count, Operator, tensors_in, uncounted
from emu.backend.rank.memory import GRADIENTS, OPTIMIZER, WEIGHTS
from emu.backend.rank.notes import EVEN, Notes, Row, Splits, merge, splits_of
from emu.backend.rank.streams import Moment, Streams, here
from emu.errors import RunError
from emu.trace.kernel import MOVES
from emu.trace.trace import UPDATE, Kind, Trace

_KINDS = {"send": Kind.SEND, "recv": Kind.RECV}
_thread = threading.local()  # its `begin_alike` and `recorder`: where this thread is recorded as a rank


class Recorder:
    """One rank's events, in the order in which it issues them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.waits: list[tuple[int, ...]] = []
        self.splits: dict[int, Splits] = {}  # by event
        self.lines: dict[int, str] = {}  # of the user's program, by event
        self.groups: dict[tuple[str, tuple[int, ...]], Members] = {}
        self.count = Count(self.operator)
        self._numbers: dict[object, int] = {}
        self._lane = Streams()  # of the thread of the rank's program
        self._step = 0
        self._updating = 0  # optimizers that are stepping, one inside another
        self._deferred: list[int] = []
        self._run: dict[int, weakref.ref[Module]] = {}  # modules that have, by identity: each of every pass is asked for
        self._known: MutableMapping[object, int] = WeakIdKeyDictionary()  # optimizers, and of how many states
        self._counted: Recorder | None = None  # who is counted for this rank, too
        self.tell: Callable[[Operator], None] | None = None  # of each computation, once it is taken down
        self.aside = False  # whether what is asked for now is no part of the run
        self._ends: tuple[int, Exception] | None = None  # with the step that it does not come to, and why

    @property
    def streams(self) -> Streams:
        """Those of the calling thread, if it is one of this rank's that has its own."""
        found = here()
        return found if found is not None and found.is_beside(self._lane) else self._lane

    def fork(self) -> Streams:
        """Return the streams of a thread that this one starts: what it does comes after all that was done here."""
        return self.streams.fork()

    def now(self) -> Moment:
        """Return the end of all that the calling thread has done so far on its current stream."""
        return self.streams.now(self.streams.current)

    def goes_on_after(self, moment: Moment) -> None:
        """Let what the calling thread does next come after a moment of another thread of the rank."""
        self.streams.wait(self.streams.current, moment)

    def operator(self, operator: Operator) -> None:
        """Add a computation; it waits for every request that its stream has joined since the one before."""
        what = (operator.name, operator.dtype, operator.flops, operator.bytes, operator.count, *operator.shape)
        self._compute(Row(self._step, Kind.COMPUTE, self.streams.current, *what, -1, 0, 0, 0))
        if self.tell is not None:
            self.tell(operator)

    def mark(self, name: str) -> None:
        """Add a named moment between computations."""
        self._compute(Row(self._step, Kind.MARK, self.streams.current, name, "", 0, 0, 0, *MOVES, -1, 0, 0, 0))

    def _compute(self, row: Row) -> None:
        self.waits.append(self.streams.compute(len(self.rows)))
        self.rows.append(row)

    def request(self, call: Call, instance: int) -> "Issue":
        """Add a request; it waits for the last computation of its stream, and for the requests joined there since."""
        if self.aside:
            return _Unseen(self, -1, 0)
        self._go_on()
        seq = len(self.rows)
        key = call.group[:2]
        self.groups[key] = call.group  # the axis may be known only later
        number = self._numbers.setdefault(key, len(self._numbers))
        kind = _KINDS.get(call.operation, Kind.COLLECTIVE)
        size = call.count * call.dtype.itemsize
        what = (call.operation, dtype_name(call.dtype), 0, size, call.count, *MOVES)
        self.rows.append(Row(self._step, kind, self.streams.current, *what, number, instance, call.root, call.tag))
        self.splits[seq] = splits_of(call)
        if call.line is not None:
            self.lines[seq] = str(call.line)
        # Messages of one peer and tag are in order, but one to receive must not hold up one to send.
        queue = (number, kind) if kind == Kind.COLLECTIVE else (number, kind, call.root, call.tag)
        self.waits.append(self.streams.request(seq, queue))
        return Issue(self, seq, call.dtype.itemsize)

    def join(self, seq: int) -> None:
        """What comes next on the current stream waits for this request."""
        self.streams.wait(self.streams.current, self.streams.done(seq))

    def defer(self, seq: int) -> None:
        """Join at the end of the running backward, else at the next optimizer step."""
        if torch._C._current_graph_task_id() >= 0:
            Variable._execution_engine.queue_callback(lambda: self.join(seq))
        else:
            self._deferred.append(seq)

    def begin(self) -> None:
        """End the set-up, if it has not ended."""
        self._step = self._step or 1
        self._go_on()

    def end_before(self, step: int, why: Exception) -> None:
        """Raise this as soon as the rank computes or asks for anything of a step."""
        self._ends = step, why

    def _go_on(self) -> None:
        if self._ends is not None and self._step >= self._ends[0]:
            raise self._ends[1]

    def weights(self, module: Module) -> None:
        """Know what a module holds, the first time that it has run; parts of it may be read without being run."""
        number = id(module)
        if number not in self._run:
            self._run[number] = weakref.ref(module, lambda _: self._run.pop(number, None))
            held = chain(Module.parameters(module), Module.buffers(module))  # it may have others of these names
            self._mark(held, WEIGHTS)

    def _mark(self, tensors: Iterable[torch.Tensor], part: int) -> None:
        if self._counted is None:
            self.count.mark(tensors, part)

    def begin_update(self, optimizer: Optimizer) -> None:
        """Join what no backward joined; know weights and gradients; mark the moment."""
        self._updating += 1
        weights = [p for group in optimizer.param_groups for p in group["params"]]
        if optimizer not in self._known:
            self._mark(weights, WEIGHTS)
        self._mark((p.grad for p in weights if p.grad is not None), GRADIENTS)
        for seq in self._deferred:
            self.join(seq)
        self._deferred.clear()
        if self._updating == 1:
            self.mark(UPDATE)

    def end_step(self, optimizer: Optimizer) -> None:
        """End a step, unless it is that of a part of an optimizer, as ZeRO has one; know what it keeps, if more than before."""
        if self._known.get(optimizer) != len(optimizer.state):
            self._known[optimizer] = len(optimizer.state)
            self._mark(tensors_in([*optimizer.state.values()]), OPTIMIZER)
        self._updating -= 1
        if not self._updating:
            self.mark("step")
            self._step += 1

    def resize(self, seq: int, count: int, size_bytes: int) -> None:
        """Set the size of a request, which is known only once all members have called."""
        self.rows[seq] = self.rows[seq]._replace(elements=count, size_bytes=size_bytes)
        splits, in_size = self.splits[seq]
        if all(given * in_size == count for given in splits):
            self.splits[seq] = EVEN

    def follow(self, other: "Recorder") -> None:
        """Take the operators of another rank, which has done the same so far, for those of this one."""
        self._counted = other

    @property
    def running(self) -> int:
        """The step that has begun; 0: set-up has not ended."""
        return self._step

    @property
    def steps(self) -> int:
        """How many have ended."""
        return max(self._step - 1, 0)

    def asked(self, step: int) -> list[Row]:
        """The requests of a step, whatever their places in their groups."""
        rows = (row for row in self.rows if row.step == step and row.kind not in (Kind.COMPUTE, Kind.MARK))
        return [row._replace(step=0, instance=0) for row in rows]

    def did(self) -> tuple[object, ...]:
        """All so far, but on which groups."""
        return list(self.rows), list(self.waits), dict(self.splits)

    def _asked(self) -> list[tuple[Row, Splits | None]]:
        """All but operators, in order."""
        return [(row, self.splits.get(seq)) for seq, row in enumerate(self.rows) if row.kind != Kind.COMPUTE]

    def notes(self) -> Notes:
        """All that was taken down; what no optimizer step has ended is of no step.

        Raises:
            RunError: the rank has not asked for what the one asked for that is counted for it.
        """
        if self._counted is None:
            return self._own_notes()
        if self._asked() != self._counted._asked():
            raise RunError("record: ranks that were said to compute the same have asked for different communication")
        return self._counted.notes()._replace(groups=tuple(self.groups.values()))

    def _own_notes(self) -> Notes:
        rows = (row if row.step < self._step else row._replace(step=0) for row in self.rows)
        splits = tuple(self.splits[seq].given if seq in self.splits else () for seq in range(len(self.rows)))
        groups, peak = tuple(self.groups.values()), self.count.memory.peak_by_part()
        return Notes(tuple(rows), tuple(self.waits), splits, groups, peak, dict(self.lines))


class Issue:
    """What became of one request: the recorder's side of a Work."""

    __slots__ = ("_itemsize", "_recorder", "_seq")

    def __init__(self, recorder: Recorder, seq: int, itemsize: int) -> None:
        self._recorder, self._seq, self._itemsize = recorder, seq, itemsize

    def joined(self) -> None:
        """The program waited."""
        self._recorder.join(self._seq)

    def taken(self) -> None:
        """The program took the future."""
        self._recorder.defer(self._seq)

    def sized(self, count: int) -> None:
        """All members have called; the largest buffer of any has `count` elements."""
        self._recorder.resize(self._seq, count, count * self._itemsize)

    def matched(self, peer: int, instance: int) -> None:
        """A receive has its message."""
        rows = self._recorder.rows
        rows[self._seq] = rows[self._seq]._replace(root=peer, instance=instance)


class _Unseen(Issue):
    """Of a request that is no part of the run."""

    __slots__ = ()

    def joined(self) -> None:
        """Nothing waits."""

    def taken(self) -> None:
        """Nothing waits."""

    def sized(self, count: int) -> None:
        """It is nowhere."""

    def matched(self, peer: int, instance: int) -> None:
        """It is nowhere."""


class Recording:
    """The recorders of all ranks that are here."""

    def __init__(self, n_ranks: int) -> None:
        self._recorders = [Recorder() for _ in range(n_ranks)]
        self._here = threading.local()
        self._alike: dict[Hashable, tuple[Recorder, tuple[object, ...]]] = {}  # who is counted, and what it had done before

    def of(self, rank: int) -> Recorder:
        """The recorder of a rank."""
        return self._recorders[rank]

    @contextmanager
    def on(self, rank: int, lane: Streams | None = None) -> Iterator[None]:
        """Record the operators of this thread as those of `rank`.

        Args:
            rank: Whose thread it is.
            lane: The streams of a thread that the rank has started; None: it is that of its program.
        """
        recorder = self._here.recorder = self._recorders[rank]
        with ExitStack() as counting, (recorder.streams if lane is None else lane).on_thread():
            counting.enter_context(recorder.count if lane is None else Count(recorder.operator, recorder.count.memory))
            _thread.begin_alike = lambda key: self._begin_alike(recorder, counting, key)
            _thread.recorder = recorder
            try:
                yield
            finally:
                del _thread.begin_alike, _thread.recorder

    def _begin_alike(self, recorder: Recorder, counting: ExitStack, key: Hashable) -> None:
        first, did = self._alike.setdefault(key, (recorder, recorder.did()))
        if recorder.tell is None and recorder is not first and recorder.did() == did:
            counting.close()
            recorder.follow(first)

    @contextmanager
    def told_to(self, tell: Callable[[int, Operator], None]) -> Iterator[None]:
        """Tell of each rank's computations as they are taken down; those that compute alike are then counted each."""
        for rank, recorder in enumerate(self._recorders):
            recorder.tell = partial(tell, rank)
        try:
            yield
        finally:
            for recorder in self._recorders:
                recorder.tell = None

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Watch for forwards and optimizer steps, on any thread."""
        handles = (
            register_module_forward_pre_hook(lambda *_: self._tell("begin")),
            register_module_forward_hook(lambda module, *_: self._tell("weights", module)),
            register_optimizer_step_pre_hook(lambda optimizer, *_: self._tell("begin_update", optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, *_: self._tell("end_step", optimizer)),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _tell(self, what: str, *of: object) -> None:
        recorder = getattr(self._here, "recorder", None)
        if recorder is not None and not recorder.aside:
            getattr(recorder, what)(*of)

    def trace(self, meta: Sequence[tuple[str, str]] = ()) -> Trace:
        """The trace of all ranks; those with equal events share a role."""
        return merge([r.notes() for r in self._recorders], meta)


def compute_alike(key: Hashable) -> None:
    """Say that all ranks that give this key compute the same from here on; those of one process are then counted once."""
    begin = getattr(_thread, "begin_alike", None)
    if begin is not None:
        begin(key)


def end_before(step: int, why: Exception) -> None:
    """Let this thread's rank end as a step begins, if what it does is taken down."""
    recorder = getattr(_thread, "recorder", None)
    if recorder is not None:
        recorder.end_before(step, why)


@contextmanager
def set_aside() -> Iterator[None]:
    """Take down nothing of what this rank does within: a checkpoint is the host's, and no step waits for it."""
    recorder = getattr(_thread, "recorder", None)
    with uncounted():
        if recorder is None:
            yield
            return
        recorder.aside = True
        try:
            yield
        finally:
            recorder.aside = False
