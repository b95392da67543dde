"""Places on a machine of several copies of a switch: which copy a job goes to, how it lies on several, and what could start."""

import numpy as np
import pytest

from emu.study.faults.waste import Machine
from emu.study.queue.gang_machine import FREE, GangMachine, NpuTime
from emu.topology.catalogue import build_topology
from tests.study.queue.queues import SWITCH


def machine(held: tuple[int, ...] = (), copies: int = 3, node: int = 1) -> GangMachine:
    """A machine of copies of six NPUs, of each of which so many are held from the first on."""
    found = GangMachine(Machine(build_topology(SWITCH.format(6)), copies), node)
    for copy, count in enumerate(held):
        found.hold(np.arange(6 * copy, 6 * copy + count), 77)
    return found


@pytest.mark.parametrize(
    ("held", "size", "group", "places"),
    [
        ((0, 3, 1), 3, 3, [9, 10, 11]),  # the fullest copy that has room
        ((0, 4, 1), 3, 3, [13, 14, 15]),
        ((2, 2, 2), 4, 4, [2, 3, 4, 5]),  # of equal ones the first
        ((1, 2, 3), 8, 2, [1, 2, 3, 4, 8, 9, 10, 11]),  # two groups of the five that are free, then two of four
        ((6, 0, 0), 12, 6, [*range(6, 12), *range(12, 18)]),
        ((6, 1, 0), 12, 6, []),
        ((5, 5, 5), 3, 1, [5, 11, 17]),
        ((5, 5, 5), 3, 3, []),
        ((5, 5, 5), 4, 1, []),
        ((0, 3, 3), 7, 3, [0, 1, 2, 3, 4, 5, 9]),  # the last group is of one NPU
    ],
)
def test_a_job_goes_to_the_fullest_copy_that_has_room_or_else_over_those_that_are_emptiest(
    held: tuple[int, ...], size: int, group: int, places: list[int]
) -> None:
    found = machine(held)
    got = found.place(size, group, found.free).tolist()
    assert got == places
    alone = found.place(size, group, found.free, in_one_copy=True).tolist()
    assert alone == (places if len({place // 6 for place in places}) == 1 else [])


def test_of_many_copies_that_are_as_full_a_job_goes_to_the_first_with_room() -> None:
    """Every third of 90 copies has two free NPUs, the others four or one."""
    found = machine((2, 5, 4) * 30, copies=90)
    assert found.place(2, 2, found.free).tolist() == [16, 17]
    assert found.place(3, 1, found.free).tolist() == [2, 3, 4]
    assert found.place(10, 1, found.free).tolist() == [2, 3, 4, 5, 20, 21, 22, 23, 38, 39]


@pytest.mark.parametrize(("held", "group", "largest"), [((0, 3, 1), 3, 12), ((0, 3, 1), 2, 12), ((5, 6, 1), 1, 6), ((), 4, 12)])
def test_the_largest_job_has_all_groups_that_each_copy_has_room_for(held: tuple[int, ...], group: int, largest: int) -> None:
    assert machine(held).largest(group) == largest == machine(held).largest(group)


def test_room_on_the_empty_machine_is_that_without_jobs_and_in_one_copy_less() -> None:
    found = machine((6, 6, 6))
    assert found.has_ever_room(12, 6)
    assert not found.has_ever_room(12, 6, in_one_copy=True)
    assert found.has_ever_room(6, 6, in_one_copy=True)
    assert found.has_ever_room(18, 6)
    assert not found.has_ever_room(18, 4)
    assert found.has_ever_room(12, 6)  # as before


def test_faults_of_a_node_are_counted_and_its_npus_serve_again_after_the_last_repair() -> None:
    """Nodes of four NPUs: the second lies in two copies."""
    found = machine(node=4)
    assert found.node(1).tolist() == [4, 5, 6, 7]
    found.fail(1)
    found.fail(1)
    found.repair(1)
    assert np.flatnonzero(found.failed).tolist() == np.flatnonzero(~found.serves).tolist() == [4, 5, 6, 7]
    found.hold(np.array([0, 8]), 5)
    assert np.flatnonzero(~found.free).tolist() == [0, 4, 5, 6, 7, 8]
    found.repair(1)
    assert found.serves.all()
    assert found.sound.all()
    found.hold(np.array([8]), FREE)
    assert np.flatnonzero(~found.free).tolist() == [0]


@pytest.mark.parametrize(("faulty", "serves"), [((1, 3, 4, 6), "11101101"), ((4, 6), "11111101"), ((3, 6), "11111111")])
def test_a_backup_stands_in_for_an_npu_of_its_own_rack_alone(faulty: tuple[int, ...], serves: str) -> None:
    """A rack of four NPUs has one backup, for the first of its NPUs that are faulty."""
    found = GangMachine(Machine(build_topology("ub-mesh:pod:dims=1x2x2x2"), 2), 1)
    for npu in faulty:
        found.fail(8 + npu)
    assert "".join(map(str, found.serves.astype(int))) == "1" * 8 + serves
    for npu in faulty:
        found.repair(8 + npu)
    assert found.serves.all()


def test_time_of_idle_npus_is_counted_from_change_to_change() -> None:
    time = NpuTime()
    time.change(10, {"idle": 3, "faulty": 1})
    time.add("work", 7)
    time.change(25, {"idle": 2})
    time.change(25, {"blocked": 5})
    time.change(30, {})
    time.change(90, {"idle": 8})
    spent = {reason: us for reason, us in time.spent_us.items() if us}
    assert spent == {"idle": 45, "faulty": 15, "work": 7, "blocked": 25}


@pytest.mark.parametrize(("copies", "most"), [(2, 96), (3, 144)])
def test_groups_that_fill_whole_blocks_take_as_much_room_on_several_copies_as_on_one(copies: int, most: int) -> None:
    """Groups of 3 hold nodes of 4 NPUs each, so that a copy of 16 nodes has room for 16 groups, 48 NPUs."""
    found = GangMachine(Machine(build_topology("infinitehbd:binary:nodes=16"), copies), 4)
    assert len(found.place(most, 3, found.free)) == 64 * copies
    assert len(found.place(most + 1, 3, found.free)) == 0
