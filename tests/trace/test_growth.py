"""A trace of more ranks is the trace that the same plan gives with more data parallelism."""

import re

import numpy as np
import pytest

from emu.collective.choice import Choice
from emu.errors import InputError
from emu.fabric.run import run_graph
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan_text import parse_plan
from emu.trace.growth import grown, growth_notes
from emu.trace.report.report import report
from emu.trace.steps import computes
from emu.trace.trace import Group
from launch.front.inputs import stack_of
from tests.trace.laid import in_ms, replay, star_of, trace_of

TINY, MOE, MEGATRON = "llama-tiny", "gpt-moe-tiny", "software=megatron"
FOUR = Group("world", (0, 1, 2, 3))


def generated(model, plan, stack, dp):
    """The trace of a plan with this dp, and two sequences for each rank of it."""
    words = re.sub(r"\bdp=\?", f"dp={dp}", plan)
    return generate(find_model(model), parse_plan(words, global_batch=2 * dp, seq=64), stack_of(stack))


@pytest.mark.parametrize(
    ("model", "plan", "stack", "dp"),
    [
        (TINY, "dp=?", "", 8),
        (TINY, "tp=2,dp=?", "", 4),
        (TINY, "tp=2,pp=2,dp=?,microbatch=1", "", 2),
        (TINY, "cp=2,dp=?", "", 4),
        (MOE, "ep=2,dp=?", "", 4),
        (TINY, "dp=?,sharding=fsdp,shard=2", "", 8),
        ("llama-small", "tp=2,sp,pp=2,dp=?,microbatch=1", MEGATRON, 2),
    ],
)
@pytest.mark.parametrize("factor", [2, 3])
def test_growth_is_the_plan_with_more_data_parallelism(model, plan, stack, dp, factor):
    """Every event, group and role is equal, bit for bit; so the ranks have the same numbers, too."""
    small, large = generated(model, plan, stack, dp), generated(model, plan, stack, factor * dp)
    found = grown(small, factor * small.n_ranks)
    assert found.n_ranks == large.n_ranks
    assert [(g.axis, g.ranks) for g in found.groups] == [(g.axis, g.ranks) for g in large.groups]
    assert found.digest() == large.digest()


@pytest.mark.parametrize(
    ("model", "plan", "stack"),
    [(TINY, "dp=?,sharding=fsdp", ""), ("llama-small", "tp=2,sp,dp=?,sharding=zero1,microbatch=1", MEGATRON)],
)
def test_requests_of_sharded_states_are_those_of_more_ranks(model, plan, stack):
    """Sizes are of the whole, which more ranks share; only what a rank does with its own shard keeps its size."""
    found, large = grown(generated(model, plan, stack, 4), 8 * (2 if "tp" in plan else 1)), generated(model, plan, stack, 8)
    for own, other in zip(found.events, large.events, strict=True):
        asks = ~computes(own)
        for name in ("kind", "bytes", "count", "group", "instance", "root", "tag"):
            assert np.array_equal(getattr(own, name)[asks], getattr(other, name)[asks]), name
        assert own.flops.tolist() == other.flops.tolist()
        assert (own.bytes >= other.bytes).all()
    assert found.group_of == large.group_of
    assert "the shard of states that a rank had there" in growth_notes(found, as_measured=False)[0]


def test_ranks_that_own_a_share_each_do_not_grow(words):
    """PyTorch's ZeRO-1 broadcasts from each owner: new ranks would own some. Some roots, or all of them in set-up, do grow."""
    with pytest.raises(
        InputError, match="each of 8 ranks is a root of broadcast on dp, as where each owns a share of the states"
    ):
        grown(generated(TINY, "dp=?,sharding=zero1", "", 8), 16)
    given = [words.collective(10, "broadcast", root=root) for root in range(4)]
    for asked in ([{**each, "step": 0} for each in given], given[1:], [words.collective(10, "reduce", root=3), *given[3:]]):
        trace = trace_of(words.events(*asked, words.collective(10)), role_of_rank=(0,) * 4, groups=(FOUR,))
        assert grown(trace, 8).events[0].root.tolist() == trace.events[0].root.tolist()


