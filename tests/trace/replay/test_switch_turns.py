"""Optical switches that turn between the requests of a replay."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.choice import Choice
from emu.errors import InputError
from emu.fabric.run import run_graph
from emu.topology.topology import Circuits
from emu.trace.replay.replay import TraceLayout
from emu.trace.report.report import report
from emu.trace.trace import Group
from tests.trace.laid import DEVICE, MS_OF_FLOATS, in_ms, star_of, told, trace_of

MS = 10**12
ROWS, COLUMNS = ((0, 1), (2, 3)), ((0, 2), (1, 3))
GROUPS = (*(Group("tp", of) for of in ROWS), *(Group("dp", of) for of in COLUMNS))
OF = ((0, 2), (0, 3), (1, 2), (1, 3))  # a rank's row is its group 0, its column 1


def one_switch(src, dst, key):
    """Return the state of the only switch: 0 for messages in a row, 1 for those between rows."""
    return np.zeros((len(src), 1), np.int64), (src // 2 != dst // 2).astype(np.int64)[:, None]


def fabric(needs=one_switch, turn_ms=5):
    return replace(star_of(4), circuits=Circuits(needs, turn_ms * MS))


def step_ms(rows, topology, *, others=None, role_of_rank=(0, 0, 0, 0)):
    roles = (rows,) if others is None else (rows, others)
    return in_ms(told(trace_of(*roles, role_of_rank=role_of_rank, groups=GROUPS, group_of=OF), topology))


def requests(words, order, between_ms=0.0):
    """Return one request after another on rows (0) and columns (1), each of 4 ms, with a computation after each."""
    found, counts = [], [0, 0]
    for group in order:
        found.append(words.collective(4 * MS_OF_FLOATS, group=group, instance=counts[group]))
        found.append(words.compute(between_ms, waits=[len(found) - 1]))
        counts[group] += 1
    return words.events(*found)


@pytest.mark.parametrize(("order", "turns"), [((0, 1, 0), 2), ((0, 0, 1), 1), ((1, 1), 0), ((0, 1, 1, 0, 1), 3)])
def test_a_switch_turns_where_the_next_request_needs_another_state(words, order, turns):
    step, _, exposed, _ = step_ms(requests(words, order), fabric())
    assert (step, exposed) == (4 * len(order) + 5 * turns, 4 * len(order) + 5 * turns)
    assert step_ms(requests(words, order), star_of(4))[0] == 4 * len(order)


@pytest.mark.parametrize(("between_ms", "step"), [(3, 4 + 5 + 4 + 3), (5, 4 + 5 + 4 + 5), (8, 4 + 8 + 4 + 8)])
def test_a_turn_hides_behind_a_computation(words, between_ms, step):
    assert step_ms(requests(words, (0, 1), between_ms), fabric())[0] == step


def test_a_turn_waits_for_the_last_rank_that_the_switch_serves(words):
    """Ranks 2 and 3 reduce 6 ms later, and the column of none can begin before: its switch is still theirs."""
    late = words.events(
        words.compute(6),
        words.collective(4 * MS_OF_FLOATS, group=0),
        words.compute(0, waits=[1]),
        words.collective(4 * MS_OF_FLOATS, group=1),
        words.mark([3]),
    )
    soon = words.events(
        words.collective(4 * MS_OF_FLOATS, group=0), words.collective(4 * MS_OF_FLOATS, group=1), words.mark([1])
    )
    step, *_ = step_ms(soon, fabric(), others=late, role_of_rank=(0, 0, 1, 1))
    assert step == 6 + 4 + 5 + 4


def test_switches_turn_each_for_itself_and_messages_that_need_none_wait_for_none(words):
    def by_row(src, dst, key):
        """Return a switch for each column of ranks; messages in a row need none."""
        between = src // 2 != dst // 2
        return np.where(between, src % 2, -1)[:, None], np.zeros((len(src), 1), np.int64)

    order = (0, 1, 0, 1)
    assert step_ms(requests(words, order), fabric(by_row))[0] == 4 * len(order)


def test_a_request_that_needs_a_switch_in_two_states_at_once_is_refused(words):
    world = Group("world", (0, 1, 2, 3))
    rows = words.events(words.collective(4 * MS_OF_FLOATS), words.mark([0]))
    trace = trace_of(rows, role_of_rank=(0,) * 4, groups=(world,), group_of=((0,),) * 4)
    with pytest.raises(InputError, match="round 0 needs switch 0 in states 0 and 1 at once"):
        told(trace, fabric())


def test_a_rank_that_goes_on_before_a_late_one_has_come_does_not_wait_for_itself(words):
    """Rank 3 comes 30 ms late to a broadcast, which ranks 0 and 2 have left by then for an all_reduce."""
    size, root = 4 * MS_OF_FLOATS, {"name": "broadcast", "group": 0}
    goes_on = words.events(words.collective(size, **root), words.collective(size, group=1, waits=[0]), words.mark([1]))
    late = words.events(words.compute(30), words.collective(size, **root, waits=[0]), words.mark([1]))
    only = words.events(words.collective(size, **root), words.mark([0]))
    groups = (Group("world", (0, 1, 2, 3)), Group("dp", (0, 2)))
    trace = trace_of(goes_on, only, late, role_of_rank=(0, 1, 0, 2), groups=groups, group_of=((0, 1), (0,), (0, 1), (0,)))
    choice = Choice({"all_reduce": "ring", "broadcast": "binomial"})
    steps = []
    for topology in (star_of(4), fabric()):
        layout = TraceLayout(trace, choice, topology, DEVICE, "float32")
        replayed = layout.build_graph(None)
        steps.append(in_ms(report(trace, replayed, run_graph(replayed.graph)))[0])
    assert steps[0] <= steps[1] < 2 * steps[0]
