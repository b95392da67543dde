"""Requests of a role as columns: which of them are those of one group, in which order."""

import numpy as np
import pytest

from emu.trace.matching.role_requests import RequestColumns, Requester, RoleRequests
from emu.trace.trace import Kind

SEND, GATHER = Kind.SEND, Kind.COLLECTIVE


def of_groups(*requests: tuple[int, int, Kind]) -> RoleRequests:
    """Return the requests of one role, each by the number of its group, its instance and its kind."""
    group, instance, kind = (np.array(each, np.int64) for each in zip(*requests, strict=True))
    rows, zero = np.arange(len(requests)), np.zeros(len(requests), np.int64)
    return RoleRequests([RequestColumns(rows, kind, group, instance, *[zero] * 8)], [""], ())


@pytest.mark.parametrize(
    ("numbers", "collectives", "messages"),
    [((0,), [4, 0], []), ((0, 2), [4, 5, 0], [3]), ((1,), [1], [2]), ((0, 1, 2), [4, 5, 1, 0], [2, 3]), ((3,), [], [])],
)
def test_a_group_with_several_numbers_has_the_requests_of_all_in_the_order_of_their_instances(numbers, collectives, messages):
    requests = ((0, 3, GATHER), (1, 2, GATHER), (1, 0, SEND), (2, 1, SEND), (0, 0, GATHER), (2, 1, GATHER))
    every, requester = of_groups(*requests), Requester(0, numbers, 0)
    assert every.of(requester, messages=False).row.tolist() == collectives
    assert every.of(requester, messages=True).row.tolist() == messages
