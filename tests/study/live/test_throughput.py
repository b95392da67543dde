"""A job's throughput over time: halts, slower steps and starts, against sums of their durations, and against the clock."""

from math import inf

import pytest

from emu.errors import InputError
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack
from emu.study.live.faulty_job import times_of_trace
from emu.study.live.throughput import DOWN, RUNS, SAVES, STARTS, WAITS, JobThroughput, Recourse, TimedJob, throughput_over_time
from emu.study.live.timed_faults import run_through_timed_faults
from emu.study.training.estimate import EstimateRequest
from emu.study.training.step.choices import choice_for
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection import machine_history
from emu.topology.fault_injection.fault import nic_of
from emu.topology.fault_injection.fault_script import faults_of
from emu.topology.fault_injection.machine_state import MachineState, machine_state
from emu.trace.replay.replay import TraceLayout
from launch.data.devices import find_device

STAR = build_topology("switch:n=8,bandwidth=50GB/s,latency=500ns")  # one cable each: without it there is no way
SEGMENT = build_topology("hpn:segment:dims=2x4,backup=1")  # reacts within a second, and has a host to spare
DEVICE = find_device("h100", "bfloat16")
TOKENS = 640
TRIES = {"resend_s": 17.0, "resends": 3}


def steps_on(topology):
    """Return a function of steps of 2 s: 2.5 s without a link, and as much longer as the slowest link or NPU is slower."""

    def timed(found: MachineState) -> tuple[float, ...]:
        links = found.topology.links
        whole = 2.5 if len(links.src) < len(topology.links.src) else 2.0
        slowest = links.bandwidth_Bps.min() / topology.links.bandwidth_Bps.min()
        return (whole / min(slowest, found.speed.min()),)

    return timed


def course(topology, *texts: str, until_s: float, timed=None, **recourse) -> JobThroughput:
    faults = faults_of(texts, topology, 8, 1, clock=True)
    job = TimedJob(8, TOKENS, timed or steps_on(topology), "none")
    return throughput_over_time(topology, faults, until_s, Recourse(**recourse), job)


def told(found: JobThroughput) -> list[tuple[float, str, float]]:
    """Return the end, the state and the share of each span."""
    return [(pytest.approx(span.end_s), span.state, pytest.approx(span.share)) for span in found.spans]


def lost_s(found: JobThroughput) -> float:
    """Return all that is lost."""
    names = ("slower_s", "waiting_s", "saving_s", "down_s", "starting_s", "again_s")
    return sum(getattr(found, name) for name in names)


def test_a_job_without_another_way_runs_again_at_the_next_try_after_the_repair() -> None:
    """A link is down for 30 s: tries come every 17 s, so the second one finds it, after 34 s."""
    found = course(STAR, "link 0-8 from 10s to 40s", until_s=100, **TRIES)
    assert told(found) == [(10, RUNS, 1), (40, WAITS, 0), (44, WAITS, 0), (100, RUNS, 1)]
    assert (found.waiting_s, found.goodput, found.stopped) == (pytest.approx(34), pytest.approx(0.66), None)
    assert [span.events for span in found.spans] == [(), ("link 0-8 failed",), ("link 0-8 is as before",), ()]
    assert found.spans[0].tokens_per_s == pytest.approx(TOKENS / 2)


def test_a_flap_halts_such_a_job_until_the_first_try() -> None:
    """A second without a link costs 17 s, each time; those that come while it waits cost nothing more."""
    found = course(STAR, "link 0-8 flaps 1s every 5s from 10s to 20s", until_s=100, **TRIES)
    assert found.waiting_s == pytest.approx(17)
    assert course(STAR, "link 0-8 flaps 1s every 40s from 10s to 60s", until_s=100, **TRIES).waiting_s == pytest.approx(34)


def test_a_job_ends_after_its_last_try_whatever_comes_back_later() -> None:
    """The third of three tries is at 51 s: a link that is back after 52 s is too late, and the job ends after 68 s."""
    late = course(STAR, "link 0-8 from 10s to 62s", until_s=100, **TRIES)
    assert told(late)[-2:] == [(78, WAITS, 0), (100, DOWN, 0)]
    assert late.stopped is not None
    assert late.stopped.startswith("at 78 s: 3 tries in 68 s found no way")
    assert (late.goodput, late.again_s, lost_s(late)) == (0, pytest.approx(10), pytest.approx(100))
    assert course(STAR, "link 0-8 from 10s to 61s", until_s=100, **TRIES).stopped is None
    at_once = course(STAR, "link 0-8 from 10s to 11s", until_s=100)
    assert told(at_once) == [(10, RUNS, 1), (11, DOWN, 0), (100, DOWN, 0)]


