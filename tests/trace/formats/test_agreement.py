"""The profiles of several ranks complete one another's requests."""

from types import SimpleNamespace

import pytest

from emu.errors import InputError
from emu.trace.formats.kineto.agreement import agreed_requests
from emu.trace.formats.kineto.profiled_events import ProfiledEvents, Seen
from emu.trace.formats.kineto.profiled_request import ProfiledRequest
from emu.trace.formats.kineto.rank_events import RankEvents


def profiled(*sizes: tuple[int, str]) -> RankEvents:
    """The events of a rank that takes part in all_to_alls, each with the buffer and the dtype that the rank knows."""
    events = ProfiledEvents()
    for number, (elements, dtype) in enumerate(sizes):
        asked = ProfiledRequest("all_to_all", elements, dtype, 0, 0, (), (0, 1), "world")
        events.request(1, 0, asked, Seen(10.0 * number, 10.0 * number + 5, number), ())
    return RankEvents(SimpleNamespace(rank=0, file="rank.json"), events, 0)


@pytest.mark.parametrize("unknown", range(3))
def test_each_request_has_the_largest_buffer_and_the_dtype_that_any_member_knows(unknown):
    """In turn the first, the second and the last request is one of which rank 1 knows less."""
    known = [(100 * (number + 1), "float32") for number in range(3)]
    less = [(1, "") if number == unknown else each for number, each in enumerate(known)]
    found = agreed_requests({0: profiled(*known), 1: profiled(*less)})
    for of_rank in found.values():
        assert [(asked.elements, asked.dtype) for asked in of_rank.values()] == known


def test_a_dtype_that_no_member_knows_is_named():
    with pytest.raises(InputError, match="has a dtype that no profile tells"):
        agreed_requests({rank: profiled((8, "float32"), (8, "")) for rank in range(2)})


def of_requests(*asked: ProfiledRequest, file: str = "rank.json") -> RankEvents:
    """The events of a rank that makes these requests, the first of which is event 40 of its file."""
    events = ProfiledEvents()
    for turn, each in enumerate(asked):
        events.request(3 + turn, 0, each, Seen(10.0 * turn, 10.0 * turn + 5, 40 + turn), ())
    return RankEvents(SimpleNamespace(rank=0, file=file), events, 0)


SUM = ProfiledRequest("all_reduce", 8, "float32", 1, 0, (), (0, 1, 2), "world")
LAST = SUM._replace(operation="broadcast", elements=9)


@pytest.mark.parametrize("odd", [1, 2])
@pytest.mark.parametrize(
    ("other", "mine", "theirs"),
    [
        (LAST._replace(operation="reduce"), "broadcast of 9 float32 by 1", "reduce of 9 float32 by 1"),
        (LAST._replace(elements=7), "broadcast of 9 float32 by 1", "broadcast of 7 float32 by 1"),
        (LAST._replace(dtype="int64"), "broadcast of 9 float32 by 1", "broadcast of 9 int64 by 1"),
        (LAST._replace(root=0), "broadcast of 9 float32 by 1", "broadcast of 9 float32 by 0"),
        (LAST._replace(dtype="", root=2), "broadcast of 9 by 1", "broadcast of 9 by 2"),
    ],
)
def test_a_call_in_which_a_member_differs_from_the_first_is_told_by_both_events(odd, other, mine, theirs):
    """The first call of all is equal; the odd member is the second or the third."""
    ranks = {rank: of_requests(SUM, other if rank == odd else LAST, file=f"{rank}.json") for rank in range(3)}
    with pytest.raises(InputError) as error:
        agreed_requests(ranks)
    assert str(error.value) == (
        f"profile: members of a group must make the same calls: event 41 of '0.json' is {mine} in step 4, event 41 of "
        f"'{odd}.json' is {theirs} in step 4; profile the same steps on every rank"
    )


@pytest.mark.parametrize("fewer", [0, 1])
def test_a_member_that_makes_fewer_calls_is_told_by_the_end_of_its_file(fewer):
    ranks = {rank: of_requests(SUM, *[LAST] * (rank != fewer), file=f"{rank}.json") for rank in range(2)}
    last = "event 41 of '{}.json' is broadcast of 9 by 1 in step 4", "the end of '{}.json' is nothing"
    told = ", ".join(last[rank == fewer].format(rank) for rank in range(2))
    with pytest.raises(InputError) as error:
        agreed_requests(ranks)
    said = "profile: members of a group must make the same calls: "
    assert str(error.value) == f"{said}{told}; profile the same steps on every rank"


def test_members_may_differ_in_what_their_operation_leaves_to_each():
    """The root of a sum is read by nobody, members of an all_to_all have buffers of their own, and messages have two ends."""
    every = SUM._replace(operation="all_to_all")
    mine = of_requests(SUM, every, SUM._replace(operation="send", elements=3))
    theirs = of_requests(SUM._replace(root=2), every._replace(elements=5))
    found = agreed_requests({0: mine, 2: theirs})
    assert [asked.elements for asked in found[0].values()] == [8, 8, 3]
    assert [(asked.elements, asked.root) for asked in found[2].values()] == [(8, 2), (8, 1)]


EXCHANGE = ProfiledRequest("all_to_all", 0, "float32", 0, 0, (), (0, 1), "world")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (((1000, 1000), (1000, 9000)), ((1000, 1000), (1000, 9000))),
        (((0, 0), (4000, 6000)), ((0, 0), (4000, 6000))),
        (((1, 1), (500, 500)), ((1, 1), ())),
        (((500, 500), (500, 500)), ((), ())),
        (((0, 0), (0, 0)), ((), ())),
        (((), (4, 6)), ((), (4, 6))),
    ],
)
def test_split_sizes_are_left_out_only_where_they_cut_the_largest_buffer_evenly(given, kept):
    """Equal blocks of a smaller buffer, or of none, are kept: without sizes the largest buffer would be cut."""
    ranks = {n: of_requests(EXCHANGE._replace(elements=sum(of), splits=of)) for n, of in enumerate(given)}
    found = agreed_requests(ranks)
    assert tuple(asked.splits for of_rank in found.values() for asked in of_rank.values()) == kept
    events = [tuple(ranks[n].events.events(found[n]).split.tolist()) for n in found]
    assert tuple(events) == kept


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (SUM._replace(ranks=(0, 1)), "is of ranks 0, 1, without rank 2 itself"),
        (SUM._replace(ranks=()), "is of no known ranks"),
        (SUM._replace(root=3), "(all_reduce) must have a root or a peer below 3, the size of its group, got 3; profile again"),
        (
            SUM._replace(root=-1),
            "(all_reduce) must have a root or a peer below 3, the size of its group, got -1; profile again",
        ),
    ],
)
def test_a_rank_and_its_root_are_members_of_the_group_of_each_request(asked, why):
    with pytest.raises(InputError) as error:
        agreed_requests({2: of_requests(SUM, SUM._replace(root=2), asked)})
    assert str(error.value) == f"profile: event 42 of 'rank.json' {why}"
