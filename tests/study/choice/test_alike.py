"""Groups that a symmetry brings to one another are asked about as one."""

import numpy as np
import pytest

from emu.collective.algorithm import Request
from emu.study.choice.alike import first_alike
from emu.study.choice.chooser import choice_on
from emu.study.choice.fastest import fastest
from emu.study.choice.wanted import AUTO
from emu.topology.catalogue import build_topology

POD = build_topology("ub-mesh:pod:dims=2x2x4x4")


def groups(n, size, stride=1):
    ranks = np.arange(n).reshape(-1, size, stride)
    return [tuple(row) for block in ranks for row in block.T.tolist()]


@pytest.mark.parametrize(
    ("line", "size", "stride", "kinds"),
    [
        ("ub-mesh:pod:dims=2x2x4x4", 4, 1, 1),  # the NPUs of a board
        ("ub-mesh:pod:dims=2x2x4x4", 4, 4, 1),  # one of each board of a rack
        ("ring:n=12,bandwidth=50GB/s,latency=500ns", 3, 1, 1),
        ("ring:n=12,bandwidth=50GB/s,latency=500ns", 3, 4, 1),
        ("torus:dims=4x6,bandwidth=50GB/s,latency=500ns", 2, 1, 1),  # pairs along a row, each begun at an even place
        ("servers:nodes=6,gpus=4", 4, 1, 1),  # the GPUs of a server
        ("servers:nodes=6,gpus=4,network=rails", 6, 4, 1),  # one of each server: a rail
        ("servers:nodes=6,gpus=4,network=switch", 2, 2, 1),  # every second of a server
        ("fat-tree:radix=4", 2, 1, 4),  # which declares no symmetry
    ],
)
def test_groups_that_are_shifts_of_one_another_are_one(line, size, stride, kinds):
    topology = build_topology(line)
    found = {first_alike(topology, group) for group in groups(topology.n_npus, size, stride)}
    assert len(found) == kinds
    assert groups(topology.n_npus, size, stride)[0] in found


def test_groups_of_another_form_stay_apart():
    """Along a dimension, and across two."""
    assert first_alike(POD, (5, 6)) == (0, 1)
    assert first_alike(POD, (5, 9)) == (0, 4)
    assert first_alike(POD, (5, 10)) == (0, 5)


def test_an_image_is_served_as_the_group_that_is_asked_about(monkeypatch):
    asked = []

    def spied(site, wanted):
        asked.append(site.npus)
        return fastest(site, wanted)

    monkeypatch.setattr("emu.study.choice.chooser.fastest", spied)
    choice = choice_on(POD, (AUTO,), "float32")
    served = [choice.served(Request("all_reduce", group, 0, 2**16, "float32")) for group in groups(64, 4)]
    assert len(set(served)) == 1
    assert asked == [(0, 1, 2, 3)] * 16
