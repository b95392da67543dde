"""The transfer of tasks to other links: what has left, how much of a message has passed, and what begins again.

Letter: V tasks.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emu.arrays import I64, Bool, column
from emu.errors import RunError
from emu.fabric.engine.state_layout import FLOWING, LEFT, TASK, align_records
from emu.fabric.graph import Graph

Tasks = NDArray[np.void]


def transfer_tasks(tasks: Tasks, now_fs: int, old: Graph, new: Graph, anew: Bool | None) -> tuple[Tasks, Graph]:
    """Return the tasks as they are on the links of a new graph, and that graph for the rest of their work.

    Args:
        tasks: [V] the tasks on the old links.
        now_fs: The present time: everything before it has happened.
        old: Their graph on the old links.
        new: Their graph on the new links.
        anew: [V] whether each task begins again from the start; None: no task does.

    Raises:
        RunError: The graphs have different numbers of tasks, or their waits differ and no task begins again.
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
    moved = align_records(len(tasks), TASK)
    moved["start"] = np.maximum(new.ready_fs, now_fs)
    moved[begun] = tasks[begun]
    moved["left"][begun] = _new_leave_times(moved["left"][begun], now_fs, old.alpha_fs[begun], new.alpha_fs[begun])
    return moved, replace(new, size_bytes=column(size, np.int64), alpha_fs=column(alpha, np.int64))


def _new_leave_times(left: I64, now_fs: int, old_fs: I64, new_fs: I64) -> I64:
    """Return when tasks will have left whose durations change while they run: the rest of each changes as the whole does."""
    later = np.flatnonzero((left > now_fs) & (old_fs != new_fs))
    changed = left.copy()
    changed[later] = now_fs + np.rint((left[later] - now_fs) * (new_fs[later] / old_fs[later])).astype(np.int64)
    return column(changed, np.int64)