def test_a_system_with_another_way_halts_until_it_has_reacted_and_is_then_slower() -> None:
    """HPN converges within a second (assumed), and a link less makes steps of 2.5 s for 2 s; a repair counts at once."""
    tor = nic_of(SEGMENT, 0)[0][1]
    found = course(SEGMENT, f"link 0-{tor} from 10s to 70s", until_s=100)
    assert told(found) == [(10, RUNS, 1), (11, WAITS, 0), (70, RUNS, 0.8), (100, RUNS, 1)]
    assert (found.waiting_s, found.slower_s) == (pytest.approx(1), pytest.approx(0.2 * 59))
    late = course(SEGMENT, f"link 0-{tor} from 10s to 70s", until_s=100, detect_s=3)
    assert told(late)[:3] == [(10, RUNS, 1), (14, WAITS, 0), (70, RUNS, 0.8)]
    flap = course(SEGMENT, f"link 0-{tor} from 10s to 10.25s", until_s=100)
    assert (flap.waiting_s, flap.slower_s) == (pytest.approx(0.25), 0)


def test_a_job_ends_if_its_last_try_is_over_before_the_system_has_reacted() -> None:
    """HPN needs 6 s with the detection: tries every second, twice, end after 3 s; five are enough, and go on after 6 s."""
    link = f"link 0-{nic_of(SEGMENT, 0)[0][1]} from 10s to 70s"
    early = course(SEGMENT, link, until_s=100, detect_s=5, resend_s=1, resends=2)
    assert told(early)[:2] == [(10, RUNS, 1), (13, WAITS, 0)]
    assert early.stopped == "at 13 s: 2 tries in 3 s found no way, as the system had not reacted yet"
    assert told(course(SEGMENT, link, until_s=100, detect_s=5, resend_s=1, resends=5))[:3] == [
        (10, RUNS, 1),
        (16, WAITS, 0),
        (70, RUNS, 0.8),
    ]
    again = course(SEGMENT, link, until_s=100, detect_s=5, resend_s=1, resends=2, restart_s=4)
    assert told(again)[:4] == [(10, RUNS, 1), (13, WAITS, 0), (16, DOWN, 0), (20, STARTS, 0)]
    assert told(course(SEGMENT, link, until_s=100, detect_s=5))[1] == (16, WAITS, 0)  # without tries nobody gives up


def test_an_account_has_the_figures_of_the_job_without_faults_and_of_each_span() -> None:
    """Steps of 2 s have 640 tokens; with half a link for 5 of 20 seconds, a quarter of 10 s is lost."""
    found = course(STAR, "link 0-8 slow 0.5 from 10s to 15s", until_s=20)
    assert (found.topology, found.device, found.ranks, found.until_s) == (STAR.name, "none", 8, 20)
    assert (found.step_time_s, found.tokens_per_s) == (2, 320)
    assert found.faults == ("link 0-8 slow 0.5 from 10s to 15s",)
    assert [span.tokens_per_s for span in found.spans] == pytest.approx([320, 160, 320])
    assert [(span.begin_s, span.end_s) for span in found.spans] == [(0, 10), (10, 15), (15, 20)]
    assert (found.slower_s, found.goodput) == (pytest.approx(2.5), pytest.approx(17.5 / 20))
    assert (found.waiting_s, found.saving_s, found.down_s, found.starting_s, found.again_s) == (0, 0, 0, 0, 0)


def test_spares_are_said_not_to_be_counted() -> None:
    """The segment has 10 NPUs for 8 ranks; the star has none to spare."""
    link = f"link 0-{nic_of(SEGMENT, 0)[0][1]} slow 0.5 at 10s"
    idle = f"{SEGMENT.n_npus - 8} of {SEGMENT.n_npus} NPUs have no rank"
    assert any(line.startswith(idle) for line in course(SEGMENT, link, until_s=20).assumptions)
    assert not any("have no rank" in line for line in course(STAR, "link 0-8 slow 0.5 at 10s", until_s=20).assumptions)


def test_a_machine_that_comes_again_is_built_once(monkeypatch) -> None:
    """A link that flaps twenty times: the whole machine, that without it, and the whole one after its return."""
    built = list[int]()

    def count(topology, faults, ranks, was=None) -> MachineState:
        built.append(len(faults))
        return machine_state(topology, faults, ranks, was)

    monkeypatch.setattr(machine_history, "machine_state", count)
    link = f"link 0-{nic_of(SEGMENT, 0)[0][1]} flaps 2s every 4s from 10s to 90s"
    found = course(SEGMENT, link, until_s=100)
    assert len(found.faults) == 20
    assert sorted(built) == [0, 0, 1]


