"""Who is whose partner, how much goes how far, and which numbers of ranks are refused."""

import numpy as np
import pytest

from collectives import recursive
from emu.collective.algorithm import algorithm
from emu.errors import InputError
from tests.collectives.follow import sent_by

NS = (1, 2, 4, 8, 32)


def test_eight_ranks_step_by_step():
    assert sent_by(recursive.all_reduce(8), 5) == [(4, [0]), (7, [0]), (1, [0])]
    assert sent_by(recursive.all_gather(8), 5) == [(4, [5]), (7, [4, 5]), (1, [4, 5, 6, 7])]
    assert sent_by(recursive.halving(8), 5) == [(4, [0, 2, 4, 6]), (7, [3, 7]), (1, [1])]
    assert sent_by(recursive.doubling(8), 5) == [(1, [5]), (7, [1, 5]), (4, [1, 3, 5, 7])]


@pytest.mark.parametrize("n", NS)
def test_every_round_is_an_exchange_between_partners(n):
    q = n.bit_length() - 1
    for built, n_rounds in ((recursive.all_reduce(n), q), (recursive.all_gather(n), q), (recursive.halving_doubling(n), 2 * q)):
        assert built.n_rounds == n_rounds
        for rows in built.rounds():
            assert len(set((built.src[rows] ^ built.dst[rows]).tolist())) == 1


@pytest.mark.parametrize("n", NS)
def test_halving_doubling_sends_half_of_the_block_to_the_nearest_and_one_slot_to_the_farthest(n):
    built = recursive.halving_doubling(n)
    by_distance = np.bincount(built.src ^ built.dst, minlength=n)
    assert {d: by_distance[d] for d in np.flatnonzero(by_distance)} == {2**t: n * n // 2**t for t in range(n.bit_length() - 1)}


@pytest.mark.parametrize("n", NS[1:])
def test_recursive_doubling_sends_half_of_the_result_to_the_farthest(n):
    built = recursive.all_gather(n)
    by_distance = np.bincount(built.src ^ built.dst, minlength=n)
    assert {d: by_distance[d] for d in np.flatnonzero(by_distance)} == {2**t: n * 2**t for t in range(n.bit_length() - 1)}


@pytest.mark.parametrize(
    ("operation", "name"),
    [(o, "halving-doubling") for o in ("all_reduce", "reduce_scatter", "all_gather")]
    + [(o, "recursive-doubling") for o in ("all_reduce", "all_gather")],
)
def test_other_numbers_of_ranks_are_refused(operation, name):
    with pytest.raises(InputError, match=f"{operation} {name}: cannot run on 6 ranks; nearest that work: 4, 8"):
        algorithm(operation, name).schedule(6)
