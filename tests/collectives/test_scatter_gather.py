"""The two halves, what a rank's port carries, and why a reduce is not a broadcast backwards."""

import numpy as np
import pytest

from collectives.binomial import broadcast_in_halves as broadcast
from collectives.binomial import reduce_in_halves as reduce
from emu.collective.operation import operation
from emu.collective.proof import ProofError, prove
from emu.collective.transform import dual

NS = (2, 3, 7, 8, 16)


@pytest.mark.parametrize("n", NS)
def test_it_takes_the_rounds_of_a_tree_and_of_a_ring(n):
    height = (n - 1).bit_length()
    moved = sum(rank.bit_count() for rank in range(n))
    for built in (broadcast(n), reduce(n)):
        assert (built.n_rounds, built.n_rows) == (height + n - 1, moved + n * (n - 1))


@pytest.mark.parametrize("n", NS)
def test_the_roots_port_carries_twice_all_slots_but_one(n):
    sent, received = np.bincount(broadcast(n).src, minlength=n), np.bincount(reduce(n).dst, minlength=n)
    assert sent[0] == received[0] == sent.max() == received.max() == 2 * (n - 1)


@pytest.mark.parametrize("n", NS)
def test_between_the_halves_rank_r_holds_slot_r(n):
    arrived = broadcast(n).rounds()[: (n - 1).bit_length()]
    held = {(int(broadcast(n).dst[i]), int(broadcast(n).slot[i])) for rows in arrived for i in range(rows.start, rows.stop)}
    assert {(r, r) for r in range(1, n)} <= held
    last = reduce(n).rounds()[n - 2]
    assert np.array_equal(reduce(n).slot[last], reduce(n).dst[last])


def test_a_broadcast_backwards_is_no_reduce():
    with pytest.raises(ProofError, match="it must have each once"):
        prove(dual(broadcast(4)), operation("reduce", 4))
