"""Ranks that stand for others: the one whose optimizer owns most ends last; the one that is waited for is of the same group."""

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from emu.collective.choice import Choice
from emu.errors import InputError
from emu.model.model import find_model
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on
from emu.study.training.composed.representatives import Axis, Representatives, representatives_of_plan
from emu.study.training.composed.requests_by_place import requests_by_place
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.step.step import time_trace
from emu.study.training.timed_step import GeneratedStep, time_step
from emu.topology.catalogue import build_topology
from emu.topology.placement import place
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import Group
from launch.data.devices import find_device
from tests.trace import laid

# Of its parameters nearly all are two tables of 256 words, the embedding's and the head's, which two ranks own.
NARROW = Path(__file__).parents[3] / "data" / "one-narrow-layer.toml"
SLOW = replace(find_device("h100", "bfloat16"), hbm_Bps=1e9)  # an optimizer moves bytes and computes hardly anything


@pytest.mark.parametrize("dp", [3, 4])
def test_a_composed_step_has_the_optimizer_of_the_rank_that_owns_most(dp):
    model, stack, topology = find_model(str(NARROW)), Stack(), build_topology("ub-mesh:board")
    plan = parse_plan(f"dp={dp},sharding=zero1", global_batch=12, seq=8)
    step, choice = GeneratedStep(model, plan, stack), choice_on(topology, ("auto",), "float32")
    whole = time_trace(TraceLayout(step.trace, choice, topology, SLOW, "float32")).step()
    few = StepOnFabric.of(lambda: step.requests, choice, topology, place(topology, dp), SLOW).composed().step()
    least, *_, most = sorted(role.tape.own_bytes() for (own,) in [step.roles] for role in own)
    assert least < most / 2
    assert few.step_time_s == pytest.approx(whole.step_time_s, rel=5e-3)
    assert (most - least) / SLOW.hbm_Bps > 0.02 * whole.step_time_s  # which the step then tells


def test_the_rank_that_is_waited_for_is_of_the_group_that_waits():
    """Rank 0 has come to its tp group with rank 1 in time, and waits 4 ms for rank 2 of its dp group."""
    words = laid.Words()
    groups = (Group("tp", (0, 1)), Group("tp", (2, 3)), Group("dp", (0, 2)), Group("dp", (1, 3)))

    def role(ms):
        asked = words.collective(laid.MS_OF_FLOATS), words.compute(ms, waits=[0]), words.collective(laid.MS_OF_FLOATS, group=1)
        return words.events(*asked, words.mark([2]))

    group_of = ((0, 2), (0, 3), (1, 2), (1, 3))
    trace = laid.trace_of(role(1), role(5), role_of_rank=(0, 1, 1, 1), groups=groups, group_of=group_of)
    topology, choice = laid.star_of(4), Choice({"all_reduce": "ring"})
    steps = [time_step(TraceLayout(trace, choice, topology, laid.DEVICE, "float32"), most).step() for most in (0, 10**6)]
    assert [step.straggling_by_rank_s for step in steps] == [{2: 4e-3}] * 2


@pytest.mark.parametrize("most_events", [0, 10**6])
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"count": 8}, "bytes and count of all_reduce 0 of {} (0, 1) must be equal on all members"),
        ({"name": "all_gather"}, "must have one operation and one root on all members"),
        ({"instance": 1}, "all_reduce 0 on group 'world' must be requested by {} (0, 1), got (0,)"),
    ],
)
def test_places_must_agree_on_a_request_as_ranks_must(more, said, most_events):
    words = laid.Words()
    other = {"count": 4, "name": "all_reduce"} | more
    roles = [words.events(words.collective(**asked), words.mark([0])) for asked in ({"count": 4}, other)]
    laying = TraceLayout(
        laid.trace_of(*roles, role_of_rank=(0, 1)), Choice({"all_reduce": "ring"}), laid.star_of(2), laid.DEVICE, "float32"
    )
    with pytest.raises(InputError, match=re.escape(said.format("ranks" if most_events else "places"))):
        time_step(laying, most_events)


