"""A bench on a topology: what it refuses names the option as it was written."""

import pytest

from emu.errors import InputError
from emu.study.measure.request import BenchRequest, place_bench, sizes_between
from emu.topology.catalogue import build_topology

GRID = "torus:dims=4x2,bandwidth=1GB/s,latency=1us"


@pytest.mark.parametrize("axes", [(0, 7), (0,), (0, 0), (2, 1), (0, 1, 2), (-1, 0)])
def test_axes_that_a_topology_does_not_have_are_refused_before_they_are_used(axes):
    with pytest.raises(InputError, match=r"^placement: axes must be each of 0\.\.1 once, the dims 4x2 of torus"):
        place_bench(build_topology(GRID), BenchRequest("all_reduce", "ring", (2**20,), axes=axes))


def test_axes_that_it_has_turn_the_grid_of_its_ranks():
    site = place_bench(build_topology(GRID), BenchRequest("all_reduce", "ring", (2**20,), axes=(1, 0))).site
    assert site.npus == (0, 2, 4, 6, 1, 3, 5, 7)
    assert site.grid == (2, 4)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sizes": (6,)}, "bench: --size must be a multiple of 4 bytes, the size of a float32, got 6"),
        ({"dims": (3, 2)}, "bench: --dims must be a grid of the 8 ranks, got '3x2'"),
    ],
)
def test_what_does_not_fit_names_its_option(given, says):
    request = BenchRequest(**{"operation": "all_reduce", "algorithm": "ring", "sizes": (2**20,), **given})
    with pytest.raises(InputError) as error:
        place_bench(build_topology(GRID), request)
    assert str(error.value) == says


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((0, 4, 2.0), "bench: --size, or -b and -e, must be above 0, and the end not below"),
        ((4, 8, 1.0), "bench: --factor must be above 1, got"),
    ],
)
def test_sizes_that_do_not_grow_name_their_options(given, says):
    with pytest.raises(InputError, match=f"^{says}"):
        sizes_between(*given)