def test_a_part_that_no_step_needs_halts_nothing() -> None:
    """Where a step takes as long over a failed link that is as good as none, the job goes on."""
    tor = nic_of(SEGMENT, 0)[0][1]
    found = course(SEGMENT, f"link 0-{tor} from 10s to 70s", until_s=100, timed=lambda _: (2.0,))
    assert (found.goodput, {span.state for span in found.spans}) == (1, {RUNS})


def test_slow_parts_make_steps_longer_at_once_and_as_long_as_they_last() -> None:
    """Half a link from 10 s, an NPU at a quarter from 20 s to 30 s: of two slow parts the slower counts."""
    found = course(STAR, "link 0-8 slow 0.5 from 10s to 40s", "npu 3 slow 0.25 from 20s to 30s", until_s=50)
    assert told(found) == [(10, RUNS, 1), (20, RUNS, 0.5), (30, RUNS, 0.25), (40, RUNS, 0.5), (50, RUNS, 1)]
    assert found.goodput == pytest.approx((10 + 10 * 0.5 + 10 * 0.25 + 10 * 0.5 + 10) / 50)


def test_a_lost_npu_costs_the_work_since_the_checkpoint_and_a_start() -> None:
    """A checkpoint of 2 s after every 30 s; NPU 5 fails at 100 s, 4 s after the third, and a start takes 20 s."""
    found = course(SEGMENT, "npu 5 at 100s", until_s=140, save_every_s=30, save_s=2, restart_s=20)
    assert told(found)[:6] == [(30, RUNS, 1), (32, SAVES, 0), (62, RUNS, 1), (64, SAVES, 0), (94, RUNS, 1), (96, SAVES, 0)]
    assert told(found)[6:] == [(100, RUNS, 1), (120, STARTS, 0), (140, RUNS, 0.8)]
    assert (found.again_s, found.starting_s, found.saving_s) == (pytest.approx(4), pytest.approx(20), pytest.approx(6))
    assert found.goodput == pytest.approx((90 + 0.8 * 20) / 140)
    assert found.stopped is None


def test_a_job_that_has_ended_waits_for_room_and_starts_from_its_checkpoint() -> None:
    """Without a spare the job is down until the NPU is back; a killed process starts at once."""
    found = course(STAR, "npu 5 from 50s to 80s", until_s=120, restart_s=10, save_every_s=40)
    assert told(found) == [(50, RUNS, 1), (80, DOWN, 0), (90, STARTS, 0), (120, RUNS, 1)]
    assert (found.again_s, found.down_s, found.goodput) == (pytest.approx(10), pytest.approx(30), pytest.approx(70 / 120))
    killed = course(STAR, "rank 2 kill at 50s", "rank 3 kill at 55s", until_s=100, restart_s=10)
    cut = course(STAR, "rank 2 kill at 50s", "link 0-8 from 55s to 60s", until_s=100, restart_s=10)
    assert told(cut) == [(50, RUNS, 1), (55, STARTS, 0), (60, DOWN, 0), (70, STARTS, 0), (100, RUNS, 1)]
    assert told(killed) == [(50, RUNS, 1), (55, STARTS, 0), (65, STARTS, 0), (100, RUNS, 1)]


@pytest.mark.parametrize("seed", range(6))
def test_goodput_and_all_that_is_lost_add_up_to_the_time(seed: int) -> None:
    """Whatever comes, in whatever order."""
    text = f"random link=0.05 npu=0.02 rank=0.01 slow=0.4 repair=2 every=7s steps=20 seed={seed}"
    for topology in (STAR, SEGMENT):
        found = course(topology, text, until_s=150, save_every_s=25, save_s=1, restart_s=5, detect_s=0.5, **TRIES)
        assert found.goodput * 150 + lost_s(found) == pytest.approx(150)
        assert found.spans[-1].end_s == 150
        assert all(a.end_s == b.begin_s for a, b in zip(found.spans, found.spans[1:], strict=False))


