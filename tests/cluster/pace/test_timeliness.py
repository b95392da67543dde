"""How far a host has kept up, without a clock: by the times that it is told."""

import pickle

import pytest

from emu.cluster.pace.timeliness import NOT_LATE, Lateness, TimelinessRecord


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
