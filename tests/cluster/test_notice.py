import numpy as np
import pytest
import torch
from torch.distributed import ReduceOp

from emu.backend.rank import call
from emu.backend.rank.call import Call, Members
from emu.cluster.notice import call_of, calls_of, notice, notice_size

GROUP = Members("0", (4, 7, 9), "dp")
N = len(GROUP.ranks)
CALLS = {
    "all_reduce": call.all_reduce([torch.ones(5)], ReduceOp.MAX),
    "barrier": call.barrier(),
    "broadcast": call.broadcast([torch.ones(5, dtype=torch.bfloat16)], 2, 1),
    "gather off the root": call.gather([], torch.ones(3), 0, 1),
    "scatter on the root": call.scatter(torch.ones(2), [torch.ones(2)] * N, 1, 1),
    "uneven all_gather": call.all_gather([[torch.ones(i)] for i in range(N)], [torch.ones(1)]),
    "uneven all_to_all": call.all_to_all([torch.ones(i) for i in range(N)], [torch.ones(2 * i) for i in range(N)], 1),
    "send": call.send(torch.ones(4, dtype=torch.bool), 2, 5),
    "recv": call.receive(torch.ones(4, dtype=torch.complex64), 0, 5),
}


@pytest.mark.parametrize("made", CALLS.values(), ids=CALLS)
def test_what_the_others_are_told_is_what_was_called(made: Call) -> None:
    made = made.on(GROUP, 1)
    told = call_of(notice(made), GROUP, 1)
    for field in ("name", "operation", "dtype", "count", "reduce", "root", "tag", "group", "rank", "global_rank"):
        assert getattr(told, field) == getattr(made, field), field
    assert told.input.shape == made.input.shape
    assert told.output.shape == made.output.shape
    assert all(np.array_equal(t, m) for t, m in zip(told.known, made.known, strict=True))
    assert told.describe() == made.describe()


def test_every_notice_of_a_group_has_one_size() -> None:
    assert {len(notice(made.on(GROUP, 1))) for made in CALLS.values()} == {notice_size(N)}


def test_notices_in_a_table_are_the_calls_of_the_ranks_in_their_order() -> None:
    table = torch.stack([notice(call.all_reduce([torch.ones(r)], ReduceOp.SUM).on(GROUP, r)) for r in range(N)])
    assert [(c.rank, c.global_rank, c.count) for c in calls_of(table, GROUP)] == [(0, 4, 0), (1, 7, 1), (2, 9, 2)]
