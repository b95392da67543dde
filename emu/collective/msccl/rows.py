"""The conversion of an MSCCL program to rows of a schedule, with an execution order and a check for races.

A chunk is named by the data it holds: a slot, if no other chunk of that GPU holds it, else a spare slot. So a copy within a
GPU is only another chunk with the same name, until one of the two is added to.
"""

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from emu.arrays import I64
from emu.collective.msccl.parse import RECEIVES, SENDS, BufferLayout, ProgramStep, Spot
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError, must_be

Lane = tuple[int, int, int]  # src, dst, channel


def order_steps(steps: list[ProgramStep]) -> list[ProgramStep]:
    """Return the steps in an order in which they may run.

    Each step follows those before it in its threadblock, the step that it awaits, and the send that it receives.

    Raises:
        InputError: Sends and receives do not match, a step waits for a missing step or in a circle, or two steps race for a
            chunk.
    """
    before = _steps_before(steps)
    after: dict[int, list[int]] = defaultdict(list)
    for i, earlier in enumerate(before):
        for j in earlier:
            after[j].append(i)
    missing = [len(earlier) for earlier in before]
    order = [i for i, count in enumerate(missing) if not count]
    for i in order:  # grows as steps become free
        for j in after[i]:
            missing[j] -= 1
            if not missing[j]:
                order.append(j)
    stuck = next((steps[i] for i, count in enumerate(missing) if count), None)
    if stuck is not None:
        raise InputError(f"{stuck.place}: it can never start, since it waits for itself through others; mend depid and deps")
    _refuse_races(steps, before, order)
    return [steps[i] for i in order]


def _steps_before(steps: list[ProgramStep]) -> list[list[int]]:
    """Return, for each step, the indices of the steps that it must follow."""
    number = {(s.gpu, s.block, s.index): i for i, s in enumerate(steps)}
    sent: dict[Lane, list[int]] = defaultdict(list)
    for i, step in enumerate(steps):
        if step.kind in SENDS:
            sent[step.gpu, step.sends_to, step.channel].append(i)
    taken: dict[Lane, int] = defaultdict(int)
    before: list[list[int]] = []
    for step in steps:
        before.append([number[step.gpu, step.block, step.index - 1]] if step.index else [])
        if step.awaits is not None:
            if (step.gpu, *step.awaits) not in number:
                raise must_be(step.place, "depid and deps", "a threadblock of its GPU and one of its steps", step.awaits)
            before[-1].append(number[(step.gpu, *step.awaits)])
        if step.kind in RECEIVES:
            lane = step.receives_from, step.gpu, step.channel
            before[-1].append(_match(steps, step, sent[lane], taken[lane]))
            taken[lane] += 1
    for lane, sends in sent.items():
        if len(sends) > taken[lane]:
            raise InputError(f"{steps[sends[taken[lane]]].place}: what it sends to gpu {lane[1]} is never received")
    return before


def _match(steps: list[ProgramStep], step: ProgramStep, sends: list[int], taken: int) -> int:
    """Return the number of the send that a receiving step takes.

    Args:
        steps: All steps.
        step: The receiving step.
        sends: The sends of its lane: those of one GPU to the other on one channel.
        taken: The number of these sends that have receivers already.
    """
    if taken >= len(sends):
        raise InputError(f"{step.place}: gpu {step.receives_from} sends nothing for it on channel {step.channel}")
    sender = steps[sends[taken]]
    if sender.count != step.count:
        raise must_be(step.place, "cnt", f"the {sender.count} of {sender.place.removeprefix('msccl: ')}", step.count)
    return sends[taken]


def _refuse_races(steps: list[ProgramStep], before: list[list[int]], order: list[int]) -> None:
    """Check that of two steps that use one chunk, at least one of which writes it, one must precede the other.

    The steps that precede a step are a set of bits in one integer.
    """
    past = [0] * len(steps)
    writer: dict[tuple[int, Spot], int] = {}
    readers: dict[tuple[int, Spot], list[int]] = defaultdict(list)
    for i in order:
        step = steps[i]
        for j in before[i]:
            past[i] |= past[j] | 1 << j
        for spots, writes in ((step.reads, False), (step.writes, True)):
            for spot in spots:
                chunk = step.gpu, spot
                others = [writer[chunk]] if chunk in writer else []
                others += readers[chunk] if writes else []
                for j in others:
                    if j != i and not past[i] >> j & 1:
                        raise _race(step, steps[j], spot)
                if writes:
                    writer[chunk], readers[chunk] = i, []
                else:
                    readers[chunk].append(i)


def _race(step: ProgramStep, other: ProgramStep, spot: Spot) -> InputError:
    """Return the error for two steps that use a chunk in no fixed order."""
    return InputError(
        f"{step.place}: {spot[0]}[{spot[1]}] is also used by {other.place.removeprefix('msccl: ')}, before or after; one must "
        "await the other with depid and deps"
    )


Cell = tuple[int, int]  # rank, slot


_Edge = tuple[int, int, int]  # an earlier row, a later row, and the least number of rounds between them


