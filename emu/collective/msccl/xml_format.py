"""MSCCL XML, written and read: a proved schedule can run on GPUs, and a program from elsewhere can be proved and timed.

The format is that of msccl-tools (`nchunksperloop`, `step`). The meaning of a step is that of RCCL's MSCCL kernel. The
attribute `emu_round`, which other readers skip, carries the rounds. Writing loses protocol, sizes, and the rule that a rank's
own value is added at its own rank's place. Reading loses the order of unrelated steps of a threadblock. The memory of a GPU
begins with noise: an add (`rrc`) to a chunk that nothing was written to is refused in both directions.

A message is one step for each run of neighbouring chunks. A threadblock serves one (peer, channel, direction). On each GPU the
steps follow the rounds; within a round, reads come before writes and adds go by ascending rank. So no step waits for itself.
A program that was read is an algorithm of the registry, proved, shown and timed like any other.
"""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.collective.msccl.parse import COLLS, BufferLayout, Spot, parse
from emu.collective.msccl.rows import order_steps, schedule_of
from emu.collective.operation import Operation, operation
from emu.collective.proof import prove
from emu.collective.schedule import Schedule
from emu.collective.shape import Shape
from emu.errors import InputError, must_be
from emu.files import read_input
from emu.registry import filing

Seat = tuple[int, int, int]  # a threadblock's connection: GPU it sends to, GPU it receives from (-1: none), channel
_LOCAL: Seat = (-1, -1, 0)


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring chunks that one step sends and one step receives together."""

    src: int
    dst: int
    channel: int
    adds: bool
    source: Spot
    target: Spot
    count: int = 1


def write(schedule: Schedule, wanted: Operation, name: str) -> str:
    """Return the XML text of a schedule that has every row stored and that MSCCL can express."""
    in_place = wanted.name != "all_to_all"
    layout = BufferLayout(wanted.name, schedule.n_ranks, schedule.n_slots // wanted.n_blocks, in_place)
    gpus = [_Gpu(layout, rank) for rank in range(layout.n)]
    for moment, rows in enumerate(schedule.rounds()):
        runs = list(_runs(schedule, rows, gpus))
        for run in runs:
            gpus[run.src].send(run, moment)
        for run in runs:
            gpus[run.dst].receive(run, moment)
    attributes: dict[str, str | int] = {
        "name": name,
        "proto": "Simple",
        "nchannels": int(schedule.channel.max(initial=0)) + 1,
        "nchunksperloop": layout.chunks,
        "ngpus": layout.n,
        "coll": COLLS[layout.operation],
        "inplace": int(in_place),
    }
    root = _element("algo", attributes)
    root.extend(gpu.element() for gpu in gpus)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode")


def _element(tag: str, attributes: dict[str, str | int]) -> ET.Element:
    """Return an XML element with attributes written as text."""
    return ET.Element(tag, {key: str(value) for key, value in attributes.items()})


def _runs(schedule: Schedule, rows: slice, gpus: list["_Gpu"]) -> Iterator[_Run]:
    """Yield the runs of a round, each for one step of MSCCL.

    A run is the rows of one (src, dst, channel) whose slots lie one after another in the buffers of both GPUs.
    """
    columns = (schedule.src, schedule.dst, schedule.channel, schedule.reduce, schedule.slot)
    sent = zip(*(c[rows].tolist() for c in columns), strict=True)
    chunks = [_Run(src, dst, c, adds, gpus[src].spot(slot), gpus[dst].spot(slot)) for src, dst, c, adds, slot in sent]

    def lane(numbered: tuple[int, _Run]) -> tuple[object, ...]:
        i, one = numbered
        (read, first), (written, second) = one.source, one.target
        return one.src, one.dst, one.channel, one.adds, read, first - i, written, second - i

    for _, group in groupby(enumerate(chunks), key=lane):
        run = [chunk for _, chunk in group]
        yield replace(run[0], count=len(run))


@dataclass(slots=True)
class _Gpu:
    """A GPU's threadblocks while they grow, and which of their steps touched each chunk last."""

    layout: BufferLayout
    rank: int
    blocks: dict[Seat, list[ET.Element]] = field(default_factory=dict)
    scratch: dict[int, int] = field(default_factory=dict)  # scratch chunk of each slot that this GPU only relays
    writer: dict[Spot, tuple[Seat, int]] = field(default_factory=dict)
    readers: dict[Spot, list[tuple[Seat, int]]] = field(default_factory=dict)
    waited: dict[tuple[Seat, Seat], int] = field(default_factory=dict)  # last step of the second that the first awaits

    def __post_init__(self) -> None:
        """Copy a rank's own block, if the program is not in place."""
        if not self.layout.in_place:
            first = self.rank * self.layout.parts
            self._add("cpy", _LOCAL, ("i", first), ("o", first), self.layout.parts, None)

    def spot(self, slot: int) -> Spot:
        """Return the buffer and the index of the chunk in which a slot is on this GPU."""
        if self.layout.operation != "all_to_all":
            return ("o" if self.layout.operation == "all_gather" else "i"), slot
        item, part = divmod(slot, self.layout.parts)
        source, sink = divmod(item, self.layout.n)
        if sink == self.rank:
            return "o", source * self.layout.parts + part
        if source == self.rank:
            return "i", sink * self.layout.parts + part
        return "s", self.scratch.setdefault(slot, len(self.scratch))

    def send(self, run: _Run, moment: int) -> None:
        """Add a step that sends a run of neighbouring chunks in round `moment`."""
        self._add("s", (run.dst, -1, run.channel), run.source, run.target, run.count, moment)

    def receive(self, run: _Run, moment: int) -> None:
        """Add a step that receives a run of chunks; if the step adds, it also reads the GPU's own chunks."""
        kind, source = ("rrc", run.target) if run.adds else ("r", run.source)
        self._add(kind, (-1, run.src, run.channel), source, run.target, run.count, moment)

    def _add(self, kind: str, seat: Seat, source: Spot, target: Spot, count: int, moment: int | None) -> None:
        """Append a step to a threadblock, and note what it reads and writes.

        A step awaits at most one other; where it must await several, empty steps before it await the others.
        """
        steps = self.blocks.setdefault(seat, [])
        awaited = self._awaited(seat, kind, source, target, count)
        for other in awaited[:-1]:  # a step awaits one other
            steps.append(self._step(len(steps), "nop", ("i", -1), ("o", -1), 0, other))
        step = self._step(len(steps), kind, source, target, count, awaited[-1] if awaited else None)
        if moment is not None:
            step.set("emu_round", str(moment))
        steps.append(step)
        here = seat, len(steps) - 1
        for spot in _spots(target, count) if kind != "s" else ():
            self.writer[spot] = here
            self.readers[spot] = []
        for spot in _spots(source, count) if kind in ("s", "cpy") else ():
            self.readers.setdefault(spot, []).append(here)

    def _awaited(self, seat: Seat, kind: str, source: Spot, target: Spot, count: int) -> list[tuple[Seat, int]]:
        """Return the steps for which a new step must wait: the last one of each other threadblock, if not awaited yet."""
        over = [self.writer[s] for s in _spots(source if kind == "s" else target, count) if s in self.writer]
        over += [step for s in _spots(target, count) for step in self.readers.get(s, ()) if kind != "s"]
        last: dict[Seat, int] = {}
        for other, step in over:
            if other != seat and step > self.waited.get((seat, other), -1):
                last[other] = max(step, last.get(other, -1))
        self.waited.update({(seat, other): step for other, step in last.items()})
        return list(last.items())

    def _step(
        self, index: int, kind: str, source: Spot, target: Spot, count: int, awaited: tuple[Seat, int] | None
    ) -> ET.Element:
        """Return a step's element, and set `hasdep` on the step that it awaits.

        A threadblock's number is its place in `blocks`.
        """
        block, step = (list(self.blocks).index(awaited[0]), awaited[1]) if awaited else (-1, -1)
        if awaited:
            self.blocks[awaited[0]][step].set("hasdep", "1")
        attributes: dict[str, str | int] = {"s": index, "type": kind, "srcbuf": source[0], "srcoff": source[1]}
        attributes |= {"dstbuf": target[0], "dstoff": target[1], "cnt": count, "depid": block, "deps": step, "hasdep": 0}
        return _element("step", attributes)

    def element(self) -> ET.Element:
        """Return the GPU's element with its threadblocks."""
        sizes = {"i_chunks": self.layout.inputs, "o_chunks": self.layout.outputs, "s_chunks": len(self.scratch)}
        gpu = _element("gpu", {"id": self.rank, **sizes})
        for number, ((to, source, channel), steps) in enumerate(self.blocks.items()):
            block = _element("tb", {"id": number, "send": to, "recv": source, "chan": channel})
            block.extend(steps)
            gpu.append(block)
        return gpu


