"""The waste that faults make of a machine, held to InfiniteHBD's examples and to exact expectations."""

import numpy as np
import pytest
from scipy.stats import binom

from emu.errors import InputError
from emu.study.faults import waste as study
from emu.study.faults.source import MachineStates, independent_states
from emu.study.faults.waste import machine_of, waste_of
from emu.topology.catalogue import build_topology


def one_state(faulty):
    return MachineStates(np.ones(1), np.atleast_2d(faulty), np.zeros(1))


def wasted(word, npus, group, *broken):
    faulty = np.zeros(npus, np.bool_)
    faulty[list(broken)] = True
    found = waste_of(machine_of(build_topology(word), npus), group, one_state(faulty))
    return round(found.mean * npus)


def test_the_examples_of_infinitehbd_2_1_and_1():
    assert waste_of(machine_of(build_topology("nvl:36"), 36), 16, one_state(np.zeros(36, np.bool_))).mean == pytest.approx(
        4 / 36
    )
    assert wasted("big-switch:n=32", 64, 16, 0, 32) == 30  # two HBDs of 32, a fault in each
    assert wasted("big-switch:n=64", 64, 16, 0, 32) == 14


@pytest.mark.parametrize(("word", "unit"), [("nvl:72", 72), ("big-switch:n=2880", 2880), ("tpuv4:cubes=5x3x3", 64)])
@pytest.mark.parametrize("group", [8, 32])
def test_the_mean_over_draws_is_what_the_binomial_distribution_expects(word, unit, group):
    rate, node = 0.0117, 4
    found = waste_of(machine_of(build_topology(word), 2880), group, independent_states(rate, 2880 // node, 3000, seed=0))
    nodes = np.arange(unit // node + 1)
    expected = binom.pmf(nodes, unit // node, rate) @ ((unit - node * nodes) % group) / unit
    assert found.mean == pytest.approx(expected, rel=0.04)


def test_a_machine_of_copies_counts_each_by_itself():
    rack, several = build_topology("nvl:72"), 3
    states = independent_states(0.05, 72 * several // 4, 200, seed=1)
    together = waste_of(machine_of(rack, 72 * several + 5), 16, states)
    parts = [
        waste_of(machine_of(rack, 72), 16, MachineStates(states.share, part, states.begin)).usable
        for part in np.split(states.faulty, several, axis=1)
    ]
    assert together.copies == several
    assert together.usable.tolist() == np.sum(parts, axis=0).tolist()


def test_shares_of_the_time_weigh_the_states():
    faulty = np.zeros((3, 16), np.bool_)
    faulty[1, 0], faulty[2, :8] = True, True
    found = waste_of(
        machine_of(build_topology("big-switch:n=64"), 64), 16, MachineStates(np.array([0.5, 0.3, 0.2]), faulty, np.arange(3.0))
    )
    assert found.usable.tolist() == [64, 48, 32]
    assert found.mean == pytest.approx(0.3 * 12 / 64)
    assert found.availability == pytest.approx((0.5 * 64 + 0.3 * 48 + 0.2 * 32) / 64)
    assert [found.largest_job(share) for share in (0.5, 0.8, 1.0)] == [64, 48, 32]
    assert found.quantile(0.7) == 0 < found.quantile(0.71)


def test_one_fault_takes_a_node_a_group_or_a_ring():
    def radius(word, group):
        return waste_of(machine_of(build_topology(word), 2880), group, independent_states(0, 720, 1, 0)).explosion_radius

    assert radius("infinitehbd:k=3", 4) == 4
    assert radius("infinitehbd:k=3", 32) == 32  # 2,880 is a multiple of 32, so a node's fault breaks up one group
    assert radius("sip-ring:size=64,rings=45", 16) == 64
    assert radius("tpuv4:cubes=5x3x3", 64) == 64


def test_the_radius_is_that_of_the_worst_unit_however_few_are_looked_at_together(monkeypatch):
    monkeypatch.setattr(study, "_CHUNK", 72)  # one state of a machine of 72 NPUs
    states = independent_states(0, 9, 1, 0)
    assert (
        waste_of(machine_of(build_topology("nvl:36"), 72), 12, states).explosion_radius == 24
    )  # of one of nine nodes; of the others 12


def test_one_fault_of_a_node_that_lies_in_two_racks_is_counted_in_both():
    def radius(word, npus, units, group):
        return waste_of(machine_of(build_topology(word), npus), group, independent_states(0, units, 1, 0)).explosion_radius

    assert radius("nvl:36", 72, 9, 4) == 8  # the fifth of nine nodes has four GPUs of each rack
    assert radius("nvl:36", 72, 9, 12) == 24  # and takes a group of both
    assert radius("nvl:36", 144, 2, 36) == 72  # two racks a node


def test_the_radius_of_a_machine_of_many_nodes_is_found_in_pieces(monkeypatch):
    machine, states = machine_of(build_topology("tpuv4:cubes=2x2x2"), 512), independent_states(0, 128, 1, 0)
    whole = waste_of(machine, 16, states).explosion_radius
    monkeypatch.setattr(study, "_CHUNK", 1000)
    assert waste_of(machine, 16, states).explosion_radius == whole == 16


def test_a_backup_npu_in_a_group_makes_no_waste_of_less_than_nothing():
    found = waste_of(machine_of(build_topology("ub-mesh:rack-full"), 64), 1, independent_states(0.02, 64, 100, seed=0))
    assert found.faulty.max() > 0
    assert found.wasted.min() == 0


def test_a_machine_smaller_than_its_topology_and_nodes_that_do_not_divide_it_are_one_line():
    with pytest.raises(InputError, match="faults: --npus must be 72 or more, those of nvl:72, got 64"):
        machine_of(build_topology("nvl:72"), 64)
    with pytest.raises(InputError, match="faults: units must be a divisor of the 72 NPUs of nvl:72, got 7"):
        waste_of(machine_of(build_topology("nvl:72"), 72), 8, independent_states(0.1, 7, 1, 0))


@pytest.mark.parametrize("tenths", range(1, 11))
def test_a_share_of_the_time_that_ends_with_a_state_is_that_of_this_state(tenths):
    """Ten states last equally long, and the n-th has n faulty nodes of four; sums of tenths are not all exact."""
    faulty = np.arange(16) < np.arange(1, 11)[:, None]
    found = waste_of(
        machine_of(build_topology("big-switch:n=64"), 64), 16, MachineStates(np.full(10, 0.1), faulty, np.arange(10.0))
    )
    most = sorted(((64 - 4 * n) // 16 * 16 for n in range(1, 11)), reverse=True)
    least = sorted((64 - 4 * n) % 16 / 64 for n in range(1, 11))
    assert found.largest_job(tenths / 10) == most[tenths - 1]
    assert found.quantile(tenths / 10) == least[tenths - 1]