@dataclass(slots=True)
class _Row:
    """A row of the schedule under construction: the slot that `src` sends; it is complete when its receiver is known.

    `place` is the text by which errors name the step that sends it.
    """

    src: int
    slot: int
    channel: int
    place: str
    round: int | None = None
    dst: int = -1  # -1 until the row is received
    dst_slot: int = -1
    adds: bool = False


@dataclass(slots=True)
class _LastAccesses:
    """The steps that last wrote a cell (a chunk of a rank), and the steps that have read it since then."""

    writes: list[int] = field(default_factory=list)
    adds: bool = False
    before: list[tuple[int, int]] = field(default_factory=list)  # (row that each of those writes must follow, rounds)
    reads: list[int] = field(default_factory=list)


def schedule_of(layout: BufferLayout, steps: list[ProgramStep]) -> Schedule:
    """Return the schedule that does the same as the given steps, which are in an executable order.

    Raises:
        InputError: A step reads a chunk that nothing wrote, an output is never written, or the rounds in the file are
            impossible.
    """
    reader = _Reader(layout)
    for step in steps:
        reader.run(step)
    reader.finish()
    moments = _rounds(reader.rows, reader.edges)
    columns = [(r.src, r.dst, r.slot, r.adds, r.channel, r.dst_slot) for r in reader.rows]
    table = np.array(columns, np.int64).reshape(-1, 6)
    sends = (Sends(*table[moments == moment].T) for moment in np.unique(moments))
    return Schedule.build(layout.n, layout.n_slots, sends, temps=reader.spares)


