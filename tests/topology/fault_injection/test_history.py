"""A machine from moment to moment: what fails carries nothing, and by other routes messages go once the system is mended."""

import pytest

from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import parse_fault
from emu.topology.fault_injection.machine_history import MachineHistory, MachineMoment
from emu.topology.topology import Topology
from emu.units import MAX_TICKS

NS, MS = 10**6, 10**12  # ticks
BOARD = build_topology("ub-mesh:board")
RACK = build_topology("ub-mesh:rack-full:dims=2x4")


def moments(topology: Topology, *texts: str, ranks: int = 8, detect_fs: int = 0) -> list[MachineMoment]:
    course = MachineHistory(topology, [parse_fault(text) for text in texts], ranks, detect_fs)
    found = []
    while course.next_fs < MAX_TICKS:
        found.append(course.turn())
    return found


def share_of(moment: MachineMoment, a: int, b: int) -> list[float]:
    links = moment.found.topology.links
    return moment.share[(links.src == a) & (links.dst == b)].tolist()


def test_a_link_that_fails_carries_nothing_until_routes_lead_round_it() -> None:
    failed, mended = moments(BOARD, "link 0-1 at 1ms")
    assert (failed.time_fs, mended.time_fs) == (MS, MS + 300 * NS)
    assert (share_of(failed, 0, 1), share_of(failed, 1, 0), share_of(failed, 0, 2)) == ([0], [0], [1])
    assert failed.events == ("link 0-1 failed",)
    assert (failed.told, failed.mended_fs, mended.mended_fs) == ("", 0, 300 * NS)
    assert "direct notification" in mended.told
    assert (share_of(mended, 0, 1), set(mended.share.tolist())) == ([], {1})


def test_what_is_slow_keeps_its_routes() -> None:
    slow, whole = moments(BOARD, "link 0-1 slow 0.25 from 1ms to 3ms")
    assert slow.found is whole.found
    assert (share_of(slow, 0, 1), share_of(whole, 0, 1)) == ([0.25], [1])
    assert whole.events == ("link 0-1 is as before",)


def test_a_link_that_is_back_before_the_system_is_mended_is_served_again_at_once() -> None:
    found = moments(BOARD, "link 0-1 from 1ms to 1.0001ms")
    assert [share_of(moment, 0, 1) for moment in found[:2]] == [[0], [1]]
    assert share_of(found[-1], 0, 1) == [1]
    assert found[-1].found.topology.name == BOARD.name


def test_a_machine_without_a_clock_of_its_own_mends_itself_in_the_same_moment() -> None:
    (only,) = moments(build_topology("torus:dims=4x4,bandwidth=50GB/s,latency=500ns"), "link 0-1 at 1ms", ranks=16)
    assert share_of(only, 0, 1) == []
    assert "routes lead round it" in only.told


def test_a_slow_npu_shows_in_the_speed_of_its_rank() -> None:
    slow, whole = moments(RACK, "npu 5 slow 0.5 from 1ms to 2ms")
    assert slow.speed.tolist() == [1, 1, 1, 1, 1, 0.5, 1, 1]
    assert whole.speed.tolist() == [1] * 8


def test_the_ranks_that_faults_take_are_named_once() -> None:
    failed, mended, killed = moments(RACK, "npu 5 at 1ms", "rank 2 kill at 5ms")
    assert [(fault.what, rank) for fault, rank in failed.taken] == [("npu 5", 5)]
    assert mended.taken == ()
    assert mended.found.npus.tolist() == [0, 1, 2, 3, 4, 40, 6, 7]
    assert [(fault.what, rank) for fault, rank in killed.taken] == [("rank 2", 2)]


def test_where_the_system_cannot_the_moment_says_why() -> None:
    (only,) = moments(BOARD, *(f"link 0-{i} at 1ms" for i in range(1, 8)))
    assert only.stops.startswith("NPU 0 is cut off, as no links join it to the others: ")


def test_where_the_system_could_not_it_can_again_once_a_part_is_back() -> None:
    """A job that waits for a repair runs then on the fabric that it had before; what follows is met as anything else."""
    cut = [f"link 0-{i} from 1ms to 2ms" for i in range(1, 8)]
    stopped, still, back, failed, mended = moments(BOARD, *cut, "npu 3 slow 0.5 at 1.5ms", "link 0-1 at 3ms")
    assert stopped.stops == still.stops != ""
    assert (back.time_fs, back.stops, back.share.min()) == (2 * MS, "", 1)
    assert (share_of(failed, 0, 1), share_of(mended, 0, 1)) == ([0], [])


