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
