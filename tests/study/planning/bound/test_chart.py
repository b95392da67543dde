"""A pipeline of known passes ends when the published formulas of its order say."""

import numpy as np
import pytest

from emu.study.planning.bound.bound import AXES, PipelineTimes, pipeline_end_s


def times(places, virtual, **known):
    """A forward takes 1 s and a backward 2 s, nothing else takes any time unless it is said."""
    of_stage = places, virtual
    found = PipelineTimes(
        *(np.zeros(places), np.ones(of_stage), np.full(of_stage, 2.0), np.full(of_stage, 2.0)),
        *(np.zeros((2, places)), np.zeros((2, places)), np.zeros(of_stage)),
        *(np.zeros((*of_stage, AXES)), np.zeros((*of_stage, AXES)), np.zeros(places)),
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
    there = np.full((2, 4), 0.25)
    assert pipeline_end_s(times(4, 1, there=there), "1f1b", 1, waits=False) == 12 + 6 * 0.25
    assert pipeline_end_s(times(4, 1, left=there, there=there), "1f1b", 1, waits=False) == 12 + 12 * 0.25


def test_weights_are_waited_for_first_and_gradients_last():
    gathered = np.full((1, 1), 0.5)
    assert pipeline_end_s(times(1, 1, weights=gathered), "1f1b", 2, waits=False) == 6.5
    arrive, reduce = np.full((1, 1, AXES), 1.5), np.full((1, 1, AXES), 3.0)
    assert pipeline_end_s(times(1, 1, arrive=arrive, reduce=reduce), "1f1b", 2, waits=False) == 4 + 1.5 + 3
    assert pipeline_end_s(times(1, 1, arrive=arrive, reduce=reduce / 6), "1f1b", 2, waits=False) == 6
    assert pipeline_end_s(times(1, 1, end=np.array([2.0])), "1f1b", 2, waits=False) == 8