def _spots(first: Spot, count: int) -> list[Spot]:
    """Return `count` consecutive chunks of a buffer."""
    return [(first[0], first[1] + i) for i in range(count)]


def to_xml(schedule: Schedule, wanted: Operation, name: str) -> str:
    """Return a schedule of operation `wanted` as an MSCCL program called `name`. It is in place, but for an all_to_all.

    Raises:
        InputError: MSCCL cannot express it: a rooted or unknown operation, helpers (which begin at zero), unequal shares,
            renamed or spare slots.
        ProofError: It does not do the operation. The order of sums is not checked, because MSCCL leaves it open.
    """
    if wanted.name not in COLLS:
        raise must_be("msccl", "operation", f"one of {', '.join(COLLS)}", wanted.name, "MSCCL XML has no root and no others")
    _refuse_unsayable(schedule)
    prove(schedule, wanted, same_bits=False)
    return write(schedule.expand(), wanted, name)


def from_xml(text: str) -> tuple[Schedule, Operation]:
    """Return the schedule of an MSCCL program, and the operation that the program claims to do (a proof checks it).

    Rounds are those of `emu_round`, else as early as the data allows.

    Raises:
        InputError: The text is no such program, the collective is rooted, or steps match no others, wait for one another or
            race for a chunk. The message names GPU, threadblock and step.
    """
    layout, steps, _ = parse(text)
    return schedule_of(layout, order_steps(steps)), operation(layout.operation, layout.n)


