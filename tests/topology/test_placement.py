import pytest

from emu.errors import InputError
from emu.topology.grid import Dimension, grid
from emu.topology.placement import place

FOUR = grid("four", [Dimension(4, "complete", 1e9, 0)])


def test_ranks_take_the_first_npus():
    assert place(FOUR, 3).tolist() == [0, 1, 2]


def test_ranks_sit_where_they_are_put():
    assert place(FOUR, 3, [3, 0, 2]).tolist() == [3, 0, 2]


@pytest.mark.parametrize(
    ("ranks", "npus", "message"),
    [
        (5, None, "placement: 5 ranks do not fit four with its 4 NPUs; take fewer ranks or a larger topology"),
        (2, [1, 1], "placement: 2 ranks need 2 different NPUs, got 1"),
        (2, [0, 1, 2], "placement: 2 ranks need 2 different NPUs, got 3"),
        (2, [0, 4], "placement: NPUs must be 0..3, got 0..4"),
        (2, [-1, 0], "placement: NPUs must be 0..3, got -1..0"),
    ],
)
def test_a_placement_that_cannot_be_is_refused(ranks, npus, message):
    with pytest.raises(InputError) as refused:
        place(FOUR, ranks, npus)
    assert str(refused.value) == message
