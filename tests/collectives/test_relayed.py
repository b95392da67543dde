"""Items that are relayed between neighbours only, by shortest paths, load every link alike."""

import numpy as np
import pytest

from collectives import relayed
from emu.collective.algorithm import algorithm
from emu.errors import InputError

DIMS = [(2,), (5,), (8,), (2, 2), (3, 4), (4, 4), (2, 3, 4), (2, 2, 2, 2)]


def digits(ranks, dims) -> np.ndarray:
    return np.stack(np.unravel_index(ranks, dims), axis=-1)


def test_four_ranks_in_a_ring_send_the_opposite_ranks_item_half_each_way():
    built = relayed.ring(4).expand()
    sends = [
        [
            (int(built.dst[i]), *divmod(int(built.slot[i]) // 2, 4), int(built.slot[i]) % 2)
            for i in np.flatnonzero(built.src[r] == 0) + r.start
        ]
        for r in built.rounds()
    ]
    assert sends == [  # (dst, s, d, part)
        [(1, 0, 1, 0), (1, 0, 1, 1), (1, 0, 2, 0), (3, 0, 2, 1), (3, 0, 3, 0), (3, 0, 3, 1)],
        [(1, 3, 1, 0), (3, 1, 3, 1)],
    ]


@pytest.mark.parametrize("dims", DIMS)
def test_every_hop_goes_one_place_up_or_down_one_dimension_as_its_channel_says(dims):
    built = relayed.torus(dims).expand()
    moved = (digits(built.dst, dims) - digits(built.src, dims)) % dims
    step = np.where(built.channel == 0, 1, -1)[:, None] % dims
    assert ((moved == 0) | (moved == step)).all()
    assert ((moved != 0).sum(axis=1) == 1).all()
    assert built.n_rounds == sum(d // 2 for d in dims)


@pytest.mark.parametrize("dims", DIMS)
def test_every_part_takes_as_many_hops_as_the_shortest_path(dims):
    built, n = relayed.torus(dims).expand(), np.prod(dims)
    source, sink = np.divmod(np.arange(2 * n * n) // 2, n)
    apart = (digits(sink, dims) - digits(source, dims)) % dims
    shortest = np.minimum(apart, dims - apart).sum(axis=1)
    assert np.array_equal(np.bincount(built.slot, minlength=2 * n * n), shortest)


@pytest.mark.parametrize("dims", DIMS)
def test_every_link_of_a_dimension_carries_the_same(dims):
    """In a line of d ranks that is floor(d*d/4)/2 items each way for each of the n/d items that a rank has for a place."""
    built, n = relayed.torus(dims).expand(), int(np.prod(dims))
    moved = np.argmax(digits(built.src, dims) != digits(built.dst, dims), axis=1)
    for i, d in enumerate(dims):
        for channel in range(2):
            rows = (moved == i) & (built.channel == channel)
            assert np.bincount(built.src[rows], minlength=n).tolist() == [d * d // 4 * n // d] * n  # in halves of items


def test_a_torus_of_five_dims_is_refused_with_one_that_works():
    with pytest.raises(InputError, match="all_to_all torus: does not take shape 2x2x2x2x2; 4x8 works"):
        algorithm("all_to_all", "torus").schedule((2, 2, 2, 2, 2))
