"""The recorder of each rank's events, from which a trace is made: operators, requests, waits, and steps.

Only `wait()` makes later operators depend on a request; how long the host thread is blocked does not count. A
future for which DDP waits in C++, unseen, is awaited at the end of the backward pass that took it, any other future at the next
optimizer step. Step 0 is set-up, up to the first forward pass of a module, and everything after the last optimizer step; each
optimizer step ends a step.

Ranks of one process whose program declares that they compute the same are counted once: of the others only the requests are
recorded, which must equal those of the counted rank.
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

from emu.backend.rank.operator_counter import Operator, OperatorCounter, suspend_counting, tensors_in
from emu.backend.rank.rank_memory import GRADIENTS, OPTIMIZER, WEIGHTS
from emu.backend.rank.rank_requests import Members, RankRequest, dtype_name
from emu.backend.rank.recorded_events import EVEN, EventRow, RecordedEvents, Splits, merge, splits_of
from emu.backend.rank.streams import RankStreams, StreamPosition, current_streams
from emu.errors import RunError
from emu.trace.kernel_shape import MOVES
from emu.trace.trace import UPDATE, Kind, Trace

_KINDS = {"send": Kind.SEND, "recv": Kind.RECV}
_thread = threading.local()  # `begin_equal` and `recorder` of this thread, if it is recorded as a rank


class Recorder:
    """The recorder of one rank's events, in the order in which the rank issues them."""

    def __init__(self) -> None:
        self.rows: list[EventRow] = []
        self.waits: list[tuple[int, ...]] = []
        self.splits: dict[int, Splits] = {}  # by event
        self.lines: dict[int, str] = {}  # the line of the user's program, by event
        self.groups: dict[tuple[str, tuple[int, ...]], Members] = {}
        self.count = OperatorCounter(self.operator)
        self._numbers: dict[object, int] = {}
        self._lane = RankStreams()  # the streams of the thread of the rank's program
        self._step = 0
        self._updating = 0  # the number of optimizers that are stepping, one inside another
        self._deferred: list[int] = []
        self._run: dict[int, weakref.ref[Module]] = {}  # modules that have run, by identity
        self._known: MutableMapping[object, int] = WeakIdKeyDictionary()  # the number of states that each optimizer had
        self._counted: Recorder | None = None  # the recorder whose operators count for this rank, too
        self.tell: Callable[[Operator], None] | None = None  # called with each computation when it is recorded
        self.aside = False  # True while requests are no part of the run
        self._ends: tuple[int, Exception] | None = None  # the step before which the rank must end, and the error to raise

    @property
    def streams(self) -> RankStreams:
        """The streams of the calling thread if it belongs to the rank, else those of the rank's main thread."""
        found = current_streams()
        return found if found is not None and found.is_beside(self._lane) else self._lane

    def now(self) -> StreamPosition:
        """Return the position after all work so far of the calling thread on its current stream."""
        return self.streams.now(self.streams.current)

    def goes_on_after(self, moment: StreamPosition) -> None:
        """Order the next work of the calling thread after a position of another thread of the rank."""
        self.streams.wait(self.streams.current, moment)

    def operator(self, operator: Operator) -> None:
        """Add a computation event for an operator; it waits for the requests that its stream has joined."""
        what = (operator.name, operator.dtype, operator.flops, operator.bytes, operator.count, *operator.shape)
        self._compute(EventRow(self._step, Kind.COMPUTE, self.streams.current, *what, -1, 0, 0, 0))
        if self.tell is not None:
            self.tell(operator)

    def mark(self, name: str) -> None:
        """Record a mark: a moment with a name between the events of the rank."""
        self._compute(EventRow(self._step, Kind.MARK, self.streams.current, name, "", 0, 0, 0, *MOVES, -1, 0, 0, 0))

    def _compute(self, row: EventRow) -> None:
        self.waits.append(self.streams.compute(len(self.rows)))
        self.rows.append(row)

    def request(self, request: RankRequest, instance: int) -> int:
        """Add a request event, and return its number; -1 if recording is off.

        The request waits for the last computation of its stream, and for the requests that its stream has joined since.
        """
        if self.aside:
            return -1
        self._raise_if_lost()
        seq = len(self.rows)
        key = request.group[:2]
        self.groups[key] = request.group  # the axis may be known only later
        number = self._numbers.setdefault(key, len(self._numbers))
        kind = _KINDS.get(request.operation, Kind.COLLECTIVE)
        size = request.count * request.dtype.itemsize
        what = (request.operation, dtype_name(request.dtype), 0, size, request.count, *MOVES)
        self.rows.append(EventRow(self._step, kind, self.streams.current, *what, number, instance, request.root, request.tag))
        self.splits[seq] = splits_of(request)
        if request.line is not None:
            self.lines[seq] = str(request.line)
        # Messages of one peer and tag are in order, but one to receive must not hold up one to send.
        queue = (number, kind) if kind == Kind.COLLECTIVE else (number, kind, request.root, request.tag)
        self.waits.append(self.streams.request(seq, queue))
        return seq

    def depend_on(self, seq: int) -> None:
        """Let the next work on the current stream wait for a request."""
        self.streams.wait(self.streams.current, self.streams.done(seq))

    def defer(self, seq: int) -> None:
        """Depend on a request at the end of the running backward pass, or at the next optimizer step if none is running."""
        if torch._C._current_graph_task_id() >= 0:
            Variable._execution_engine.queue_callback(lambda: self.depend_on(seq))
        else:
            self._deferred.append(seq)

    def begin(self) -> None:
        """End the set-up (step 0) at the first forward pass of a module; later calls do nothing."""
        self._step = self._step or 1
        self._raise_if_lost()

    def end_before(self, step: int, why: Exception) -> None:
        """Make the rank raise the error `why` at its first event in the given step."""
        self._ends = step, why

    def _raise_if_lost(self) -> None:
        """Raise the error of `end_before` once its step has begun."""
        if self._ends is not None and self._step >= self._ends[0]:
            raise self._ends[1]

    def mark_weights(self, module: Module) -> None:
        """Mark the storage of the weights of a module when it first runs."""
        number = id(module)
        if number not in self._run:
            self._run[number] = weakref.ref(module, lambda _: self._run.pop(number, None))
            # The module may have other attributes of these names.
            self._mark(chain(Module.parameters(module), Module.buffers(module)), WEIGHTS)

    def _mark(self, tensors: Iterable[torch.Tensor], part: int) -> None:
        if self._counted is None:
            self.count.mark(tensors, part)

    def begin_update(self, optimizer: Optimizer) -> None:
        """Begin an optimizer step: wait for deferred requests, mark the storage of weights and gradients, and add a mark."""
        self._updating += 1
        weights = [p for group in optimizer.param_groups for p in group["params"]]
        if optimizer not in self._known:
            self._mark(weights, WEIGHTS)
        self._mark((p.grad for p in weights if p.grad is not None), GRADIENTS)
        for seq in self._deferred:
            self.depend_on(seq)
        self._deferred.clear()
        if self._updating == 1:
            self.mark(UPDATE)

    def end_step(self, optimizer: Optimizer) -> None:
        """End an optimizer step: mark the storage of its state and, unless an outer optimizer steps, end the training step.

        ZeRO, for example, calls an optimizer inside its own.
        """
        if self._known.get(optimizer) != len(optimizer.state):
            self._known[optimizer] = len(optimizer.state)
            self._mark(tensors_in([*optimizer.state.values()]), OPTIMIZER)
        self._updating -= 1
        if not self._updating:
            self.mark("step")
            self._step += 1

    def set_agreed_size(self, seq: int, count: int, message: tuple[int, int] | None) -> None:
        """Set the sizes of a request, which are known when all members have called."""
        row = self.rows[seq]
        size_bytes = count * int(getattr(torch, row.dtype).itemsize)
        root, instance = message or (row.root, row.instance)
        self.rows[seq] = row._replace(elements=count, size_bytes=size_bytes, root=root, instance=instance)
        splits, in_size = self.splits[seq]
        if all(given * in_size == count for given in splits):
            self.splits[seq] = EVEN

    def follow(self, other: "Recorder") -> None:
        """Use another rank's operators for this rank, whose events so far are equal."""
        self._counted = other

    @property
    def current_step(self) -> int:
        """The number of the current step; 0 during set-up."""
        return self._step

    @property
    def steps(self) -> int:
        """The number of steps that have ended."""
        return max(self._step - 1, 0)

    def requests_of_step(self, step: int) -> list[EventRow]:
        """Return the requests of a step without instance numbers, so that steps can be compared."""
        rows = (row for row in self.rows if row.step == step and row.kind not in (Kind.COMPUTE, Kind.MARK))
        return [row._replace(step=0, instance=0) for row in rows]

    def history(self) -> tuple[object, ...]:
        """Return all rows, waits and split sizes so far, without the groups."""
        return list(self.rows), list(self.waits), dict(self.splits)

    def _without_operators(self) -> list[tuple[EventRow, Splits | None]]:
        """Return all events but operators, in order, each with its split sizes."""
        return [(row, self.splits.get(seq)) for seq, row in enumerate(self.rows) if row.kind != Kind.COMPUTE]

    def recorded_events(self) -> RecordedEvents:
        """Return the events of the rank; those after the last optimizer step are of step 0.

        Raises:
            RunError: the requests of the rank differ from those of the rank that is counted for it.
        """
        if self._counted is None:
            return self._own_events()
        if self._without_operators() != self._counted._without_operators():
            raise RunError("record: ranks that are declared to compute the same made different requests")
        return self._counted.recorded_events()._replace(groups=tuple(self.groups.values()))

    def _own_events(self) -> RecordedEvents:
        rows = (row if row.step < self._step else row._replace(step=0) for row in self.rows)
        splits = tuple(self.splits[seq][0] if seq in self.splits else () for seq in range(len(self.rows)))
        groups, peak = tuple(self.groups.values()), self.count.memory.peak_by_part()
        return RecordedEvents(tuple(rows), tuple(self.waits), splits, groups, peak, dict(self.lines))