def test_a_system_that_notices_late_mends_itself_as_much_later() -> None:
    """The time until a fault is detected comes before the time that the reaction takes, at a return too."""
    found = moments(BOARD, "link 0-1 from 1ms to 5ms", detect_fs=2 * MS)
    assert [moment.time_fs for moment in found] == [MS, 3 * MS + 300 * NS, 5 * MS, 7 * MS + 300 * NS]


def test_steps_come_when_they_begin() -> None:
    course = MachineHistory(BOARD, [parse_fault("link 0-1 slow 0.5 from step 2 to 3")], 8)
    turned = []
    for step, now_fs in ((1, 5), (2, 70), (2, 80), (3, 90), (4, 100)):
        course.step(step, now_fs)
        while course.next_fs < MAX_TICKS:
            turned.append(course.turn())
    assert [(moment.time_fs, moment.events) for moment in turned] == [
        (70, ("link 0-1 has 0.5 of its speed",)),
        (100, ("link 0-1 is as before",)),
    ]


@pytest.mark.parametrize("texts", [(), ("link 0-1 at step 2",)])
def test_without_faults_at_times_nothing_is_to_come(texts: tuple[str, ...]) -> None:
    assert moments(BOARD, *texts) == []


def test_a_reaction_that_a_stop_breaks_off_begins_again_when_the_stop_ends() -> None:
    """A backup NPU would take the place of NPU 5 at 2 ms; from 1.5 to 1.8 ms a second NPU fails, for which there is none."""
    alone = moments(RACK, "npu 5 at 1ms", detect_fs=MS)[-1]
    assert alone.told
    found = moments(RACK, "npu 5 at 1ms", "npu 6 from 1.5ms to 1.8ms", detect_fs=MS)
    failed, stopped, back, mended = found
    assert [moment.time_fs for moment in found[:3]] == [MS, 15 * MS // 10, 18 * MS // 10]
    assert (bool(stopped.stops), back.stops, back.told) == (True, "", "")
    assert mended.told == alone.told
    assert mended.time_fs - back.time_fs == alone.time_fs - failed.time_fs


SEGMENT = build_topology("hpn:segment:dims=4x2")


def test_a_repair_that_is_under_way_ends_in_its_time_whatever_else_comes_and_goes() -> None:
    """BGP takes 1 s; another link is away for 100 ms of every 800 ms, and once begins to be so when the repair ends."""
    others = [f"link 3-14 from {at}ms to {at + 100}ms" for at in range(1200, 5000, 800)]
    alone = moments(SEGMENT, "link 0-12 at 1s")[-1]
    found = moments(SEGMENT, "link 0-12 at 1s", *others)
    (ended,) = (moment for moment in found if moment.time_fs == alone.time_fs == 2000 * MS)
    assert (share_of(ended, 0, 12), share_of(ended, 3, 14), ended.told) == ([], [0], alone.told)
    assert all(share_of(moment, 0, 12) == [] for moment in found if moment.time_fs > 2000 * MS)
    both = next(moment for moment in found if moment.time_fs == 2200 * MS)  # the other fails, and is back before that
    assert (share_of(both, 3, 14), both.mended_fs) == ([1], 1000 * MS)
    assert "; back: " in both.told


def test_a_rank_is_not_lost_once_more_to_a_fault_that_is_not_its_own() -> None:
    """NPU 5 waits for its backup while a link of other NPUs fails; a second failure of its own takes the rank again."""
    found = moments(RACK, "npu 5 at 1ms", "link 0-1 at 2ms", detect_fs=5 * MS)
    assert [[(fault.what, rank) for fault, rank in moment.taken] for moment in found[:2]] == [[("npu 5", 5)], []]
    assert [moment.waits for moment in found] == [True, True, False, False]
    again = moments(RACK, "npu 5 from 1ms to 2ms", "npu 5 at 3ms", detect_fs=5 * MS)
    assert [[rank for _, rank in moment.taken] for moment in again[:3]] == [[5], [], [5]]
