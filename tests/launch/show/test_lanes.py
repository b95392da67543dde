"""A lane a rank and stream, and a lane a busy link: what was going on in each, and when."""

import numpy as np
import pytest

from emu.fabric.run import run_graph
from emu.trace.report.spans import merged
from emu.trace.trace import Group
from launch.show.lanes import Lane, lanes
from tests.trace.laid import MS_OF_FLOATS, Words, replayed, trace_of
from topologies.simple import full_mesh

MS = 10**12
MESH = full_mesh(3, 1e9, 0)


def drawn(trace):
    laid = replayed(trace, MESH)
    found = list(lanes(trace, laid, run_graph(laid.graph), MESH))
    return {(lane.owner, lane.stream): told(lane) for lane in found}


def told(lane):
    """Name, start and end in ms of each span."""
    return list(zip(lane.names, (lane.start / MS).tolist(), (lane.end / MS).tolist(), strict=True))


def test_each_rank_has_a_lane_for_computing_and_one_for_each_axis():
    """Ranks 0 and 1 reduce along tp from 2 to 8 ms, 0 and 2 along an axis without a name, from 3 to 5; set-up has no span."""
    words, groups = Words(), (Group("tp", (0, 1)), Group("", (0, 2)))
    zero = (
        words.compute(9, step=0), words.collective(8, step=0), words.compute(2, name="aten.mul"),
        words.collective(6 * MS_OF_FLOATS, instance=1), words.compute(1),
        words.collective(2 * MS_OF_FLOATS, group=1, name="all_gather"), words.mark([3, 5]), words.compute(4),
    )  # fmt: skip
    one = words.collective(8, step=0), words.collective(6 * MS_OF_FLOATS, instance=1), words.mark([1])
    two = words.collective(2 * MS_OF_FLOATS, name="all_gather"), words.mark([0])
    roles = (words.events(*rows) for rows in (zero, one, two))
    found = drawn(trace_of(*roles, role_of_rank=range(3), groups=groups, group_of=((0, 1), (0,), (1,))))
    assert {key: spans for key, spans in found.items() if key[0] != "links"} == {
        ("rank 0", "compute"): [("aten.mul", 0, 2), ("mm", 2, 3), ("mm", 8, 12)],
        ("rank 0", "tp"): [("all_reduce", 2, 8)],
        ("rank 0", "other"): [("all_gather", 3, 4)],
        ("rank 1", "compute"): [],
        ("rank 1", "tp"): [("all_reduce", 2, 8)],
        ("rank 2", "compute"): [],
        ("rank 2", "other"): [("all_gather", 3, 4)],
    }
    assert list(found)[-1][0] == "links"


def test_a_link_is_busy_while_it_carries_anything():
    """Rank 0 sends 3 ms to rank 1, then, 2 ms after it has got that, 1 ms; to rank 2 nothing."""
    words, groups = Words(), (Group("", (0, 1, 2)),)
    zero = words.send(3 * MS_OF_FLOATS, 1), words.compute(5, waits=[0]), words.send(MS_OF_FLOATS, 1), words.mark([2])
    one = words.recv(3 * MS_OF_FLOATS, 0), words.recv(MS_OF_FLOATS, 0), words.mark([0, 1])
    roles = (words.events(*rows) for rows in (zero, one, [words.compute(1)]))
    found = drawn(trace_of(*roles, role_of_rank=range(3), groups=groups))
    (number,) = np.flatnonzero((MESH.links.src == 0) & (MESH.links.dst == 1))
    links = {stream: spans for (owner, stream), spans in found.items() if owner == "links"}
    assert links == {f"link {number}: NPU 0 to NPU 1": [("busy", 0, 3), ("busy", 8, 9)]}


def test_what_lies_between_two_moments_is_clipped_and_counted_from_the_first():
    lane = Lane("rank 1", "dp", tuple("abcde"), np.array([0, 2, 5, 6, 9]), np.array([2, 4, 5, 8, 12]))
    between = lane.within(3, 10)
    assert (between.owner, between.stream, between.names) == ("rank 1", "dp", ("b", "d", "e"))
    assert (between.start.tolist(), between.end.tolist()) == ([0, 3, 6], [1, 5, 7])


@pytest.mark.parametrize("seed", range(20))
def test_spans_that_touch_are_one(seed):
    rng = np.random.default_rng(seed)
    start = np.sort(rng.integers(0, 30, int(rng.integers(0, 9))))
    end = start + rng.integers(1, 6, len(start))
    busy = {t for a, b in zip(start.tolist(), end.tolist(), strict=True) for t in range(a, b)}
    low, high = merged(start, end)
    assert {t for a, b in zip(low.tolist(), high.tolist(), strict=True) for t in range(a, b)} == busy
    assert low.tolist() == sorted(t for t in busy if t - 1 not in busy)
