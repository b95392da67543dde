"""The buffers of MSCCL: which chunks of a GPU's input, output and scratch buffers are which slots of a schedule."""

from dataclasses import dataclass

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
        """The number of chunks of an input buffer."""
        return self.parts if self.operation == "all_gather" else self.chunks

    @property
    def outputs(self) -> int:
        """The number of chunks of an output buffer."""
        return self.parts if self.operation == "reduce_scatter" else self.chunks

    def input_slot(self, rank: int, chunk: int) -> int:
        """Return the slot that a chunk of a rank's input holds."""
        return chunk + rank * {"all_gather": self.parts, "all_to_all": self.chunks}.get(self.operation, 0)

    def output_slot(self, rank: int, chunk: int) -> int:
        """Return the slot that a chunk of a rank's output is to hold."""
        if self.operation == "all_to_all":
            source, part = divmod(chunk, self.parts)
            return (source * self.n + rank) * self.parts + part
        return chunk + (rank * self.parts if self.operation == "reduce_scatter" else 0)

    def home(self, rank: int, spot: Spot) -> Spot:
        """Return the one name of a chunk that has two names where input and output are one buffer."""
        buffer, chunk = spot
        if not self.in_place or buffer == "s":
            return spot
        if self.operation == "all_gather":
            return ("o", rank * self.parts + chunk) if buffer == "i" else spot
        if buffer == "o" and self.operation == "reduce_scatter":
            return "i", rank * self.parts + chunk
        return "i", chunk
