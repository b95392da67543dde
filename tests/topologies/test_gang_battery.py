"""Every topology of the catalogue places jobs beside others: on free NPUs, each once, as many groups as its own rule counts."""

from functools import cache

import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.gang_rule import anywhere, gang_placer
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
