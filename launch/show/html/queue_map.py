"""The HTML drawing of a run by packets over time: the queue of each port, and the ports that are paused.

Each end of a cable is the port of the node beside it. L links, Q queues, T samples, F moments that are shown, C cables.
"""

import json
from types import SimpleNamespace

import numpy as np

from emu.arrays import I64, Bool
from emu.study.fabric_run import FabricRun
from emu.units import format_size, format_time, seconds
from launch.show.blocks import Block, drawing_block
from launch.show.html.link_map import NOTHING, RAMP, drawn_nodes, path_of, view_of
from launch.show.picture.cables import cable_of_links, curves

_MOST_MOMENTS = 240
_WIDE = 0.11  # of a port, in gaps between nodes
_PART = 0.38  # of a cable, that is the port of one of its ends
_PAUSED = 8  # added to the level of a queue: 0 (empty) to 7 (near the fullest of the run)


def queue_map(found: FabricRun) -> Block:
    """Return the drawing of a run by packets with a slider over its time; the topology has a few hundred nodes at most."""
    topology, links = found.topology, found.topology.links
    drawn = drawn_nodes(topology)
    level, paused = moments(found)
    codes = _codes(found, level, paused)
    course = curves(links, drawn.at)
    ports = [_port(mark, course, drawn.gap) for mark in range(2 * len(course))]
    for queue, mark in enumerate(np.repeat(mark_of_links(found), found.run.lanes).tolist()):
        ports[mark].told.append(found.port(queue))
    most = int(found.run.queue_bytes.max(initial=0))
    data = SimpleNamespace(
        **view_of(drawn.low, drawn.size),
        **drawn.marks,
        cables=[path_of(each) for each in course],
        ports=ports,
        moments=len(level),
        empty=NOTHING,
        most=format_size(most),
        ramp=",".join((NOTHING, *RAMP)),
        run=_script_json({"codes": codes, "colours": [NOTHING, *RAMP], "words": _words(found, level, paused)}),
    )
    told = f"{found.name} on {topology.name}: queues and pauses over time"
    return drawing_block("queues.html", told, data)


def moments(found: FabricRun) -> tuple[I64, Bool]:
    """Return [F, Q] the most bytes in each queue at each moment that is shown, and whether it was paused in it at all.

    A moment is one interval of the samples, or several where there would be too many.
    """
    run = found.run
    n, queues = run.queue_bytes.shape
    each = max(1, -(-n // _MOST_MOMENTS))
    filled = np.zeros((-(-n // each) * each, queues), np.int64)
    filled[:n] = run.queue_bytes
    most = filled.reshape(-1, each, queues).max(axis=1)
    paused = np.zeros((len(most) + 1, queues), np.int64)
    first, last = (np.minimum(run.pauses[:, at] // (each * run.sample_fs), len(most) - 1) for at in (1, 2))
    np.add.at(paused, (first, run.pauses[:, 0]), 1)
    np.add.at(paused, (last + 1, run.pauses[:, 0]), -1)
    return most, np.cumsum(paused, axis=0)[:-1] > 0


def mark_of_links(found: FabricRun) -> I64:
    """Return [L] the mark of the port of each link, in a run by packets: the end of its cable at the node that sends.

    The mark is 2 * cable at the node with the lower number, and 2 * cable + 1 at the other node.
    """
    links = found.topology.links
    return np.asarray(2 * cable_of_links(links) + (links.src > links.dst))


def _port(mark: int, course: np.ndarray[tuple[int, ...], np.dtype[np.float64]], gap: float) -> SimpleNamespace:
    """Return the end of a cable as a mark of the drawing; `course` [C, points, 2] as `curves` returns it."""
    cable, is_high = divmod(mark, 2)
    n = max(2, round(_PART * course.shape[1]))
    part = course[cable][-n:] if is_high else course[cable][:n]
    return SimpleNamespace(number=mark, path=path_of(part), wide=round(_WIDE * gap, 4), told=[])


def _codes(found: FabricRun, level: I64, paused: Bool) -> dict[str, str]:
    """Return, for each port in which something happens, a digit for each moment: the level of its queue, + 8 if paused."""
    run, most = found.run, max(1, int(found.run.queue_bytes.max(initial=1)))
    queue_mark = np.repeat(mark_of_links(found), run.lanes)
    found_in = np.flatnonzero(level.any(axis=0) | paused.any(axis=0))
    codes: dict[int, I64] = {}
    for queue in found_in.tolist():
        bytes_at = level[:, queue]
        own = np.where(bytes_at > 0, np.minimum(1 + bytes_at * len(RAMP) // most, len(RAMP)), 0)
        before = codes.get(int(queue_mark[queue]), np.zeros_like(own))
        is_paused = paused[:, queue] | (before >= _PAUSED)
        codes[int(queue_mark[queue])] = np.maximum(own, before % _PAUSED) + _PAUSED * is_paused
    return {str(mark): "".join(f"{digit:x}" for digit in own.tolist()) for mark, own in sorted(codes.items())}


def _words(found: FabricRun, level: I64, paused: Bool) -> list[str]:
    """Return [F] a line for each moment: the time, the fullest port, and how many are paused."""
    each = max(1, -(-len(found.run.queue_bytes) // _MOST_MOMENTS)) * found.run.sample_fs
    lines = []
    for moment, (queue, stopped) in enumerate(zip(level.argmax(axis=1).tolist(), paused.sum(axis=1).tolist(), strict=True)):
        fullest = (
            f"fullest: {found.port(queue)}, {format_size(int(level[moment, queue]))}"
            if level[moment, queue]
            else "nothing waits"
        )
        lines.append(f"{format_time(seconds(moment * each))}: {fullest}; {stopped} port{'s' * (stopped != 1)} paused")
    return lines


def _script_json(data: object) -> str:
    """Return data as JSON that can stand in a script of a page."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
