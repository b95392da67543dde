"""Jobs that share a fabric: the step that each one repeats, its NPUs, its start, and its share of a full link."""

from dataclasses import dataclass, replace

import numpy as np

from emu.arrays import column
from emu.collective.operation import OPERATIONS
from emu.dtypes import item_bytes
from emu.errors import must_be
from emu.model.plan.plan_text import spell
from emu.model.stack.stack import Stack
from emu.registry import unknown
from emu.study.training.estimate import EstimateRequest
from emu.trace.device.device import Device, measured_device
from emu.trace.trace import PARTS, Events, Group, Kind, Trace, typed_events
from emu.units import TICKS_PER_S, format_size, format_time, seconds

NO_STACK = Stack()
MOST_RANKS = 2**20  # of a job, more than can be timed


@dataclass(frozen=True, eq=False, slots=True)
class TrainingWork:
    """The work of a job that trains a model: its step is estimated from the model and the plan."""

    request: EstimateRequest
    device: Device

    @property
    def ranks(self) -> int:
        """The number of ranks, which the plan gives."""
        return self.request.plan.world

    @property
    def words(self) -> tuple[str, ...]:
        """The words of `--algorithm`."""
        return self.request.algorithms

    @property
    def told(self) -> str:
        """The model and the plan in words."""
        return f"{getattr(self.request.model, 'name', self.request.model)} {spell(self.request.plan)}"


@dataclass(frozen=True, eq=False, slots=True)
class TraceWork:
    """The work of a job that repeats a step of a trace."""

    trace: Trace  # one step
    words: tuple[str, ...]  # of `--algorithm`
    device: Device
    dtype: str  # as which float32 is timed
    told: str  # where it comes from
    stack: Stack = NO_STACK  # whose times are added to messages

    @property
    def ranks(self) -> int:
        """The number of ranks, which the trace gives."""
        return self.trace.n_ranks


def loop_work(operation: str, size_bytes: int, ranks: int, words: tuple[str, ...], pause_fs: int = 0) -> TraceWork:
    """Return the work of a job that repeats a collective of float32 after a pause, which stands for computation.

    Args:
        operation: The operation.
        size_bytes: The bytes of the whole buffer; the total for all_gather and reduce_scatter.
        ranks: The number of ranks.
        words: Words of `--algorithm`.
        pause_fs: The ticks of the pause.

    Raises:
        InputError: There is no such operation, the ranks are too few or too many, or the size is no whole number of elements.
    """
    if operation not in OPERATIONS:
        raise unknown("operation", operation, OPERATIONS)
    item = item_bytes("float32")
    if size_bytes <= 0 or size_bytes % item:
        raise must_be("", "size", f"a multiple of {item} bytes above 0, the size of a float32", size_bytes)
    if not 2 <= ranks <= MOST_RANKS:
        raise must_be("", "ranks", f"2 to {MOST_RANKS}", ranks)
    events = _turn_of_loop(operation, size_bytes, size_bytes // item, pause_fs)
    group, none = Group("", tuple(range(ranks))), np.zeros((1, len(PARTS)), np.int64)
    trace = Trace((events,), column(np.zeros(ranks), np.int32), (group,), ((0,),) * ranks, none)
    told = f"{operation} of {format_size(size_bytes)}" + f" after {format_time(seconds(pause_fs))}" * bool(pause_fs)
    return TraceWork(trace, words, measured_device("pause"), "float32", told)


def _turn_of_loop(operation: str, size_bytes: int, elements: int, pause_fs: int) -> Events:
    """Return the events of a rank in one turn of a loop: the pause, then the collective."""
    zero, none, starts = np.zeros(2), np.empty(0), np.zeros(3)
    work = ((1, 1), (Kind.COMPUTE, Kind.COLLECTIVE), zero, ("pause", operation), ("float32", "float32"), zero)
    asked = ((0, size_bytes), (0, elements), *[zero] * 5, (-1, 0), *[zero] * 3)
    events = typed_events((*work, *asked, starts, none, starts, none))
    return replace(events, lasts_s=column((pause_fs / TICKS_PER_S, 0.0), np.float64))


Work = TrainingWork | TraceWork


@dataclass(frozen=True, eq=False, slots=True)
class Job:
    """A job that shares a fabric with others: its work, its NPUs and planes where they are named, its start and its rank."""

    name: str
    work: Work
    npus: tuple[int, ...] = ()  # the NPU of each rank; (): a policy places them
    start_fs: int = 0  # ticks at which its first step begins
    weight: int = 1  # shares of a full link that each of its messages gets
    priority: int = 0  # larger goes first, where links are shared by priority
    planes: tuple[int, ...] = ()  # of the topology, over which alone it sends; (): all, or those that a setting deals to it
