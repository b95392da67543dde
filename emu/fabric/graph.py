"""Tasks with sizes, hops and predecessors: all that the engine sees.

V tasks, L links, H hops, E predecessor edges. A schedule on a placement, and a whole training step, are both just Graphs.
"""

from dataclasses import dataclass

from emu.arrays import F64, I32, I64, Bool, digest


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """Columns of tasks.

    A task with hops is a message: it may start when all its predecessors allow; its body of `size_bytes` then flows over
    its links at the max-min fair rate, has *left* when the body has, and *ends* (is delivered) `alpha_fs` later. A task
    without hops is a computation, a delay or a join: it ends, and has left, `alpha_fs` after its start.
    """

    capacity_Bps: F64  # [L] of each directed link
    size_bytes: I64  # [V] of the body; 0 without hops
    alpha_fs: I64  # [V] ticks: latency of the head, or the duration of a task without hops
    ready_fs: I64  # [V] ticks: not before this
    hop_start: I64  # [V + 1]
    hop_link: I32  # [H]
    hop_weight: I32  # [H] how many times the task's rate counts on that link (1 but in a quotient)
    pred_start: I64  # [V + 1]
    pred: I32  # [E] the task waited for
    pred_left: Bool  # [E] True: until it has left; False: until it has ended
    owner: I32  # [V] the participant that a report charges it to: the sender, the computing rank; -1: nobody
    origin: I32  # [V] where it comes from: the row of its message, the event of its trace; -1: a join

    @property
    def n_tasks(self) -> int:
        """V."""
        return len(self.size_bytes)

    @property
    def n_links(self) -> int:
        """L."""
        return len(self.capacity_Bps)

    def digest(self) -> str:
        """Equal graphs have equal digests."""
        return digest(getattr(self, name) for name in self.__slots__)