def test_measured_times_are_of_the_ranks_recorded():
    """Where computations last as they were measured, a note says that more ranks have a slower one among them."""
    found = grown(generated(TINY, "dp=?", "", 4), 12)
    assert len(growth_notes(found, as_measured=False)) == 1
    told = growth_notes(found, as_measured=True)[1]
    assert "they spread as those of the 4 ranks that were recorded do, though the slowest of 12 ranks is slower" in told


def test_one_times_the_ranks_is_the_trace_itself(words):
    """Nothing grows, so that nothing is said."""
    trace = trace_of(words.events(words.collective(10)))
    assert grown(trace, 2) is trace
    assert growth_notes(trace, as_measured=True) == ()


def test_messages_stay_within_a_copy(words):
    """Rank 0 sends to rank 1 on the group of all ranks, and so does each copy of it; all sum what both have."""
    give, take = (of(1000, peer) for of, peer in ((words.send, 1), (words.recv, 0)))
    roles = [words.events(each, words.collective(250_000, waits=[0])) for each in (give, take)]
    found = grown(trace_of(*roles, role_of_rank=(0, 1)), 4)
    assert [(g.axis, g.ranks) for g in found.groups] == [("world", (0, 1)), ("world", (0, 1, 2, 3)), ("world", (2, 3))]
    assert found.role_of_rank.tolist() == [0, 1, 0, 1]
    talks = [[found.groups[found.group_of[rank][number]].ranks for number in (0, 1)] for rank in range(4)]
    assert talks == [[FOUR.ranks, (0, 1)]] * 2 + [[FOUR.ranks, (2, 3)]] * 2
    assert found.events[0].group.tolist() == [1, 0]
    laid = replay(found, Choice({"all_reduce": "ring"}), star_of(4))
    assert in_ms(report(found, laid, run_graph(laid.graph)))[0] == pytest.approx(0.004 + 2 * 3 / 4)  # 4 kB, then 1 MB by rings


def test_a_root_is_that_of_the_first_copy(words):
    """On the group of all ranks the second stage begins later, so that its root has another place."""
    dp = (Group("dp", (0, 1)), Group("dp", (2, 3)))
    asked = words.events(words.collective(10, group=0), words.collective(10, "broadcast", group=1, root=2))
    trace = trace_of(asked, role_of_rank=(0,) * 4, groups=(*dp, FOUR), group_of=((0, 2), (0, 2), (1, 2), (1, 2)))
    found = grown(trace, 8)
    assert [g.ranks for g in found.groups if g.axis == "dp"] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert found.events[0].root.tolist() == [0, 4]


def test_ranks_that_lie_on_no_grid_are_followed_by_their_copies(words):
    """Groups of data parallelism with ranks in no order leave each copy behind the one before."""
    dp = (Group("dp", (0, 3)), Group("dp", (2, 1)))
    trace = trace_of(words.events(words.collective(10)), role_of_rank=(0,) * 4, groups=dp, group_of=((0,), (1,), (1,), (0,)))
    assert [g.ranks for g in grown(trace, 8).groups] == [(0, 3, 4, 7), (2, 1, 6, 5)]


REFUSED = {
    "--ranks must be a multiple of the 4 ranks of the trace, got 6": ({}, 6),
    "--ranks must be a multiple of the 4 ranks of the trace, got 0": ({}, 0),
    "event 0 of rank 0 (all_to_all of 12 on dp) has a part for each of 4 ranks": ({"name": "all_to_all"}, 8),
    "event 0 of rank 0 (all_gather of 12 on dp) must divide into 8 equal shards": ({"name": "all_gather"}, 8),
    "event 0 of rank 0 (reduce_scatter of 12 on dp) must divide into 8 equal shards": ({"name": "reduce_scatter"}, 8),
    "the trace has no group of data parallelism (dp), but tp": ({"axis": "tp"}, 8),
    "the trace has no collective of data parallelism to grow": ({"kind": 2, "root": 1}, 8),
}


