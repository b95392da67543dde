"""The sources of faults: servers of a log on a machine, drawn lifetimes and probabilities, and what is said of each."""

from dataclasses import replace

import numpy as np
import pytest

from emu.errors import InputError
from emu.study.faults.source import (
    FaultLog,
    LoggedFaults,
    MachineStates,
    PartLifetimes,
    draw_log,
    independent_faults,
    lifetime_faults,
    states_of_log,
)
from emu.study.faults.waste import check_group, machine_of, waste_of
from emu.topology.catalogue import build_topology

# Of seven servers of 8 NPUs each is faulty for one day, server s from day s on.
DAILY = FaultLog(7, 7.0, np.arange(7), np.arange(7.0), np.arange(1.0, 8.0), np.arange(7))
ALWAYS = FaultLog(7, 10.0, np.arange(7), np.zeros(7), np.full(7, 10.0), np.arange(7))
NEVER = PartLifetimes(1e9, 1.0)


def logged(log, node=8, seed=5, parts=()):
    return LoggedFaults(node, seed, log, "a log", 8, parts)


def test_a_machine_has_other_servers_of_a_log_each_with_its_own_faults():
    found = logged(DAILY).for_machine(3 * 8)
    days = found.states.begin[found.states.faulty.any(axis=1)].tolist()
    assert found.states.faulty.shape[1] == 3
    assert found.states.faulty.sum(axis=1).max() == 1
    assert found.states.faulty.sum(axis=0).tolist() == [1, 1, 1]
    assert len(days) == 3
    assert found.states.mean_faulty == pytest.approx(1 / 7)
    assert found.per_day == pytest.approx(3 / 7)
    assert found.notes == (
        "faults are those of a log: 14.29 % of its hosts are faulty in the mean",
        "3 of its 7 hosts are taken, in an order drawn with seed 5",
    )
    again, other = (logged(DAILY, seed=seed).for_machine(3 * 8).states for seed in (5, 6))
    assert np.array_equal(again.faulty, found.states.faulty)
    assert other.begin[other.faulty.any(axis=1)].tolist() != days
    assert logged(DAILY).for_machine(7 * 8).states.faulty.sum(axis=0).tolist() == [1] * 7


def test_the_last_server_may_have_more_nodes_than_the_machine():
    """Eleven nodes of two NPUs are of three servers of four, of which one is left out."""
    found = logged(ALWAYS, node=2).for_machine(22)
    assert found.states.faulty.tolist() == [[True] * 11]
    assert found.per_day == 3 / 10  # the eleven nodes fail with their three servers
    assert found.notes[1:] == (
        "3 of its 7 hosts are taken, in an order drawn with seed 5",
        "each of the 4 nodes of 2 NPUs of a faulty server is faulty by itself, with a probability by which NPUs fail by "
        "themselves: all nodes of a server may be, or none",
    )