def _refuse_unsayable(schedule: Schedule) -> None:
    """Check that a schedule has nothing that MSCCL XML cannot express, such as helpers."""
    said = {
        "helpers that begin at zero and add": schedule.helpers > 0,
        "unequal shares": len(set(schedule.shares)) > 1,
        "renamed slots": schedule.dst_slot is not None,
        "spare slots": bool(schedule.temps),
    }
    for what, there in said.items():
        if there:
            raise InputError(f"msccl: the schedule has {what}, which MSCCL XML cannot say; export one without")


def file_program(path: Path) -> Algorithm:
    """File the MSCCL program of a file as an algorithm, and return it.

    Its name is the one in the file, else the file's own. It takes the program's number of ranks and no other. It makes no
    claim, because a program says what is sent, not how fast.

    Raises:
        InputError: The file cannot be read, its name is taken, or see `from_xml`.
    """
    layout, steps, name = parse(_text(path))
    schedule, n = schedule_of(layout, order_steps(steps)), layout.n

    def build(ranks: int) -> Schedule:
        return schedule

    def shapes(ranks: int) -> Iterator[Shape]:
        if ranks == n:
            yield n

    summary = f"Read from {path.name}: MSCCL, {n} ranks."
    found = Algorithm(layout.operation, name or path.stem, build, None, summary, shapes)
    with filing(path):
        ALGORITHMS.file(found.key, found)
    return found


def _text(path: Path) -> str:
    """Return the text of the file that `--import` names."""
    try:
        return read_input("--import", path, mend="write the algorithm in Python by @collective").decode()
    except UnicodeDecodeError:
        raise InputError(f"--import: cannot read {str(path)!r}: it is no text; give the path of an MSCCL XML file") from None
