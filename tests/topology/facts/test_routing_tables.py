"""The entries of routing tables: an entry for each digit of an address where a digit decides, one for each destination else."""

from itertools import product

import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.facts.routing_tables import TableSize, table_size


@pytest.mark.parametrize(
    ("word", "flat", "structured"),
    [
        ("ub-mesh:board", 7, 7),
        ("ub-mesh:rack", 63, 7 + 7),
        ("ub-mesh:pod", 1023, 3 + 3 + 7 + 7),
        ("ub-mesh:superpod:dims=2x2x2x2x4", 63, 1 + 1 + 1 + 1 + 3),
        ("torus:dims=4x5,bandwidth=50GB/s,latency=500ns", 19, 3 + 4),
    ],
)
def test_a_mesh_needs_an_entry_for_each_other_value_of_a_digit(word: str, flat: int, structured: int) -> None:
    """Whatever the NPU: pods, racks, boards and NPUs of a board have one each, in place of one for each NPU."""
    topology = build_topology(word)
    for npu in (0, topology.n_npus // 2 + 1, topology.n_npus - 1):
        assert table_size(topology, npu) == TableSize(flat, structured)


def test_routes_that_no_digit_decides_need_an_entry_each() -> None:
    """With X-Y and Y-X in turn, the ways to an NPU off row and column are those of no other."""
    assert table_size(build_topology("ub-mesh:rack:route=multipath"), 9).structured == 63


def test_a_message_finds_its_first_link_by_the_first_digit_that_differs() -> None:
    """In a rack X is looked at first, then Y: the tables of 7 and 7 entries give the first link of every route."""
    rack = build_topology("ub-mesh:rack")
    for npu in (0, 27):
        others = np.setdiff1d(np.arange(64), npu)
        routes = rack.routes(np.full(63, npu), others, np.zeros(63, np.int64))
        first = dict(zip(others.tolist(), routes.link[routes.start[:-1]].tolist(), strict=True))
        y, x = divmod(npu, 8)
        for Y, X in product(range(8), range(8)):
            if (y, x) != (Y, X):
                assert first[8 * Y + X] == first[8 * y + X if x != X else 8 * Y + x]


def test_an_npu_that_is_not_there_is_refused() -> None:
    """The message names the NPUs that are."""
    with pytest.raises(InputError, match=r"NPU of a routing table must be 0\.\.7"):
        table_size(build_topology("ub-mesh:board"), 8)
