"""A pipeline of known passes ends when the published formulas of its order say."""

import numpy as np
import pytest

from emu.model.generate.item import Ask
from emu.model.pipeline_order import BACKWARD, FORWARD, RECEIVE, SEND, Turn, all_turns
from emu.model.plan.plan import Plan
from emu.study.planning.bound.pipeline_chart import COPY_KINDS, PipelineTimes, _gathered, pipeline_end_s
from emu.study.planning.request_times.least_times import LeastTimes
from emu.study.planning.request_times.rates import LeastTime, Rates
from emu.study.planning.step_paths.megatron_paths import OverlappedRequests


def times(places, virtual, **known):
    """A forward takes 1 s and a backward 2 s, nothing else takes any time unless it is said."""
    of_stage = places, virtual
    found = PipelineTimes(
        *(np.zeros(places), np.ones(of_stage), np.full(of_stage, 2.0), np.full(of_stage, 2.0)),
        *(np.zeros((2, places)), np.zeros((2, places)), np.zeros(of_stage)),
        *(np.zeros((*of_stage, COPY_KINDS)), np.zeros((*of_stage, COPY_KINDS)), np.zeros(places)),
    )
    return found._replace(**known)


@pytest.mark.parametrize(("places", "virtual", "microbatches"), [(1, 1, 3), (2, 1, 8), (4, 1, 4), (4, 2, 8), (2, 4, 4)])
def test_a_pipeline_ends_after_its_work_and_its_bubble(places, virtual, microbatches):
    """Narayanan et al. (SC21), section 2.2: the bubble is P - 1 microbatches of the model's stages of one place over V."""
    order, ideal = "1f1b" if virtual == 1 else "interleaved", 3 * virtual * microbatches + 3 * (places - 1)
    assert pipeline_end_s(times(places, virtual), order, microbatches, waits=False) == ideal
    # Places that wait until a message has left have to come to it at the same time.
    assert pipeline_end_s(times(places, virtual), order, microbatches, waits=True) >= ideal


def test_messages_delay_what_needs_them():
    delivered = np.full((2, 4), 0.25)
    assert pipeline_end_s(times(4, 1, delivered=delivered), "1f1b", 1, waits=False) == 12 + 6 * 0.25
    assert pipeline_end_s(times(4, 1, left=delivered, delivered=delivered), "1f1b", 1, waits=False) == 12 + 12 * 0.25


def test_weights_are_waited_for_first_and_gradients_last():
    gathered = np.full((1, 1), 0.5)
    assert pipeline_end_s(times(1, 1, weights=gathered), "1f1b", 2, waits=False) == 6.5
    arrive, reduce = np.full((1, 1, COPY_KINDS), 1.5), np.full((1, 1, COPY_KINDS), 3.0)
    assert pipeline_end_s(times(1, 1, arrive=arrive, reduce=reduce), "1f1b", 2, waits=False) == 4 + 1.5 + 3
    assert pipeline_end_s(times(1, 1, arrive=arrive, reduce=reduce / 6), "1f1b", 2, waits=False) == 6
    assert pipeline_end_s(times(1, 1, end=np.array([2.0])), "1f1b", 2, waits=False) == 8


SHAPES = [("gpipe", 3, 1, 4), ("1f1b", 3, 1, 5), ("1f1b", 4, 1, 2), ("interleaved", 3, 2, 6), ("interleaved", 2, 3, 2)]


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("order", "places", "virtual", "microbatches"), [("1f1b", 1, 1, 3), *SHAPES])
def test_a_pipeline_of_uneven_times_ends_when_its_places_have_taken_their_turns(order, places, virtual, microbatches, waits):
    """Each time is one of its own, in whole seconds; the turns are taken one by one by other code."""
    draw = np.random.default_rng(5)
    known = PipelineTimes(*(draw.integers(1, 50, each.shape).astype(float) for each in times(places, virtual)))
    known = known._replace(reduce=20 * known.reduce)
    assert pipeline_end_s(known, order, microbatches, waits=waits) == ended(known, order, microbatches, waits=waits)


def ended(known, order, microbatches, *, waits):
    """Walk through the turns of all places again and again until nothing moves any later."""
    places, virtual = known.forward.shape
    alone = [[Turn(0, what, number) for number in range(microbatches) for what in (FORWARD, BACKWARD)]]
    of_places = alone if places == 1 else all_turns(order, places, virtual, microbatches)
    at = {turn: -np.inf for own in of_places for turn in own}  # when a message has left, or a pass has ended; or is reached
    while True:
        before, ends = dict(at), [walked(known, place, own, at, microbatches, waits) for place, own in enumerate(of_places)]
        if at == before:
            return max(ends)


def walked(known, place, own, at, microbatches, waits):
    """When a place has taken its turns and reductions, by the messages of others so far; notes its own in `at`."""
    now, held, sent, reduced = known.begin[place], 0.0, 0.0, np.zeros(COPY_KINDS)
    stages = sorted({turn.stage for turn in own})
    for turn in own:
        way = int(turn.what.endswith(BACKWARD))
        step = -1 if way else 1
        if turn.what.startswith(RECEIVE):
            at[turn] = now
        elif turn.what.startswith(SEND):
            at[turn] = max(now, at[Turn(turn.stage + step, RECEIVE + turn.what[-1], turn.microbatch)]) + known.left[way, place]
            held, sent = max(held, at[turn] * waits), max(sent, at[turn])
        elif turn.what in (FORWARD, BACKWARD):
            v, begun = stages.index(turn.stage), now
            came = at.get(Turn(turn.stage - step, SEND + turn.what, turn.microbatch), -np.inf)
            if came > -np.inf:
                came += known.delivered[way, (place - step) % len(known.begin)]
            last = way and turn.microbatch == microbatches - 1
            needs = max(now, held, came, known.weights[place, v] if not way and not turn.microbatch else 0.0)
            now = needs + (known.last if last else known.backward if way else known.forward)[place, v]
            held = 0.0
            if last:
                reduced = np.maximum(reduced, max(begun, came) + known.arrive[place, v]) + known.reduce[place, v]
    return max(now, sent, *reduced) + known.end[place]


class Sized(LeastTimes):
    """Least times by which a request takes a second for each of its elements."""

    def collective(self, place, ask):
        return LeastTime(0.0, float(ask.elements))


def test_a_stage_has_its_first_weights_once_all_axes_have_gathered_them_each_one_stage_after_another():
    """A buffer is set to 0 before its gathering begins, and so are all before it."""
    sizes = (
        (("dp", 1, 10), ("edp", 2, 20)),  # dp from 1 to 11, edp from 3 to 23
        (("dp", 4, 30), ("edp", 8, None)),  # dp from 11 to 41
        (("dp", 0, None),),
        (("edp", 16, 40),),  # from 31 to 71
    )
    stages = [
        [
            OverlappedRequests(axis, clear, size and Ask(axis, "all_gather", size, "bfloat16"), None, 0.0, ())
            for axis, clear, size in of
        ]
        for of in sizes
    ]
    assert _gathered(stages, Sized(Rates(1.0, 1.0), Plan()), 0) == [23, 41, 0, 71]