def test_a_halt_is_that_of_a_step_that_is_played_by_the_clock() -> None:
    """The clock stops an estimated step of eight NPUs in its middle for as long as the link carries nothing."""
    request = EstimateRequest("llama-tiny", Plan(tp=2, dp=4, global_batch=4, seq=64), algorithms=("all_reduce=ring", "auto"))
    step = generate(find_model("llama-tiny"), request.plan, request.stack)
    choice = choice_for(step, request.algorithms, STAR, "bfloat16")
    layout = TraceLayout(step, choice, STAR, DEVICE, "bfloat16")
    whole_s = run_through_timed_faults(layout, Stack(), ()).undisturbed_s
    down = f"link 0-8 slow 1e-9 from {whole_s / 2:.9f}s to {whole_s / 2 + 17:.9f}s"
    played = run_through_timed_faults(layout, Stack(), faults_of((down,), STAR, 8, 1, clock=True))
    timed = times_of_trace(step, lambda _: choice, DEVICE, "bfloat16", Stack())
    found = course(STAR, f"link 0-8 from {whole_s / 2:.9f}s to 5s", until_s=100, timed=timed, **TRIES)
    assert found.waiting_s == pytest.approx(played.steps[0].time_s - whole_s, abs=whole_s)
    half = course(STAR, "link 0-8 slow 0.5 at 0s", until_s=100, timed=timed)
    slow = run_through_timed_faults(layout, Stack(), faults_of(("link 0-8 slow 0.5 at 0s",), STAR, 8, 1, clock=True))
    assert half.goodput == pytest.approx(whole_s / slow.steps[0].time_s, rel=1e-3)


@pytest.mark.parametrize(
    ("recourse", "until_s", "said"),
    [
        ({"detect_s": -1.0}, 10, "detect must be a time of 0 or more"),
        ({"restart_s": inf}, 10, "restart must be a time of 0 or more"),
        ({"resend_s": 1.0}, 10, "must both be above 0"),
        ({"save_s": 2.0}, 10, "checkpoint must be 0 s without checkpoint_every, got '2 s'"),
        ({"save_s": 0.5}, 10, "checkpoint must be 0 s without checkpoint_every, got '0.5 s'"),
        ({"resend_s": 0.5}, 10, "must both be above 0"),
        ({"resends": 1}, 10, "must both be above 0"),
        ({"save_every_s": 0.0}, 10, "checkpoint_every must be a time above 0"),
        ({"save_every_s": 1e-3}, 9000, "checkpoint_every must be 0.9 s or more"),
        ({}, 0, "until must be above 0"),
        ({}, 1e4, "where Emu's clock ends"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(recourse, until_s, said) -> None:
    """Each message names the value and what is expected."""
    with pytest.raises(InputError, match=said):
        course(STAR, "link 0-8 at 1s", until_s=until_s, **recourse)


def test_two_machines_that_have_lost_as_many_parts_are_timed_each() -> None:
    """Their names are equal where many parts have failed."""
    torus, timed = build_topology("torus:dims=4x4,bandwidth=50GB/s,latency=500ns"), set()

    def step_s(found: MachineState) -> tuple[float, ...]:
        timed.add((found.topology.links.src.tobytes(), found.topology.links.dst.tobytes()))
        return (2.0,)

    near, far = ("0-1", "1-2", "2-3", "0-3"), ("8-9", "9-10", "10-11", "8-11")
    faults = (*(f"link {each} from 10s to 20s" for each in near), *(f"link {each} from 30s to 40s" for each in far))
    course(torus, *faults, until_s=50, timed=step_s)
    assert len(timed) == 3  # whole, and without either


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ("link 0-8 at 60s", {}, "until must be after link 0-8 at 60s, got '50 s'; the account would end before this fault"),
        ("link 0-8 at 10s", {"save_every_s": 1.5}, "checkpoint_every must be at least 2 s, the time of a step, got '1.5 s'"),
    ],
)
def test_an_account_that_no_fault_or_no_step_fits_is_refused(text, words, line) -> None:
    with pytest.raises(InputError, match=line):
        course(STAR, text, until_s=50, **words)


@pytest.mark.parametrize(
    ("every_s", "waited_s", "tries"),
    [(2, 0, 1), (2, 0.5, 1), (2, 2, 1), (2, 2.1, 2), (2, 4, 2), (0.1, 0.1 + 0.2, 3), (0.1, 0.301, 4)],
)
def test_the_next_try_is_never_in_the_past_nor_the_message_itself(every_s: float, waited_s: float, tries: int) -> None:
    """0.1 + 0.2 is a little more than three tenths, but it is no fourth try that comes next."""
    assert Recourse(resend_s=every_s, resends=9).next_try_s(waited_s) == pytest.approx(tries * every_s)