def test_nodes_of_one_server_lie_side_by_side():
    """With q near 1 all four nodes of a server are faulty, each on the day of that server."""
    log = FaultLog(
        7, 7.0, np.arange(7), np.arange(7.0), np.full(7, 7.0), np.arange(7)
    )  # the first for seven days, the last for one
    faulty = logged(log, node=2).for_machine(24).states.faulty
    first = [int(np.flatnonzero(faulty[:, unit])[0]) for unit in range(12) if faulty[:, unit].any()]
    places = [unit // 4 for unit in range(12) if faulty[:, unit].any()]
    assert len({*zip(places, first, strict=True)}) == len({*places}) == len({*first})
    assert len(places) > len({*places})


def test_domains_fail_beside_the_servers_of_a_log():
    alone = logged(DAILY).for_machine(24)
    quiet = logged(DAILY, parts=(NEVER,)).for_machine(24)
    assert np.array_equal(quiet.states.faulty, alone.states.faulty)
    assert quiet.notes == (*alone.notes, "faults of domains are drawn beside the log, seed 5")
    drawn = draw_log((PartLifetimes(2.0, 0.25, units_per_part=3),), 3, 7.0, 5)
    both = logged(DAILY, parts=(PartLifetimes(2.0, 0.25, units_per_part=3),)).for_machine(24)
    assert both.per_day == pytest.approx((3 + len(drawn.unit) / 3) / 7)
    assert both.states.mean_faulty > alone.states.mean_faulty + 0.03
    assert both.states.faulty.all(axis=1).any()


@pytest.mark.parametrize(
    ("node", "npus", "line"),
    [
        (3, 24, "faults: --npus-per-node must be a divisor of the 8 of a server of the log, got 3"),
        (2, 25, "faults: --npus-per-node must be a divisor of the machine's 25, got 2; take nodes of 1"),
        (8, 64, "faults: the machine must be at most 7 hosts of 8 NPUs, those of the log, got 8; take fewer NPUs, or faults"),
    ],
)
def test_a_machine_that_a_log_does_not_fit_is_one_line(node, npus, line):
    with pytest.raises(InputError) as error:
        logged(DAILY, node=node).for_machine(npus)
    assert str(error.value).startswith(line)


def test_what_is_drawn_is_said_with_its_seed():
    found = lifetime_faults(24, 2, (PartLifetimes(3.0, 0.5, units_per_part=5), NEVER), 90.0, 11)
    log = draw_log((PartLifetimes(3.0, 0.5, units_per_part=5), NEVER), 12, 90.0, 11)
    assert np.array_equal(found.states.faulty, states_of_log(log).faulty)
    domains = len(np.unique(np.stack((log.unit // 5, log.start)), axis=1).T)
    assert found.per_day == domains / 90 < len(log.unit) / 90  # a domain of five nodes interrupts a job once
    assert found.notes == ("faults are drawn for 90 days, seed 11; on day 0 everything works",)
    many = lifetime_faults(300, 1, (PartLifetimes(3.0, 0.5),), 90.0, 11)
    assert many.notes[1:] == ("the machine is looked at at 2048 even moments, as it changes more often",)
    chance = independent_faults(24, 4, 0.125, 40, 3)
    assert chance.states.faulty.shape == (40, 6)
    assert (chance.per_day, chance.states.begin.tolist()) == (None, list(range(40)))
    assert chance.states.begin.dtype == np.float64
    assert chance.states.share.tolist() == [1 / 40] * 40
    assert chance.notes == ("each node of 4 NPUs is faulty with 12.5 %, by itself: 40 draws, seed 3",)


def test_spells_of_one_length_end_with_the_log():
    log = replace(
        DAILY, unit=np.array([0, 3, 3]), start=np.array([0.5, 2.0, 6.0]), end=np.array([4.0, 2.5, 6.25]), fault=np.arange(3)
    )
    assert log.lasting(1.5).end.tolist() == [2.0, 3.5, 7.0]
    assert log.lasting(1.5).start is log.start
    assert log.mean_repair_days == pytest.approx((3.5 + 0.5 + 0.25) / 3)
    assert replace(log, unit=log.unit[:0], start=log.start[:0], end=log.end[:0], fault=log.fault[:0]).mean_repair_days == 0
    for days in (0.0, np.inf):
        with pytest.raises(InputError, match="faults: days of a repair must be a finite number above 0, got"):
            log.lasting(days)


def test_a_job_waits_while_fewer_npus_are_in_groups_and_one_that_never_fits_is_refused():
    machine = machine_of(build_topology("big-switch:n=20"), 43)
    states = MachineStates(np.array([0.5, 0.3, 0.2]), np.zeros((3, 40), np.bool_), np.arange(3.0))
    states.faulty[1, [0, 1, 2, 3, 4, 5]] = True  # groups of 6: two of 14 NPUs, beside three of the other 20
    states.faulty[2, [0, 25]] = True
    found = waste_of(machine, 6, states)
    assert (found.npus, found.copies, found.usable.tolist()) == (40, 2, [36, 30, 36])
    assert [found.waiting(job) for job in (30, 31, 36)] == pytest.approx([0, 0.3, 0.3])
    assert found.wasted.tolist() == pytest.approx([4 / 40, 4 / 40, 2 / 40])
    for job in (0, 37):
        line = f"--job must be 1..36, the NPUs in groups of 6 that big-switch:n=20 has room for, got {job}; take a smaller"
        with pytest.raises(InputError, match=line):
            check_group(machine, 6, job)
    check_group(machine, 6, 36)
    check_group(machine, 6)


def test_each_part_of_a_kind_takes_its_own_units_and_the_last_what_is_left():
    log = draw_log((PartLifetimes(2.0, 1.0, units_per_part=3),), 7, 3000.0, 1)
    spells = [sorted(zip(log.start[log.unit == unit], log.end[log.unit == unit], strict=True)) for unit in range(7)]
    assert spells[0] == spells[1] == spells[2] != spells[3] == spells[4] == spells[5] != spells[6]
    found = states_of_log(replace(log, end=np.minimum(log.end, 3000.0)))
    assert found.share @ found.faulty == pytest.approx([1 / 3] * 7, abs=0.05)
    assert (log.units, log.end.max() <= 3000.0, set(log.unit.tolist())) == (7, True, set(range(7)))


def test_a_job_has_no_more_room_than_whole_groups_within_copies_have():
    """Two switches of 72 NPUs each have room for two groups of 32, though four and a half fit 144 NPUs."""
    machine = machine_of(build_topology("nvl:72"), 144)
    found = waste_of(machine, 32, MachineStates(np.array([1.0]), np.zeros((1, 144), np.bool_), np.zeros(1)))
    assert found.waiting(128) == 0
    with pytest.raises(InputError, match=r"--job must be 1..128, the NPUs in groups of 32"):
        found.waiting(129)
