"""How far a host has kept up, without a clock: by the times that it is told."""

import math
import pickle

import pytest

from emu.cluster.pace.timeliness import NOT_LATE, Lateness, Pace, Tempo, TimelinessRecord
from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import parse_fault
from tests.cluster.pace.paced_runs import DEVICE


def kept(*messages: tuple[float, float]) -> TimelinessRecord:
    found = TimelinessRecord()
    for took_s, late_s in messages:
        found.message(took_s, late_s)
    return found


@pytest.mark.parametrize(
    ("took_s", "late_s", "in_time"),
    [
        (1.0, 0.019, 1),  # within 2 % of what it took
        (1.0, 0.021, 0),
        (1e-3, 9e-5, 1),  # or within 0.1 ms, if that is more
        (1e-3, 1.1e-4, 0),
        (1.0, -0.5, 1),
    ],
)
def test_a_message_is_in_time_within_2_percent_or_a_tenth_of_a_millisecond(took_s: float, late_s: float, in_time: int) -> None:
    assert kept((took_s, late_s)).late == Lateness(1, in_time, max(0.0, late_s))


def test_what_is_told_is_the_number_in_time_and_the_worst_of_all_messages_and_the_sum_of_all_computations() -> None:
    found = kept((1.0, 0.5), (1.0, 0.25), (1.0, 0.0), (1.0, 0.01))
    found.computation(0.125)
    found.computation(0.0625)
    found.met(["link 2-4 failed"])
    found.met(["link 2-4 works again"])
    told = found.figures(1000.0, computes=True)
    assert (told.wall_messages, told.wall_in_time, told.wall_in_time_share) == (4, 2, 0.5)
    assert (told.wall_worst_late_s, told.wall_compute_late_s) == (0.5, 0.1875)
    assert told.wall_met == ("link 2-4 failed", "link 2-4 works again")
    assert (told.pace, told.computes, told.faults) == (1000.0, True, ())


def test_what_others_have_counted_is_added_and_the_worst_of_all_is_the_worst() -> None:
    found = kept((1.0, 0.25))
    found.add((Lateness(3, 2, 0.75, 0.5), Lateness(2, 2, 0.125, 0.25)))
    assert found.late == Lateness(6, 4, 0.75, 0.75)


def test_a_run_without_a_message_was_in_time_and_another_process_counts_from_0() -> None:
    told = TimelinessRecord().figures(1.0, computes=False)
    assert (told.wall_messages, told.wall_in_time_share, told.computes) == (0, 1.0, False)
    assert pickle.loads(pickle.dumps(kept((1.0, 1.0)))).late == NOT_LATE


@pytest.mark.parametrize("factor", [1e-9, 0.25, 1.0, 1000.0, 1e12])
def test_a_pace_is_seconds_of_this_host_for_a_second_of_virtual_time(factor: float) -> None:
    tempo = Tempo(factor, DEVICE)
    assert tempo.real_s(3 * 10**15) == pytest.approx(3 * factor)
    assert tempo.virtual_fs(3 * factor) == pytest.approx(3 * 10**15)
    assert tempo.virtual_fs(0.5 * factor * 1e-15) == 0  # ticks are whole


@pytest.mark.parametrize("factor", [0.0, -0.0, -1.0, math.inf, -math.inf, math.nan])
def test_a_pace_that_never_passes_is_refused(factor: float) -> None:
    with pytest.raises(InputError, match=r"^pace: --pace must be above 0, and finite, got .*; such as 1000: "):
        Tempo(factor, DEVICE)


def test_a_dtype_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InputError, match="float12"):
        Tempo(1.0, DEVICE, "float12")


def test_two_runs_count_apart_and_a_pace_tells_its_faults_and_its_own_run() -> None:
    switch = build_topology("switch:n=4,bandwidth=1GB/s,latency=700ns")
    own, other = Tempo(5.0, DEVICE, computes=False), Tempo(7.0, DEVICE)
    assert (own.events, other.computes) == (True, True)
    own.kept.message(1.0, 0.5)
    other.kept.computation(0.25)
    faults = ("link 0-4 at 5us", "link 1-4 slow 0.5 at 9us")
    told = Pace(own, switch, tuple(map(parse_fault, faults))).figures()
    assert (told.pace, told.computes, told.wall_messages, told.wall_compute_late_s) == (5.0, False, 1, 0.0)
    assert len(told.faults) == 2
    assert "0-4" in told.faults[0]
    assert "1-4" in told.faults[1]
    rest = Pace(other, switch).figures()
    assert (rest.pace, rest.computes, rest.wall_messages, rest.wall_compute_late_s, rest.faults) == (7.0, True, 0, 0.25, ())