class _Reader:
    """A symbolic run of the steps: the slot of each chunk, the rows so far, and the order between rows."""

    def __init__(self, layout: BufferLayout) -> None:
        self.layout = layout
        self.rows: list[_Row] = []
        self.edges: list[_Edge] = []
        self.spares: list[int] = []  # for each spare slot, the slot that it stands for
        self.held: Counter[Cell] = Counter()  # number of chunks that hold the cell
        self.name: dict[tuple[int, Spot], int] = {}
        self.touched: dict[Cell, _LastAccesses] = defaultdict(_LastAccesses)
        self.in_flight: dict[tuple[int, int, int], deque[list[int]]] = defaultdict(deque)
        for rank in range(layout.n):
            for chunk in range(layout.inputs):
                self._hold(rank, layout.home(rank, ("i", chunk)), layout.input_slot(rank, chunk))

    def run(self, step: ProgramStep) -> None:
        """Process one step: its receive, its copy or addition within its GPU, and its send."""
        rank, targets = step.gpu, step.writes
        if step.kind == "rrs":  # its sum is sent, not stored
            targets = tuple(("rrs", i) for i in range(step.count))
        self._run_within(step, targets)
        if step.kind in RECEIVES:
            arrived = self.in_flight[step.receives_from, rank, step.channel].popleft()
            for row, target in zip(arrived, targets, strict=True):
                self._write(step, row, target, adds=step.kind in ("rrc", "rrs", "rrcs"))
        if step.kind in SENDS:
            sent = [self._read(step, spot, step.channel) for spot in (step.reads if step.kind == "s" else targets)]
            self.in_flight[rank, step.sends_to, step.channel].append(sent)
        if step.kind == "rrs":
            for target in targets:
                self._release(rank, target)

    def _run_within(self, step: ProgramStep, targets: tuple[Spot, ...]) -> None:
        """Process the part of a step within its GPU: `cpy` copies chunks, and `re` adds them.

        A step that adds what it receives (`rrc`, `rrcs`, `rrs`) only copies here: each target gets the value of its source, and
        `run` then adds to it. Other kinds do nothing here.

        Args:
            step: The step.
            targets: The chunks that get the values, one for each chunk that the step reads.
        """
        if step.kind in ("cpy", "rrc", "rrcs", "rrs", "re"):
            for source, target in zip(step.reads, targets, strict=True):
                if step.kind == "re":
                    self._write(step, self._read(step, source, 0), target, adds=True)
                else:
                    self._alias(step, source, target)

    def finish(self) -> None:
        """Copy outputs that are held in other slots to their own slots, in one last round."""
        moved: list[tuple[int, Cell]] = []
        for rank in range(self.layout.n):
            for chunk in range(self.layout.outputs):
                spot, slot = self.layout.home(rank, ("o", chunk)), self.layout.output_slot(rank, chunk)
                name = self.name.get((rank, spot))
                if name is None:
                    raise InputError(f"msccl: gpu {rank}: output chunk {chunk} is never written; it must be slot {slot}")
                if name != slot:
                    moved.append((self._row(rank, name, 0, f"msccl: gpu {rank}: output chunk {chunk}"), (rank, slot)))
        for row, (rank, slot) in moved:
            self._fill(row, rank, slot, adds=False)

    def _hold(self, rank: int, spot: Spot, slot: int) -> None:
        """Record that the value of a chunk is now in a slot of the schedule."""
        self.name[rank, spot] = slot
        self.held[rank, slot] += 1

    def _release(self, rank: int, spot: Spot) -> None:
        """Record that a chunk no longer has the value of its slot, because a step overwrites it."""
        if (rank, spot) in self.name:
            self.held[rank, self.name.pop((rank, spot))] -= 1

    def _slot(self, step: ProgramStep, spot: Spot) -> int:
        """Return the slot with the value of a chunk that a step reads."""
        if (step.gpu, spot) not in self.name:
            raise InputError(f"{step.place}: it reads {spot[0]}[{spot[1]}], which nothing wrote")
        return self.name[step.gpu, spot]

    def _alias(self, step: ProgramStep, source: Spot, target: Spot) -> None:
        """Give a target chunk the name of a source chunk: a copy within a rank needs no row."""
        slot = self._slot(step, source)
        if source != target:
            self._release(step.gpu, target)
            self._hold(step.gpu, target, slot)

    def _read(self, step: ProgramStep, spot: Spot, channel: int) -> int:
        """Add the row of a step that sends a chunk, and return the row's number."""
        return self._row(step.gpu, self._slot(step, spot), channel, step.place)

    def _row(self, rank: int, slot: int, channel: int, place: str) -> int:
        """Add a row that sends a slot of a rank after the writes to that slot, and return its number."""
        row = len(self.rows)
        self.rows.append(_Row(rank, slot, channel, place))
        touched = self.touched[rank, slot]
        self.edges += [(write, row, 1) for write in touched.writes]
        touched.reads.append(row)
        return row

    def _write(self, step: ProgramStep, row: int, target: Spot, *, adds: bool) -> None:
        """Record that the value which a row brings is written into a chunk, or is added to it."""
        rank = step.gpu
        self.rows[row].place, self.rows[row].round = step.place, step.round
        if adds:
            self._make_own(step, target)
        else:
            self._release(rank, target)
            self._hold(rank, target, self._free(rank, self.rows[row].slot))
        if (self.rows[row].src, self.rows[row].slot) == (rank, self.name[rank, target]):
            raise InputError(f"{step.place}: it adds {target[0]}[{target[1]}] to itself; add another chunk")
        self._fill(row, rank, self.name[rank, target], adds=adds)

    def _make_own(self, step: ProgramStep, spot: Spot) -> None:
        """Move a chunk that a step adds to into a slot that no other chunk uses."""
        rank, slot = step.gpu, self._slot(step, spot)
        if self.held[rank, slot] > 1:
            row = self._row(rank, slot, 0, step.place)
            self._release(rank, spot)
            self._hold(rank, spot, self._free(rank, slot))
            self._fill(row, rank, self.name[rank, spot], adds=False)

    def _free(self, rank: int, slot: int) -> int:
        """Return the given slot, or the first of its spare slots, that no chunk of the rank uses."""
        real = slot if slot < self.layout.n_slots else self.spares[slot - self.layout.n_slots]
        names = [real, *(self.layout.n_slots + i for i, of in enumerate(self.spares) if of == real)]
        found = next((name for name in names if not self.held[rank, name]), None)
        if found is None:
            self.spares.append(real)
            found = self.layout.n_slots + len(self.spares) - 1
        return found

    def _fill(self, row: int, rank: int, slot: int, *, adds: bool) -> None:
        """Set the cell that a row writes, and order the row after all rows that have used the cell before."""
        self.rows[row].dst, self.rows[row].dst_slot, self.rows[row].adds = rank, slot, adds
        touched = self.touched[rank, slot]
        if not (adds and touched.adds and not touched.reads):
            touched.before = [(write, 1) for write in touched.writes] + [(read, 0) for read in touched.reads]
            touched.writes, touched.reads, touched.adds = [], [], adds
        self.edges += [(earlier, row, rounds) for earlier, rounds in touched.before]
        touched.writes.append(row)


def _rounds(rows: list[_Row], edges: list[_Edge]) -> I64:
    """Return the round of each row: from the file if it has all rounds, else the earliest possible round."""
    earlier, later, apart = np.array(edges, np.int64).reshape(-1, 3).T
    given = [row.round for row in rows]
    if None not in given:
        moments = np.array(given, np.int64)
        _refuse_early(rows, moments, later, moments[earlier] + apart)
        return moments
    moments = np.zeros(len(rows), np.int64)
    while True:
        due = moments.copy()
        np.maximum.at(due, later, moments[earlier] + apart)
        if np.array_equal(due, moments):
            return moments
        if due.max() >= len(rows):
            place = rows[int(due.argmax())].place
            raise InputError(f"{place}: what it receives is in flight while its source is overwritten; receive it before")
        moments = due


def _refuse_early(rows: list[_Row], moments: I64, later: I64, due: I64) -> None:
    """Raise the error for the first row with an `emu_round` earlier than its predecessors allow."""
    early = np.flatnonzero(moments[later] < due)
    if len(early):
        row = later[early[0]]
        raise InputError(
            f"{rows[row].place}: emu_round must be {due[early[0]]} or more, got {moments[row]}; leave emu_round out of the "
            "file to have rounds found"
        )