def test_a_rank_that_another_one_waits_for_is_found_through_the_one_between():
    """Rank 0 has a group with rank 1 alone, and this one with rank 2."""
    axes = Axis("tp", np.array([[0, 1]])), Axis("dp", np.array([[1, 2]])), Axis("ep", np.array([[3, 4]]))
    standing_ = Representatives(((),) * 4, ((),) * 4, axes, np.array([0, 1, 2, 3, 2]))
    assert [standing_.waited_rank(0, place) for place in (1, 2, 3)] == [1, 2, 3]
    assert standing_.waited_rank(1, 2, ("dp",)) == 2


@pytest.mark.parametrize(
    ("waited", "rank"), [((), 3), (("dp",), 1), (("tp",), 3), (("dp", "tp"), 1), (("tp", "dp"), 3), (("ep", "dp"), 1)]
)
def test_the_rank_that_is_waited_for_is_the_lowest_of_the_axis_that_waits_longest(waited, rank):
    """The first of the axes that do not wait is searched, after all that do; a rank does not wait for itself."""
    axes = Axis("tp", np.array([[0, 3]])), Axis("dp", np.array([[0, 2, 1]]))
    standing_ = Representatives(((),) * 2, ((),) * 2, axes, np.array([0, 1, 1, 1]))
    assert standing_.waited_rank(0, 1, waited) == rank
    assert standing_.waited_rank(1, 1) == 2


@pytest.mark.parametrize("members", [2, 4, 5])
@pytest.mark.parametrize("seed", range(15))
def test_messages_of_a_ring_meet_those_of_their_distance_and_their_tag(seed, members):
    """Each rank of a place sends to and receives from others of its place in one order; queues of a distance are apart."""
    random, words = Random(seed), laid.Words()
    queues = [(far, tag) for far in range(1, members) for tag in ((0, 1, 4), (0, 1))[seed % 2]]
    waiting = {"send": [], "recv": []}
    for number, queue in enumerate(random.choices(queues, k=12)):
        for left in waiting.values():
            left.append((number, queue))
    random.shuffle(waiting["recv"])
    for queue in queues:  # of one queue the receives come in the order of the sends
        at = [i for i, each in enumerate(waiting["recv"]) if each[1] == queue]
        for i, each in zip(at, sorted(waiting["recv"][i] for i in at), strict=True):
            waiting["recv"][i] = each
    rows, numbers = [], []
    while waiting["send"] or waiting["recv"]:
        kind = random.choice([kind for kind, left in waiting.items() if left])
        number, (far, tag) = waiting[kind].pop(0)
        peer = far if kind == "send" else members - far  # the representative is member 0
        rows.append(getattr(words, kind)(8 + number, peer, tag=tag))
        numbers.append(number)
    ring = Axis("cp", np.arange(2 * members).reshape(2, members))
    one = Representatives((words.events(*rows),), ((0,),), (ring,), np.zeros(2 * members, np.int64), rings=True)
    found = requests_by_place(one)
    call = dict(zip(found.event.tolist(), found.call.tolist(), strict=True))
    assert [numbers.index(number) for number in numbers] == [
        next(row for row in range(len(rows)) if call[row] == call[each]) for each in range(len(rows))
    ]
    assert sorted(call.values()) == [each for pair in range(12) for each in (pair, pair)]
    assert found.counts.sum() == 12


def test_the_first_rank_of_a_ring_stands_for_it_whatever_others_of_it_own():
    """Another rank of the ring has as many bytes of the optimizer, and other blocks of the sequence."""
    plan = parse_plan("dp=2,cp=2,sharding=zero1", global_batch=12, seq=24)
    [roles] = GeneratedStep(find_model(str(NARROW)), plan, Stack()).roles
    most = [role for role in roles if role.tape.own_bytes() == max(other.tape.own_bytes() for other in roles)]
    assert [role.at for role in most] == [0, 1]
    first, other = (role.tape.events().count.tolist() for role in most)
    [found] = representatives_of_plan([roles[::-1]], plan).events
    assert found.count.tolist() == first != other
