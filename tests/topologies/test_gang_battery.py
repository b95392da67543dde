"""Every topology of the catalogue places jobs beside others: on free NPUs, each once, as many groups as its own rule counts."""

from functools import cache
from itertools import product

import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.gang_rule import anywhere, gang_placer, in_boxes
from emu.topology.usable_npus import usable_npus

LINES = [":".join(filter(None, (name, example))) for name, blueprint in TOPOLOGIES for example in blueprint.examples]
build = cache(build_topology)


@pytest.mark.parametrize("line", LINES)
def test_jobs_get_free_npus_each_once_and_the_whole_machine_takes_whole_groups(line):
    topology = build(line)
    place, rng = gang_placer(topology), np.random.default_rng(0)
    free = np.ones(topology.n_npus, np.bool_)
    for size in {1, 2, 3, topology.n_npus // 2 or 1, topology.n_npus}:
        npus = place(size, min(size, 8), free)
        assert len(npus) == len(set(npus.tolist()))
        assert not len(npus) or len(npus) >= size
        some = free & (rng.random(topology.n_npus) < 0.8)
        assert some[place(size, min(size, 8), some)].all()
    assert len(place(topology.n_npus + 1, 1, free)) == 0
    assert len(place(1, 1, np.zeros_like(free))) == 0
    assert len(place(1, 1, free)) >= 1


def _most_in_groups(topology, group, faulty):
    """The NPUs of groups by the rule of faults; all that work where that rule is of one job alone, or of backups."""
    alone = topology.usable_counter is None and topology.placer is not None
    return int((~faulty).sum()) // group * group if alone else int(usable_npus(topology, group, faulty[None])[0])


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("group", [1, 4, 8])
def test_as_many_groups_find_room_round_faults_as_the_rule_of_faults_counts(line, group):
    topology, rng = build(line), np.random.default_rng(group)
    place, unit = gang_placer(topology), topology.dims[-1] if len(topology.dims) > 1 else 1  # a fault takes a whole node
    for rate in (0.0, 0.05, 0.2):
        faulty = np.repeat(rng.random(topology.n_npus // unit) < rate, unit)
        try:
            most = _most_in_groups(topology, group, faulty)
        except InputError:
            return  # no part of the machine can hold such a group
        if topology.usable_counter is not None or place is anywhere:
            assert not most or len(place(most, group, ~faulty)) == most
        assert len(place(most + group, group, ~faulty)) == 0


def _free_boxes(grid):
    """The volume of every box of free points of a grid, by trying all."""
    for begin in np.ndindex(grid.shape):
        for extent in product(*(range(1, most - at + 1) for at, most in zip(begin, grid.shape, strict=True))):
            box = grid[tuple(slice(at, at + each) for at, each in zip(begin, extent, strict=True))]
            if box.all():
                yield box.size


@pytest.mark.parametrize("dims", [(4, 4), (3, 4, 2), (1, 7)])
def test_a_job_on_a_grid_gets_the_smallest_free_box_that_has_room(dims):
    place, rng = in_boxes(dims), np.random.default_rng(0)
    for _ in range(40):
        free = rng.random(dims) < 0.8
        volumes, size = {*_free_boxes(free)}, int(rng.integers(1, free.size + 1))
        npus = place(size, 1, free.ravel())
        assert len(npus) == min((volume for volume in volumes if volume >= size), default=0)
        assert free.ravel()[npus].all()
        at = np.unravel_index(npus, dims)
        assert len(npus) == 0 or np.prod([np.ptp(each) + 1 for each in at]) == len(npus)


@pytest.mark.parametrize(
    ("dims", "corner", "size", "held"),
    [((16, 16, 16), (8, 8, 8), 300, 320), ((16, 16, 16), (8, 8, 8), 320, 320), ((2,) * 9, (2,) * 3 + (1,) * 6, 8, 8)],
)
def test_a_job_gets_the_only_box_that_is_free_however_many_shapes_come_before_it(dims, corner, size, held):
    """More than 64 shapes are smaller than the one that fits the corner of the grid, or as small and come before it."""
    free = np.zeros(dims, np.bool_)
    free[tuple(slice(extent) for extent in corner)] = True
    npus = in_boxes(dims)(size, 1, free.ravel())
    assert len(npus) == held
    assert free.ravel()[npus].all()
