"""The names of the tasks of a lowered schedule, for error messages."""

import numpy as np

from emu.collective.schedule import Schedule
from emu.fabric.graph import Graph


def message_name(schedule: Schedule, graph: Graph, task: int) -> str:
    """Return the name of a task, such as `the message from rank 1 to rank 2 in round 3 (row 40)`.

    Args:
        schedule: The schedule that was lowered. With translations its rows are those of rank 0, and the task's owner gives the
            rank.
        graph: The graph that it became.
        task: The number of the task in the graph.
    """
    row, sender = int(graph.origin[task]), int(graph.owner[task])
    if row < 0:
        return f"a turn of an optical switch (task {task})" if graph.alpha_fs[task] else f"task {task}, where messages meet,"
    receiver, stored = int(schedule.dst[row]), ""
    if schedule.translate:
        receiver, stored = int(schedule.translations.rank(receiver, sender)), " of rank 0's"
    src, dst = (f"rank {p}" if p < schedule.n_ranks else f"helper {p - schedule.n_ranks}" for p in (sender, receiver))
    at = f"in round {np.searchsorted(schedule.round_end, row, side='right')} (row {row}{stored})"
    if sender == receiver:
        return f"the copy within {src} {at}"
    overhead = "the send overhead of " if graph.hop_start[task] == graph.hop_start[task + 1] else ""
    return f"{overhead}the message from {src} to {dst} {at}"