@pytest.mark.parametrize("told", list(REFUSED))
def test_what_cannot_grow(words, told):
    """One line names the event and the group."""
    more, ranks = REFUSED[told]
    axis = more.pop("axis", "dp") if (more := dict(more)) is not None else ""
    asked = words.events({**words.collective(12), **more})
    trace = trace_of(asked, role_of_rank=(0,) * 4, groups=(Group(axis, (0, 1, 2, 3)),))
    with pytest.raises(InputError, match=re.escape(told)):
        grown(trace, ranks)


def test_groups_without_an_axis_may_grow_or_not(words):
    """Only the group of all ranks is taken to grow where nothing names it."""
    pairs = (Group("", (0, 1)), Group("", (2, 3)))
    trace = trace_of(words.events(words.collective(12)), role_of_rank=(0,) * 4, groups=pairs, group_of=((0,), (0,), (1,), (1,)))
    with pytest.raises(InputError, match="the group of ranks 0, 1 has no axis"):
        grown(trace, 8)
    every = trace_of(words.events(words.collective(12)), role_of_rank=(0,) * 4, groups=(Group("", (0, 1, 2, 3)),))
    assert grown(every, 8).groups[0].ranks == tuple(range(8))


def test_the_group_of_all_ranks_does_not_grow_beside_axes_of_which_none_is_known_to_be_of_data(words):
    """Their gradients would stay as they are in silence."""
    rows, columns = (Group("rows", (0, 1)), Group("rows", (2, 3))), (Group("columns", (0, 2)), Group("columns", (1, 3)))
    own = ((0, 1, 3), (0, 1, 4), (0, 2, 3), (0, 2, 4))
    asked = words.events(words.collective(12), words.collective(12, group=2))
    trace = trace_of(asked, role_of_rank=(0,) * 4, groups=(FOUR, *rows, *columns), group_of=own)
    with pytest.raises(InputError, match=r"no group of data parallelism \(dp\), but world, rows, columns"):
        grown(trace, 8)


def test_a_group_of_one_rank_tells_nothing_of_a_grid(words):
    dp = (Group("dp", (0, 3)), Group("dp", (2, 1)), Group("dp", (2,)))
    own = ((0,), (1,), (1,), (0,))
    trace = trace_of(words.events(words.collective(10)), role_of_rank=(0,) * 4, groups=dp, group_of=own)
    assert [g.ranks for g in grown(trace, 8).groups] == [(0, 3, 4, 7), (2, 1, 6, 5)]