class Recording:
    """The recorders of all ranks of this process."""

    def __init__(self, n_ranks: int) -> None:
        self._recorders = [Recorder() for _ in range(n_ranks)]
        self._equal: dict[Hashable, tuple[Recorder, tuple[object, ...]]] = {}  # the counted one, and its history

    def of(self, rank: int) -> Recorder:
        """Return the recorder of a rank."""
        return self._recorders[rank]

    @contextmanager
    def on(self, rank: int, lane: RankStreams | None = None) -> Iterator[None]:
        """Record the operators of this thread as operators of `rank`.

        Args:
            rank: The rank to which the thread belongs.
            lane: The streams of a thread that the rank has started; None: it is the thread of the rank's program.
        """
        recorder = self._recorders[rank]
        with ExitStack() as counting, (recorder.streams if lane is None else lane).on_thread():
            counting.enter_context(
                recorder.count if lane is None else OperatorCounter(recorder.operator, recorder.count.memory)
            )
            _thread.begin_equal = lambda key: self._begin_equal(recorder, counting, key)
            _thread.recorder = recorder
            try:
                yield
            finally:
                del _thread.begin_equal, _thread.recorder

    def _begin_equal(self, recorder: Recorder, counting: ExitStack, key: Hashable) -> None:
        first, history = self._equal.setdefault(key, (recorder, recorder.history()))
        if recorder.tell is None and recorder is not first and recorder.history() == history:
            counting.close()
            recorder.follow(first)

    @contextmanager
    def with_listener(self, tell: Callable[[int, Operator], None]) -> Iterator[None]:
        """Call `tell(rank, operator)` for each recorded computation while the context lasts.

        No rank is then left uncounted.
        """
        for rank, recorder in enumerate(self._recorders):
            recorder.tell = partial(tell, rank)
        try:
            yield
        finally:
            for recorder in self._recorders:
                recorder.tell = None

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Watch forward passes and optimizer steps on all threads."""
        handles = (
            register_module_forward_pre_hook(lambda *_: _tell(Recorder.begin)),
            register_module_forward_hook(lambda module, *_: _tell(Recorder.mark_weights, module)),
            register_optimizer_step_pre_hook(lambda optimizer, *_: _tell(Recorder.begin_update, optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, *_: _tell(Recorder.end_step, optimizer)),
        )
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def trace(self, meta: Sequence[tuple[str, str]] = ()) -> Trace:
        """Return the trace of all ranks; ranks with equal events share a role."""
        return merge([r.recorded_events() for r in self._recorders], meta)


def _tell(method: Callable[..., None], *args: object) -> None:
    """Call a method of this thread's recorder, if the thread has one.

    Args:
        method: The method, as a function of `Recorder`.
        *args: Its further arguments.
    """
    recorder = getattr(_thread, "recorder", None)
    if recorder is not None and not recorder.aside:
        method(recorder, *args)


def declare_equal_work(key: Hashable) -> None:
    """Declare that all ranks that pass this key compute the same from now on.

    The work of one of them is counted for all.
    """
    begin = getattr(_thread, "begin_equal", None)
    if begin is not None:
        begin(key)


def end_before(step: int, why: Exception) -> None:
    """Make this thread's rank end with the error `why` when a step begins, if it is recorded."""
    recorder = getattr(_thread, "recorder", None)
    if recorder is not None:
        recorder.end_before(step, why)


@contextmanager
def without_recording() -> Iterator[None]:
    """Stop recording this rank while the context lasts, for example for a checkpoint."""
    recorder = getattr(_thread, "recorder", None)
    with suspend_counting():
        if recorder is None:
            yield
            return
        recorder.aside = True
        try:
            yield
        finally:
            recorder.aside = False
