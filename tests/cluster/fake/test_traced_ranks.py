"""The trace of all ranks from those that were traced, which are written down here."""

import numpy as np
import pytest

from emu.backend.rank.rank_requests import Members
from emu.backend.rank.recorded_events import EventRow, RecordedEvents, merge
from emu.cluster.fake.fake_rank import TracedRank
from emu.cluster.fake.traced_roles import merged_trace
from emu.trace.trace import Kind

WORLD = Members("world", (0, 1, 2, 3), "world")


def notes(flops, *peak):
    row = EventRow(1, Kind.COMPUTE, 0, "mm", "float32", flops, 8, 2, 0, 0, 0, 0, 0, -1, 0, 0, 0)
    return RecordedEvents((row,), ((),), ((),), (WORLD,), peak, {})


def seen(rank, flops, *peak):
    return TracedRank(rank, notes(flops, *peak), 1, (np.arange(4)[None],), (), None)


@pytest.mark.parametrize("turned", [False, True])
def test_the_peak_of_memory_of_a_role_is_that_of_its_rank_that_holds_most(turned):
    """By the sum of all parts, whichever comes first; parts are those of one rank, and not the largest of each."""
    peaks = [(5, 1, 0, 0), (2, 7, 1, 0), (3, 3, 0, 3)]
    of = [seen(rank, 1.0, *peak) for rank, peak in enumerate(peaks[::-1] if turned else peaks)]
    trace = merged_trace([*of, seen(3, 2.0, 1, 1, 1, 1)], np.arange(4))
    assert trace.role_of_rank.tolist() == [0, 0, 0, 1]
    assert trace.peak_by_part.tolist() == [[2, 7, 1, 0], [1, 1, 1, 1]]
    assert [events.flops.tolist() for events in trace.events] == [[1.0], [2.0]]
    merged = merge([one.recorded_events for one in (*of, seen(3, 2.0, 1, 1, 1, 1))])
    assert merged.peak_by_part.tolist() == trace.peak_by_part.tolist()


def test_who_was_not_traced_does_as_who_stands_for_it():
    trace = merged_trace([seen(1, 1.0, 4, 0, 0, 0), seen(3, 2.0, 1, 0, 0, 0)], np.array([1, 1, 3, 3]), (("command", "run"),))
    assert trace.role_of_rank.tolist() == [0, 0, 1, 1]
    assert [group.ranks for group in trace.groups] == [(0, 1, 2, 3)]
    assert trace.group_of == ((0,),) * 4
    assert trace.meta[0] == ("command", "run")
