"""Tasks that go on over other links: what has left, what has passed of a message, and what begins anew.

V tasks.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emu.arrays import I64, Bool, column
from emu.errors import RunError
from emu.fabric.engine.layout import FLOWING, LEFT, TASK, aligned
from emu.fabric.graph import Graph

Tasks = NDArray[np.void]


def carried_on(tasks: Tasks, now_fs: int, old: Graph, new: Graph, anew: Bool | None) -> tuple[Tasks, Graph]:
    """The tasks as they are on the links of a new graph, and that graph for what is left of them.

    Args:
        tasks: [V] on the old links.
        now_fs: What happens before it has happened.
        old: What they were.
        new: What they are from now on.
        anew: [V] which begin anew, whatever has happened of them; None: none.

    Raises:
        RunError: the graphs are not of as many tasks, or none begins anew and they do not wait for one another as before.
    """
    alike = np.array_equal(old.pred_start, new.pred_start) and np.array_equal(old.pred, new.pred)
    if old.n_tasks != new.n_tasks or not (alike or anew is not None):
        raise RunError("solver: tasks can be moved only to links on which they wait for one another as before")
    again = np.zeros(len(tasks), np.bool_) if anew is None else anew
    begun = (tasks["state"] == LEFT) & (tasks["start"] < now_fs) & ~again
    flows = (tasks["state"] == FLOWING) & ~again
    on_its_way = begun & (np.diff(new.hop_start) > 0)  # with the latency of the links that it has left over
    size, alpha = new.size_bytes.copy(), np.where(on_its_way, old.alpha_fs, new.alpha_fs)
    passed = tasks["rate"] * (now_fs - tasks["since"])
    size[flows] = np.maximum(1, np.ceil(tasks["remaining"] - passed)[flows])
    moved = aligned(len(tasks), TASK)
    moved["start"] = np.maximum(new.ready_fs, now_fs)
    moved[begun] = tasks[begun]
    moved["left"][begun] = _left(moved["left"][begun], now_fs, old.alpha_fs[begun], new.alpha_fs[begun])
    return moved, replace(new, size_bytes=column(size, np.int64), alpha_fs=column(alpha, np.int64))


def _left(left: I64, now_fs: int, old_fs: I64, new_fs: I64) -> I64:
    """When tasks will have left whose durations change under way: what is left of each changes as the whole does."""
    later = np.flatnonzero((left > now_fs) & (old_fs != new_fs))
    changed = left.copy()
    changed[later] = now_fs + np.rint((left[later] - now_fs) * (new_fs[later] / old_fs[later])).astype(np.int64)
    return column(changed, np.int64)
