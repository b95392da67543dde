"""The parser of an MSCCL program: from text to steps, with every number checked.

The buffers of MSCCL: which chunks of a GPU's input, output and scratch buffers are which slots of a schedule.
"""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from emu.errors import InputError, must_be

Spot = tuple[str, int]  # a place: buffer (i, o or s) and chunk
COLLS = {"all_reduce": "allreduce", "reduce_scatter": "reduce_scatter", "all_gather": "allgather", "all_to_all": "alltoall"}
OPERATIONS_OF = {coll: name for name, coll in COLLS.items()} | {"reducescatter": "reduce_scatter"}


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """The buffers of an operation among n GPUs, each block cut into `parts` chunks.

    In place, a GPU's input and output are one buffer.
    """

    operation: str
    n: int
    parts: int
    in_place: bool

    @property
    def chunks(self) -> int:
        """The number of chunks of the larger of a GPU's input and output (`nchunksperloop`)."""
        return self.parts if self.operation == "all_reduce" else self.n * self.parts

    @property
    def n_slots(self) -> int:
        """The number of slots of the schedule, K."""
        return self.n * self.chunks if self.operation == "all_to_all" else self.chunks

    @property
    def inputs(self) -> int:
        """The number of chunks of each rank's input buffer: one block for an all_gather, all blocks for other operations."""
        return self.parts if self.operation == "all_gather" else self.chunks

    @property
    def outputs(self) -> int:
        """The number of chunks of each rank's output buffer."""
        return self.parts if self.operation == "reduce_scatter" else self.chunks

    def input_slot(self, rank: int, chunk: int) -> int:
        """Return the slot whose value a chunk of a rank's input buffer has at the start."""
        return chunk + rank * {"all_gather": self.parts, "all_to_all": self.chunks}.get(self.operation, 0)

    def output_slot(self, rank: int, chunk: int) -> int:
        """Return the slot that a chunk of a rank's output is to hold."""
        if self.operation == "all_to_all":
            source, part = divmod(chunk, self.parts)
            return (source * self.n + rank) * self.parts + part
        return chunk + (rank * self.parts if self.operation == "reduce_scatter" else 0)

    def home(self, rank: int, spot: Spot) -> Spot:
        """Return the canonical name of a chunk that has two names if input and output are one buffer."""
        buffer, chunk = spot
        if not self.in_place or buffer == "s":
            return spot
        if self.operation == "all_gather":
            return ("o", rank * self.parts + chunk) if buffer == "i" else spot
        if buffer == "o" and self.operation == "reduce_scatter":
            return "i", rank * self.parts + chunk
        return "i", chunk


_MOST_CHUNKS = 2**24  # as many rows as a schedule may have
RECEIVES = frozenset({"r", "rcs", "rrc", "rrs", "rrcs"})
SENDS = frozenset({"s", "rcs", "rrs", "rrcs"})
KINDS = RECEIVES | SENDS | {"cpy", "re", "nop"}
_READS = frozenset({"s", "rrc", "rrs", "rrcs", "cpy", "re"})  # kinds that read the source chunks, on their own GPU
_WRITES = frozenset({"r", "rcs", "rrc", "rrcs", "cpy", "re"})  # kinds that write the target chunks


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """One step of a threadblock of an MSCCL program: its kind, such as `s` (send), its chunks, and the step that it awaits."""

    place: str
    gpu: int
    block: int
    index: int
    kind: str
    sends_to: int  # GPU that its threadblock sends to; -1: none
    receives_from: int  # GPU that it receives from; -1: none
    channel: int
    reads: tuple[Spot, ...]
    writes: tuple[Spot, ...]
    awaits: tuple[int, int] | None  # threadblock and step of the same GPU
    round: int | None

    @property
    def count(self) -> int:
        """The number of chunks that the step moves."""
        return max(len(self.reads), len(self.writes))


def parse(text: str) -> tuple[BufferLayout, list[ProgramStep], str]:
    """Parse an MSCCL program; return its buffers, its steps by GPU, threadblock and step, and its name.

    Raises:
        InputError: See `from_xml`.
    """
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise InputError(f"msccl: the file is no XML: {error}; give one that msccl-tools or Emu wrote") from error
    if root.tag != "algo":
        raise must_be("msccl", "outermost element", "<algo>", root.tag, "give a file that msccl-tools or Emu wrote")
    layout = _layout(root)
    gpus = {_number(gpu, "id", "msccl", 0, layout.n): gpu for gpu in root.findall("gpu")}
    if len(gpus) != len(root.findall("gpu")) or len(gpus) != layout.n:
        raise must_be("msccl", "gpu ids", f"0..{layout.n - 1}, each once", sorted(gpus))
    return layout, [step for rank in sorted(gpus) for step in _gpu_steps(layout, rank, gpus[rank])], root.get("name", "")