def test_roots_at_different_places_in_groups_of_equal_ranks_are_refused(words):
    """Both groups are of all ranks. One lists them upwards, so that copies come between, and the other does not."""
    groups = (Group("dp", (0, 1)), Group("dp", (2, 3)), Group("data", (0, 1, 2, 3)), Group("data", (2, 3, 0, 1)))
    asked = words.events(words.collective(10), words.collective(10, "broadcast", group=1, root=2))

    def of(*second):
        own = tuple((rank // 2, number) for rank, number in enumerate(second))
        return grown(trace_of(asked, role_of_rank=(0,) * 4, groups=groups, group_of=own), 8).events[0].root.tolist()

    assert (of(2, 2, 2, 2), of(3, 3, 3, 3)) == ([0, 4], [0, 2])
    with pytest.raises(InputError, match="roots of broadcast have different places in groups of equal ranks"):
        of(2, 2, 3, 3)


def test_shards_of_stated_sizes_do_not_grow_though_the_whole_divides(words):
    for more in ({"name": "reduce_scatter"}, {"name": "all_gather"}):
        even = words.events({**words.collective(16), **more})
        uneven = words.events({**words.collective(16), **more, "splits": (4, 4, 4, 4)})
        groups = (Group("dp", (0, 1, 2, 3)),)
        assert grown(trace_of(even, role_of_rank=(0,) * 4, groups=groups), 8).n_ranks == 8
        with pytest.raises(InputError, match=rf"\({more['name']} of 16 on dp\) must divide into 8 equal shards"):
            grown(trace_of(uneven, role_of_rank=(0,) * 4, groups=groups), 8)


def numbers_of(words, *groups, n=8):
    """The groups of a grown trace of n ranks, twice as many, by the groups that it was recorded with."""
    own = tuple(tuple(i for i, group in enumerate(groups) if rank in group.ranks) for rank in range(n))
    trace = trace_of(words.events(words.collective(16)), role_of_rank=(0,) * n, groups=groups, group_of=own)
    return [group.ranks for group in grown(trace, 2 * n).groups]


def test_copies_follow_the_largest_groups_that_lie_on_a_grid(words):
    """Groups of four are larger than pairs; where one of three lies on none, pairs tell where copies go."""
    fours = [Group("dp", (4, 5, 6, 7)), Group("dp", (0, 1, 2, 3))]
    pairs = [Group("edp", (i, i + 1)) for i in range(0, 8, 2)]
    both = numbers_of(words, *pairs, *fours)
    assert both == [(0, 1, 4, 5), (2, 3, 6, 7), (8, 9, 12, 13), (10, 11, 14, 15), tuple(range(8)), tuple(range(8, 16))]
    assert numbers_of(words, *pairs)[:2] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    for three in ((0, 1, 2), (7, 5, 3)):
        assert numbers_of(words, *pairs, Group("data", three))[:2] == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_a_role_without_data_parallelism_grows_beside_one_that_has_some(words):
    roles = words.events(words.collective(10)), words.events(words.compute(3))
    found = grown(trace_of(*roles, role_of_rank=(0, 1), groups=(Group("dp", (0, 1)),)), 4)
    assert found.role_of_rank.tolist() == [0, 1, 0, 1]
    assert [events.count.tolist() for events in found.events] == [[10], [0]]


def test_what_ranks_tell_one_another_in_set_up_is_as_much_of_each_rank(words):
    """A gather in a step is of the whole, which stays; stated sizes of set-up are those of nobody new."""
    told, asked = words.collective(12, "all_gather", step=0), words.collective(16, "all_gather", instance=1)
    dp = (Group("dp", (0, 1, 2, 3)),)
    found = grown(trace_of(words.events(told, asked), role_of_rank=(0,) * 4, groups=dp), 8)
    assert (found.events[0].count.tolist(), found.events[0].bytes.tolist()) == ([24, 16], [96, 64])
    stated = words.events({**told, "splits": (3, 3, 3, 3)}, asked)
    with pytest.raises(InputError, match="all_gather of 12 on dp"):
        grown(trace_of(stated, role_of_rank=(0,) * 4, groups=dp), 8)


@pytest.mark.parametrize("change", [str, str.upper, str.title])
def test_the_axis_of_both_halves_of_data_parallelism_grows_with_the_replicas_and_not_the_shards(words, change):
    axes = {"dp_replicate": ((0, 2), (1, 3)), "dp_shard": ((0, 1), (2, 3)), "dp_replicate_shard": ((0, 1, 2, 3),)}
    groups = tuple(Group(change(axis), ranks) for axis, several in axes.items() for ranks in several)
    own = tuple(tuple(i for i, group in enumerate(groups) if rank in group.ranks) for rank in range(4))
    found = grown(trace_of(words.events(words.collective(8)), role_of_rank=(0,) * 4, groups=groups, group_of=own), 8)
    assert [(group.axis.lower(), group.ranks) for group in found.groups] == [
        *(("dp_replicate", ranks) for ranks in ((0, 2, 4, 6), (1, 3, 5, 7))),
        *(("dp_shard", ranks) for ranks in ((0, 1), (2, 3), (4, 5), (6, 7))),
        ("dp_replicate_shard", tuple(range(8))),
    ]


def test_the_group_of_all_ranks_grows_beside_groups_of_one_rank_each(words):
    groups = Group("world", (0, 1)), Group("tp", (0,)), Group("tp", (1,))
    found = grown(trace_of(words.events(words.collective(8)), groups=groups, group_of=((0, 1), (0, 2))), 4)
    assert [group.ranks for group in found.groups] == [(0, 1, 2, 3), (0,), (1,), (2,), (3,)]
