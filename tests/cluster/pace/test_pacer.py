"""The fabric of a paced run by a clock that stands: when each request is answered, foretold, and told as late."""

from typing import Any

import pytest
import torch

from emu.backend.rank import rank_requests
from emu.backend.rank.rank_requests import Members, RankRequest
from emu.cluster.call_matcher import CallMatcher
from emu.cluster.cluster import settle_call
from emu.cluster.pace.pacer import PaceListeners, Pacer
from emu.cluster.pace.timeliness import Pace, Tempo
from emu.errors import LostError, RunError
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import parse_fault
from emu.topology.topology import Topology
from tests.cluster.pace.paced_runs import CHOICE, DEVICE
from tests.cluster.pace.stopped_clock import StoppedClock

SWITCH = build_topology("switch:n=4,bandwidth=1GB/s,latency=700ns")
WORLD, PAIR = Members("world", (0, 1, 2, 3)), Members("pair", (2, 3), "tp")
MB = 250_000  # float32 elements, of a megabyte: a millisecond of a link, and a second of this host
LATENCY_S = 1.4e-3  # of this host, over two links


class Job:
    """Four ranks on a switch at a pace of 1000, with all that the fabric tells them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *faults: str, of: Topology = SWITCH, n: int = 4) -> None:
        self.clock, self.matcher = StoppedClock(monkeypatch), CallMatcher()
        self.due, self.expected = dict[Any, tuple[float, float]](), list[tuple[Any, float | None]]()
        self.speeds, self.stops = list[list[float]](), list[BaseException]()
        listeners = PaceListeners(
            lambda key, time_s: self.expected.append((key, time_s)),
            lambda key, time_s, late_s: self.due.update({key: (pytest.approx(time_s), pytest.approx(late_s))}),
            lambda speed: self.speeds.append(speed.tolist()),
            self.stops.append,
        )
        self.pace = Pace(Tempo(1000.0, DEVICE), of, tuple(map(parse_fault, faults)))
        self.of = Pacer(self.pace, n, CHOICE, listeners, self.clock)  # type: ignore[arg-type]

    def ask(self, key: str, request: RankRequest, group: Members, rank: int, at_s: float | None = None, step: int = 0) -> None:
        """Let a rank make a request now, of which the fabric hears now, though it was made at another time perhaps."""
        arrival = self.matcher.number_request(request.on(group, rank), key)
        self.of.arrived(arrival, step, self.clock.now_s if at_s is None else at_s)
        if met := self.matcher.match(arrival):
            calls = [each.request for each in met]
            self.of.matched(settle_call(CHOICE, calls, met[0].instance), met)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


def send(elements: int, to: int, tag: int = 0) -> RankRequest:
    return rank_requests.send(torch.empty(elements), to, tag)


def receive(elements: int, source: int, tag: int = 0) -> RankRequest:
    return rank_requests.receive(torch.empty(elements), source, tag)


def reduced(elements: int) -> RankRequest:
    return rank_requests.all_reduce([torch.empty(elements)], torch.distributed.ReduceOp.SUM)


def test_a_message_begins_with_its_later_end_and_is_answered_when_it_has_left_and_come(job: Job) -> None:
    job.ask("s", send(3 * MB, 1), WORLD, 0)
    job.clock.until(102)
    job.ask("r", receive(3 * MB, 0), WORLD, 1)
    assert job.due == {}
    job.clock.until(104.9)
    assert job.due == {}
    assert job.expected == [("s", pytest.approx(105.0)), ("r", pytest.approx(105.0 + LATENCY_S))]
    job.clock.until(110)
    assert job.due == {"s": (105.0, 0.0), "r": (105.0 + LATENCY_S, 0.0)}
    assert None not in [time_s for _, time_s in job.expected]
    assert job.clock.next_s is None
    assert not job.of._under_way  # nothing of it is kept


def test_messages_of_one_sender_to_two_share_its_link_and_what_is_foretold_changes(job: Job) -> None:
    job.ask("s1", send(4 * MB, 1), WORLD, 0)
    job.ask("r1", receive(4 * MB, 0), WORLD, 1)
    job.clock.until(101)
    job.ask("s2", send(MB, 2), WORLD, 0)
    job.ask("r2", receive(MB, 0), WORLD, 2)
    job.clock.until(120)
    assert job.due == {"s1": (105.0, 0.0), "r1": (105 + LATENCY_S, 0.0), "s2": (103.0, 0.0), "r2": (103 + LATENCY_S, 0.0)}
    told = [time_s for key, time_s in job.expected if key == "s1"]
    assert told[0] == pytest.approx(104.0)
    assert told[-1] == pytest.approx(105.0)
    assert [time_s for key, time_s in job.expected if key == "s2"] == [pytest.approx(103.0)]


def test_messages_of_one_channel_come_one_after_another_and_other_tags_beside_them(job: Job) -> None:
    for number in range(2):
        job.ask(f"s{number}", send(2 * MB, 3), WORLD, 1)
        job.ask(f"r{number}", receive(2 * MB, 1), WORLD, 3)
    job.ask("other", send(MB, 3, tag=7), WORLD, 1)
    job.ask("got", receive(MB, 1, tag=7), WORLD, 3)
    job.clock.until(120)
    assert {key: job.due[key][0] for key in ("other", "s0", "s1")} == {"other": 102.0, "s0": 103.0, "s1": 105.0 + LATENCY_S}


def test_a_ring_of_two_takes_its_two_rounds_from_when_both_have_come(job: Job) -> None:
    job.ask("first", reduced(4 * MB), PAIR, 0)
    job.clock.until(103)
    job.ask("second", reduced(4 * MB), PAIR, 1)
    job.clock.until(120)
    assert job.due == dict.fromkeys(("first", "second"), (103 + 2 * (2 + LATENCY_S), 0.0))


def test_members_of_a_ring_that_have_come_exchange_before_the_last_comes(job: Job) -> None:
    for rank in range(4):
        job.clock.until(100 if rank < 3 else 120)
        job.ask(f"{rank}", reduced(4 * MB), WORLD, rank)
    job.clock.until(150)
    ends = sorted(due.expected for due, _ in job.due.values())
    late = [4, 5, 6, 6]  # latencies beside six rounds; those that wait for nobody do not wait for a latency, either
    assert ends == pytest.approx([120 + 6 + n * LATENCY_S for n in late])


def test_an_answer_that_is_foretold_is_taken_back_while_its_link_is_lost_and_foretold_again_once_it_is_led_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board, pair = build_topology("ub-mesh:board"), Members("world", tuple(range(8)))
    job = Job(monkeypatch, "link 0-1 at 100us", of=board, n=8)
    job.ask("s", send(56 * MB, 1), pair, 0)  # of 56 GB/s: a millisecond
    job.ask("r", receive(56 * MB, 0), pair, 1)
    job.clock.until(120)
    told = [time_s for key, time_s in job.expected if key == "s"]
    assert told[0] == pytest.approx(101.0)
    assert told[1] is None
    assert told[-1] == pytest.approx(101.0003, abs=1e-4)  # as soon as routes have changed, after 0.3 us
    assert job.due["s"][0] == told[-1]


def test_requests_of_a_group_follow_one_another_though_one_rank_makes_them_all_before_the_other(job: Job) -> None:
    for number in range(3):
        job.ask(f"first {number}", reduced(2 * MB), PAIR, 0)
    for number in range(3):
        job.clock.until(101 + 10 * number)
        job.ask(f"second {number}", reduced(2 * MB), PAIR, 1)
    job.clock.until(150)
    takes_s = 2 * (1 + LATENCY_S)
    assert {key: due for key, (due, _) in job.due.items()} == {
        f"{who} {number}": 101 + 10 * number + takes_s for who in ("first", "second") for number in range(3)
    }


def test_a_request_whose_blocks_nobody_knows_alone_begins_when_the_last_has_come(job: Job) -> None:
    """Each rank of an all_to_all of uneven blocks knows what it gives and gets: rank 2 gives 3 MB to rank 3, and gets 1."""
    given = {0: [0, 3 * MB], 1: [MB, 0]}
    for rank, at_s in ((0, 100.0), (1, 104.0)):
        job.clock.until(at_s)
        got = [given[other][rank] for other in (0, 1)]
        out, into = torch.empty(sum(got)), torch.empty(sum(given[rank]))
        job.ask(f"{rank}", rank_requests.all_to_all_single(out, into, got, given[rank], rank, 2), PAIR, rank)
    job.clock.until(150)
    assert job.due["1"] == (107 + LATENCY_S, 0.0)
    assert job.due["0"] == (107.0, 0.0)


def test_a_member_of_which_the_fabric_hears_late_is_answered_in_time_and_told_as_late(job: Job) -> None:
    """The fabric has gone on to 101 s, when another message left; rank 3 had made its request at 100.25 s."""
    job.ask("first", reduced(4 * MB), PAIR, 0)
    job.ask("s", send(MB, 1), WORLD, 0)
    job.ask("r", receive(MB, 0), WORLD, 1)
    job.clock.until(102)
    job.ask("second", reduced(4 * MB), PAIR, 1, at_s=100.25)
    job.clock.until(150)
    late_s = job.due["first"][1].expected
    assert 0 < late_s < 102 - 100.25 + 0.01
    assert job.due["first"] == job.due["second"] == (100.25 + late_s + 2 * (2 + LATENCY_S), late_s)
    assert job.due["s"][1] == 0.0


def test_of_members_that_come_late_the_latest_is_told_whoever_comes_after_it(job: Job) -> None:
    """A short message brings the fabric to 101 s twice; of ranks 1 and 2, which asked before, it hears after that."""
    job.ask("0", reduced(4 * MB), WORLD, 0)
    job.ask("s", send(MB, 1), WORLD, 0)
    job.ask("r", receive(MB, 0), WORLD, 1)
    job.clock.until(102)
    stands_s = 100 + job.of._traffic._state.now_fs / 1e12
    assert 101 < stands_s < 102
    for rank, at_s in ((1, stands_s - 0.75), (2, stands_s - 0.25), (3, 102.0)):
        job.ask(f"{rank}", reduced(4 * MB), WORLD, rank, at_s=at_s)
    job.clock.until(150)
    assert [job.due[f"{rank}"][1] for rank in range(4)] == [0.75] * 4


def test_a_link_that_fails_in_part_a_slow_npu_and_their_moments_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, "link 1-4 slow 0.25 from 1ms to 3ms", "npu 2 slow 0.5 at 2500us")
    job.ask("s", send(2 * MB, 1), WORLD, 0)
    job.ask("r", receive(2 * MB, 0), WORLD, 1)
    job.clock.until(150)
    assert job.due["s"] == (101 + 2 + 0.5, 0.0)  # one of two, half a MB at a quarter of the speed, and the rest
    assert job.speeds == [[1.0] * 4, [1.0, 1.0, 0.5, 1.0], [1.0, 1.0, 0.5, 1.0]]
    assert job.pace.figures().wall_met == (
        "link 1-4 has 0.25 of its speed at 1 ms", "npu 2 has 0.5 of its speed at 2.5 ms", "link 1-4 is as before at 3 ms",
    )  # fmt: skip
    assert job.pace.figures().faults == tuple(map(str, job.pace.faults))
    assert job.stops == []


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("rank 1 kill at 1ms", LostError, "at 1 ms of virtual time rank 1 was killed"),
        ("npu 1 at 1ms", LostError, "at 1 ms of virtual time npu 1 failed, and rank 1 with it"),
        ("switch 4 at 1ms", RunError, "at 1 ms of virtual time switch 4 failed, and the job cannot go on: "),
    ],
)
def test_what_ends_a_job_is_told_with_its_moment(monkeypatch: pytest.MonkeyPatch, fault: str, kind: type, words: str) -> None:
    job = Job(monkeypatch, fault)
    job.ask("s", send(2 * MB, 1), WORLD, 0)
    job.ask("r", receive(2 * MB, 0), WORLD, 1)
    job.clock.until(150)
    [stopped, *_] = job.stops
    assert type(stopped) is kind
    assert str(stopped).startswith(words)
    assert kind is RunError or str(stopped) == words


def test_a_rank_that_begins_a_step_brings_the_faults_of_that_step(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(monkeypatch, "link 1-4 slow 0.5 from step 2 to 2")
    for number in range(3):
        job.ask(f"s{number}", send(MB, 1), WORLD, 0, step=number + 1)
        job.ask(f"r{number}", receive(MB, 0), WORLD, 1, step=number + 1)
        job.clock.until(110 + 10 * number)
    assert [job.due[f"s{number}"][0] for number in range(3)] == [101.0, 112.0, 121.0]


LOOKS = [(None, [101.0005]), (200, [101.001, 101.0013]), (1000, [101.0005, 101.0045])]


@pytest.mark.parametrize(("more", "looks"), LOOKS)
def test_the_fabric_looks_half_a_millisecond_off_where_a_rank_goes_on(job: Job, more: int | None, looks: list) -> None:
    """A message leaves at 101 s; one before it has so many elements more, 4 us each. A look is put off by 1 ms at most."""
    if more:
        job.ask("s2", send(MB + more, 3), WORLD, 2)
        job.ask("r2", receive(MB + more, 2), WORLD, 3)
    job.ask("s1", send(MB, 1), WORLD, 0)
    job.ask("r1", receive(MB, 0), WORLD, 1)
    rings = list[float]()
    while job.clock.next_s is not None:
        rings.append(job.clock.next_s)
        job.clock.until(rings[-1])
    assert sorted({round(ring, 5) for ring in rings if ring > 100.5}) == looks
    assert (job.due["s1"][0], job.due["r1"][0]) == (101.0, 101.0 + LATENCY_S)
    assert not more or job.due["s2"][0] == 101.0 + 4e-6 * more


@pytest.mark.parametrize(
    ("ends_s", "look_s"),
    [
        ([], 101.0),
        ([100.9, 102.0], 101.0),
        ([100.9994, 101.0006], 101.0),
        ([100.9996], 101.0001),
        ([101.0004], 101.0009),
        ([101.0008, 101.0004], 101.001),  # it is put off by a millisecond at most
        ([101.0007, 100.9998], 101.001),
        ([101.0009, 100.9998], 101.0003),
    ],
)
def test_a_look_keeps_half_a_millisecond_from_where_ranks_go_on(job: Job, ends_s: list[float], look_s: float) -> None:
    job.of._began_s = 100.0
    for number, end_s in enumerate(ends_s):
        asked = job.of._request_at("queue", number, (0, 1))
        asked.expected_fs[number % 2] = job.of._tempo.virtual_fs(end_s - 100.0)
        job.of._under_way[number] = asked
    assert job.of._next_step_s(101.0) == pytest.approx(look_s, abs=1e-6)