def _layout(root: ET.Element) -> BufferLayout:
    """Return the layout of buffers that the attributes of a program's outermost XML element describe."""
    coll = root.get("coll", "")
    if coll not in OPERATIONS_OF:
        raise must_be("msccl", "coll", f"one of {', '.join(OPERATIONS_OF)}", coll, "rooted and custom ones are not read")
    n = _number(root, "ngpus", "msccl", 1, 2**15)
    chunks = _number(root, "nchunksperloop", "msccl", 1, _MOST_CHUNKS // n + 1)
    name = OPERATIONS_OF[coll]
    blocks = 1 if name == "all_reduce" else n
    if chunks % blocks:
        raise must_be("msccl", "nchunksperloop", f"a multiple of the {n} GPUs of an {coll}", chunks)
    return BufferLayout(name, n, chunks // blocks, bool(_number(root, "inplace", "msccl", 0, 2, default=0)))


def _gpu_steps(layout: BufferLayout, rank: int, gpu: ET.Element) -> list[ProgramStep]:
    """Return the steps of one GPU, one threadblock after another."""
    where = f"msccl: gpu {rank}"
    scratch = _number(gpu, "s_chunks", where, 0, _MOST_CHUNKS, default=0)
    sizes = {"i": layout.inputs, "o": layout.outputs, "s": scratch}
    steps: list[ProgramStep] = []
    blocks: dict[tuple[str, int, int], int] = {}  # which threadblock has a connection: direction, peer, channel
    numbers = []
    for element in gpu.findall("tb"):
        numbers.append(_number(element, "id", where, 0, 2**15))
        block = _Block.read(element, layout, rank, numbers[-1], sizes)
        steps += block.steps(element)
        for way, peer in (("send", block.sends_to), ("recv", block.receives_from)):
            other = blocks.setdefault((way, peer, block.channel), block.number)
            if peer >= 0 and other != block.number:
                raise must_be(f"{block.where}: {way}", "peer and channel", f"other than threadblock {other}'s", peer)
    if len(set(numbers)) != len(numbers):
        raise must_be(where, "threadblock ids", "each once", numbers)
    return steps


@dataclass(frozen=True, slots=True)
class _Block:
    """A threadblock of a program while it is parsed: its number, its channel, and the GPUs that it sends to and receives from.

    Its steps are checked against these, and against the sizes of the buffers.
    """

    where: str
    layout: BufferLayout
    rank: int
    number: int
    sizes: dict[str, int]
    sends_to: int
    receives_from: int
    channel: int

    @staticmethod
    def read(element: ET.Element, layout: BufferLayout, rank: int, number: int, sizes: dict[str, int]) -> "_Block":
        """Return the threadblock of a `tb` element, after a check of its peers and its channel."""
        where = f"msccl: gpu {rank}, threadblock {number}"
        sends_to, receives_from = (_number(element, way, where, -1, layout.n) for way in ("send", "recv"))
        if rank in (sends_to, receives_from):
            raise must_be(where, "peer", "another GPU", rank)
        channel = _number(element, "chan", where, 0, 2**15, default=0)
        return _Block(where, layout, rank, number, sizes, sends_to, receives_from, channel)

    def steps(self, element: ET.Element) -> list[ProgramStep]:
        """Return the steps of the threadblock, which must be numbered 0, 1, 2, ..."""
        found = [self._step(index, step) for index, step in enumerate(element.findall("step"))]
        if not found and len(element):
            raise must_be(self.where, "elements", "<step>", element[0].tag)
        return found

    def _step(self, index: int, step: ET.Element) -> ProgramStep:
        """Return one step of the threadblock."""
        where, kind = f"{self.where}, step {index}", step.get("type", "")
        _number(step, "s", where, index, index + 1)
        if kind not in KINDS:
            raise must_be(where, "type", f"one of {', '.join(sorted(KINDS))}", kind)
        if (kind in SENDS and self.sends_to < 0) or (kind in RECEIVES and self.receives_from < 0):
            raise must_be(where, "type", "one that its threadblock has a peer for", kind)
        awaits = _number(step, "depid", where, -1, 2**15, default=-1), _number(step, "deps", where, -1, 2**31, default=-1)
        return ProgramStep(
            where,
            self.rank,
            self.number,
            index,
            kind,
            self.sends_to,
            self.receives_from,
            self.channel,
            self._chunks(step, "src", where) if kind in _READS else (),
            self._chunks(step, "dst", where) if kind in _WRITES else (),
            awaits if awaits[0] >= 0 else None,
            _number(step, "emu_round", where, 0, 2**31) if "emu_round" in step.attrib else None,
        )

    def _chunks(self, step: ET.Element, side: str, where: str) -> tuple[Spot, ...]:
        """Return the chunks that a step reads (`src`) or writes (`dst`), by their names in the layout."""
        buffer = step.get(f"{side}buf", "")
        if buffer not in self.sizes:
            raise must_be(where, f"{side}buf", "i, o or s", buffer)
        count = _number(step, "cnt", where, 1, _MOST_CHUNKS, default=1)
        first, size = _number(step, f"{side}off", where, 0, _MOST_CHUNKS), self.sizes[buffer]
        if first + count > size:
            raise must_be(where, f"{side}off and cnt", f"within the {size} chunks of {buffer}", f"{first} and {count}")
        return tuple(self.layout.home(self.rank, (buffer, first + i)) for i in range(count))


def _number(element: ET.Element, name: str, where: str, low: int, end: int, *, default: int | None = None) -> int:
    """Return the integer in an attribute of an XML element, after the check that it is within low..end-1."""
    text = element.get(name, None if default is None else str(default))
    try:
        value = int(text if text is not None else "")
    except ValueError:
        value = low - 1
    if not low <= value < end:
        raise must_be(where, name, f"a whole number of {low}..{end - 1}", "nothing" if text is None else text)
    return value
