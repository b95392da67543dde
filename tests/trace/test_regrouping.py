"""Traces with other groups than those that they were generated with."""

import numpy as np
import pytest

from emu.errors import InputError
from emu.trace.regrouping import regrouped
from tests.trace.laid import COLUMNS, ROWS, grid_trace


def test_groups_of_an_axis_change_and_all_else_stays(words):
    trace = grid_trace(words.events(words.collective(8, group=0), words.collective(8, group=1), words.collective(8, group=2)))
    turned = regrouped(trace, {"tp": COLUMNS})
    for rank in range(16):
        own = [turned.groups[i] for i in turned.group_of[rank]]
        assert [group.axis for group in own] == ["tp", "dp", "world"]
        assert own[0].ranks == own[1].ranks == tuple(COLUMNS[rank % 4])
        assert own[2].ranks == tuple(range(16))
    assert turned.events is trace.events
    assert regrouped(turned, {"tp": ROWS}).group_of != turned.group_of


def test_other_ranks_or_sizes_are_refused(words):
    trace = grid_trace(words.events(words.collective(8)))
    with pytest.raises(InputError, match=r"axis of a trace is called .ep."):
        regrouped(trace, {"ep": ROWS})
    with pytest.raises(InputError, match="trace: members of a group of tp must be 4, got 8"):
        regrouped(trace, {"tp": np.arange(16).reshape(2, 8)})
    with pytest.raises(InputError, match="groups of tp must have each of its ranks once"):
        regrouped(trace, {"tp": np.zeros((4, 4), np.int64)})
