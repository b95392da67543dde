"""The bubble of a pipeline is what the papers say, where nothing but the order of its microbatches takes time."""

import pytest

from emu.model.pipeline_order import BACKWARD, FORWARD, RECEIVE, SEND, all_turns
from emu.topology.builders.wiring import star
from emu.trace.trace import Group
from tests.trace.laid import Words, told, trace_of

MS = 10**12
FORWARD_MS, BACKWARD_MS = 12, 24


def pipeline(order, places, virtual, microbatches):
    """Return a step: a microbatch takes 12 ms forward and 24 back on each place; a message of 4 B goes between two places."""
    words = Words()
    turns = all_turns(order, places, virtual, microbatches)
    place_of = {turn.stage: place for place, own in enumerate(turns) for turn in own if turn.what == FORWARD}
    rows = [[] for _ in range(places)]
    for place, own in enumerate(turns):
        taken = {}
        for turn in own:
            if turn.what in (FORWARD, BACKWARD):
                ms = (FORWARD_MS if turn.what == FORWARD else BACKWARD_MS) / virtual
                rows[place].append(words.compute(ms, waits=taken.pop(turn[:3], [])))
            elif turn.what.startswith(SEND):
                rows[place].append(words.send(1, place_of[turn.stage + (1 if turn.what == SEND + FORWARD else -1)]))
            elif turn.what.startswith(RECEIVE):
                what = turn.what.removeprefix(RECEIVE)
                rows[place].append(words.recv(1, place_of[turn.stage + (-1 if what == FORWARD else 1)]))
                taken[turn.stage, what, turn.microbatch] = [len(rows[place]) - 1]
    events = [words.events(*own, words.mark()) for own in rows]
    return trace_of(*events, role_of_rank=range(places), groups=(Group("pp", tuple(range(places))),))


@pytest.mark.parametrize(
    ("order", "places", "virtual", "microbatches"),
    [
        ("gpipe", 4, 1, 8), ("1f1b", 4, 1, 8), ("1f1b", 3, 1, 3), ("1f1b", 2, 1, 7),
        ("interleaved", 4, 2, 8), ("interleaved", 4, 3, 12), ("interleaved", 2, 4, 4),
    ],
)  # fmt: skip
def test_a_bubble_is_the_share_of_computation_that_its_order_leaves(order, places, virtual, microbatches):
    """(p - 1) / (v m) of the computation, where each of p places has v stages (Narayanan et al., 2021, section 2.2)."""
    found = told(pipeline(order, places, virtual, microbatches), star("ideal", places, 1e18, 0))
    computed = microbatches * (FORWARD_MS + BACKWARD_MS) * MS
    bubble = computed * (places - 1) / (virtual * microbatches)
    assert found.compute_fs == computed
    assert found.bubble_fs == pytest.approx(bubble, rel=1e-6)
    assert found.idle_fs == pytest.approx(bubble, rel=1e-6)
    assert found.step_time_fs == pytest.approx(computed + bubble, rel=1e-6)


def test_waiting_for_a_rank_of_the_same_stage_is_idle_and_no_bubble():
    words = Words()
    late, early = (words.events(words.compute(ms), words.collective(1), words.mark(waits=[1])) for ms in (5, 1))
    alone = told(trace_of(early, late, role_of_rank=(0, 1), groups=(Group("dp", (0, 1)),)))
    assert alone.idle_fs > 3 * MS
    assert alone.bubble_fs == 0
    stages = told(trace_of(early, late, role_of_rank=(0, 1), groups=(Group("dp", (0, 1)), Group("pp", (0, 1)))))
    assert stages.bubble_fs == stages.idle_fs == alone.idle_fs


def test_what_is_computed_after_the_mark_of_an_optimizer_is_the_optimizers():
    words = Words()
    mark = {**words.mark(), "name": "optimizer"}
    rows = (words.compute(5), mark, words.compute(2), words.collective(1), words.compute(1, waits=[3]), words.mark())
    assert told(trace_of(words.events(*rows))).optimizer_fs == 3 * MS
    assert told(trace_of(words.events(words.compute(3), words.mark()))).optimizer_fs is None


def test_of_two_optimizers_all_that_is_computed_from_the_first_on_is_theirs():
    """Experts' parameters have an optimizer of their own; and the mark of an earlier step is of that step."""
    words = Words()
    mark = {**words.mark(), "name": "optimizer"}
    one = [words.compute(5), mark, words.compute(2), mark, words.compute(1), words.mark()]
    two = [{**row, "step": 2} for row in (words.compute(6), mark, words.compute(4), mark, words.compute(3), words.mark())]
    assert told(trace_of(words.events(*one))).optimizer_fs == 3 * MS
    later = told(trace_of(words.events(*one, *two)))
    assert (later.step_time_fs, later.optimizer_fs) == (13 * MS, 7 * MS)
