"""The turns of a pipeline are those of PyTorch's schedules; every message is sent once, and received before it is needed."""

from itertools import product

import pytest
from torch.distributed.pipelining import schedules

from emu.model.pipeline_order import (
    BACKWARD,
    DROP,
    FORWARD,
    GATHER,
    INPUT,
    RECEIVE,
    REDUCE,
    SEND,
    WEIGHT,
    Turn,
    all_turns,
    turns,
    with_messages,
)

WORDS = {
    "FORWARD": FORWARD, "FULL_BACKWARD": BACKWARD, "BACKWARD_INPUT": INPUT, "BACKWARD_WEIGHT": WEIGHT,
    "UNSHARD": GATHER, "RESHARD": DROP, "REDUCE_GRAD": REDUCE,
    "SEND_F": SEND + FORWARD, "SEND_B": SEND + BACKWARD, "RECV_F": RECEIVE + FORWARD, "RECV_B": RECEIVE + BACKWARD,
}  # fmt: skip
INTERLEAVED = [(2, 2, 2), (2, 2, 3), (2, 2, 4), (4, 2, 8), (4, 2, 6), (2, 3, 4), (3, 2, 6), (2, 4, 8), (4, 4, 12)]


SPLIT = [("zbv", 2, m) for m in (2, 3, 4, 7)] + [("zbv", 4, 8), ("zbv", 3, 12), ("dualpipev", 2, 4), ("dualpipev", 3, 7)] + [
    ("dualpipev", 4, 8), ("dualpipev", 4, 13)
]  # fmt: skip


def told(actions):
    each = [one for a in actions if a is not None for one in a.sub_actions or (a,)]
    return [Turn(a.stage_index, WORDS[a.computation_type.name], a.microbatch_index or 0) for a in each]


def plain(together):
    return [turn for several in together for turn in several]


def equal_to_theirs(order, made, places, virtual, microbatches):
    """Turns of each place, and with their messages."""
    theirs = {place: made._calculate_single_rank_operations(place) for place in range(places)}
    own = [list(turns(order, place, places, virtual, microbatches)) for place in range(places)]
    assert [told(theirs[place]) for place in range(places)] == [plain(each) for each in own]
    weights = {p: schedules._add_reduce_grad(schedules._add_unshard_reshard(o), microbatches) for p, o in theirs.items()}
    where = {turn.stage: place for place, each in enumerate(own) for turn in plain(each)}
    sent = schedules._add_send_recv(weights, where.__getitem__, places * virtual)
    ours = with_messages(own, places * virtual, microbatches)
    assert [told(sent[place]) for place in range(places)] == [list(each) for each in ours]


def schedule(kind, places, virtual, microbatches):
    """PyTorch's schedule without stages, which it would need for nothing here."""
    made = object.__new__(kind)
    made._n_microbatches, made._num_stages = microbatches, places * virtual
    made.pp_group_size, made.n_local_stages = places, virtual
    made.number_of_rounds = max(1, microbatches // places)
    made.microbatches_per_round = microbatches // made.number_of_rounds
    return made


@pytest.mark.parametrize(("places", "microbatches"), list(product((2, 3, 4), (4, 5, 8))))
def test_gpipe_and_1f1b_are_those_of_pytorch(places, microbatches):
    gpipe = schedule(schedules.ScheduleGPipe, places, 1, microbatches)._get_pipeline_order()
    one = schedule(schedules.Schedule1F1B, places, 1, microbatches)._get_pipeline_order()
    for place in range(places):
        computed = [turn for turn in told(gpipe[place]) if turn.what != REDUCE]
        assert plain(turns("gpipe", place, places, 1, microbatches)) == computed
        computed = [turn for turn in told(one[place]) if turn.what != REDUCE]
        if place < places - 1:  # PyTorch's list counts the forwards of the last place from 1; what it runs does not
            assert plain(turns("1f1b", place, places, 1, microbatches)) == computed
        else:
            assert [turn.what for turn in plain(turns("1f1b", place, places, 1, microbatches))] == [
                turn.what for turn in computed
            ]


@pytest.mark.parametrize(("places", "virtual", "microbatches"), INTERLEAVED)
def test_interleaved_turns_and_their_messages_are_those_of_pytorch(places, virtual, microbatches):
    made = schedule(schedules.ScheduleInterleaved1F1B, places, virtual, microbatches)
    equal_to_theirs("interleaved", made, places, virtual, microbatches)


@pytest.mark.parametrize(("places", "virtual", "microbatches"), INTERLEAVED)
def test_turns_that_split_the_backward_of_interleaved_stages_are_those_of_pytorch(places, virtual, microbatches):
    made = schedule(schedules.ScheduleInterleavedZeroBubble, places, virtual, microbatches)
    equal_to_theirs("zero-bubble", made, places, virtual, microbatches)


@pytest.mark.parametrize(("order", "places", "microbatches"), SPLIT)
def test_turns_that_split_the_backward_of_v_shaped_stages_are_those_of_pytorch(order, places, microbatches):
    kind = {"zbv": schedules.ScheduleZBVZeroBubble, "dualpipev": schedules.ScheduleDualPipeV}[order]
    made = schedule(kind, places, 2, microbatches)
    made.num_stages = 2 * places
    equal_to_theirs(order, made, places, 2, microbatches)


@pytest.mark.parametrize("shape", INTERLEAVED)
def test_every_message_is_sent_once_and_received_before_it_is_needed(shape):
    places, virtual, microbatches = shape
    found = all_turns("interleaved", *shape)
    for what, step in ((FORWARD, 1), (BACKWARD, -1)):
        sent = {(t.stage + step, t.microbatch) for own in found for t in own if t.what == SEND + what}
        got = {(t.stage, t.microbatch) for own in found for t in own if t.what == RECEIVE + what}
        assert sent == got
        assert len(sent) == (places * virtual - 1) * microbatches
    for own in found:
        at = {turn: i for i, turn in enumerate(own)}
        for turn, i in at.items():
            assert at.get(turn._replace(what=RECEIVE + turn.what), -1) < i
