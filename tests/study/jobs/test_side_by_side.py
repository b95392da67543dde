"""Jobs side by side: by hand, by invariants, and whole graphs beside composed steps."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from emu.errors import InputError
from emu.fabric.packet_fabric import packet_fabric
from emu.model.plan.plan_text import parse_plan
from emu.study.jobs.job import Job, TrainingWork, loop_work
from emu.study.jobs.jobs_request import FAIR, LANES, LEAST_LOADED, OWN, PRIORITY, JobsRequest, JobsSetting
from emu.study.jobs.setting_run import RunSideBySide, npu_ranges, run_in_setting
from emu.study.jobs.side_by_side import SideBySide, place_side_by_side
from emu.study.jobs.step_graphs.placed_job import place_job
from emu.study.training.estimate import EstimateRequest, estimate
from emu.topology.catalogue import build_topology
from emu.trace.report.spans import common
from emu.units import TICKS_PER_S
from launch.data.devices import find_device

MS = TICKS_PER_S // 1000
LINE = "ring:n=8,bandwidth=1GB/s,latency=0ns"
RING = ("all_reduce=ring",)
ALL_RINGS = ("all_reduce=ring", "all_gather=ring", "reduce_scatter=ring")
PACKED = JobsSetting()
BETWEEN = (tuple(range(0, 8, 2)), tuple(range(1, 8, 2)))  # NPUs of two rings of 4 that cross all links of a ring of 8


def loop(name: str, npus: tuple[int, ...] = (), pause_ms: float = 2, size: int = 4_000_000, **more: int) -> Job:
    """A job that pauses, then reduces `size` bytes by a ring of 4: 1.5 times the size over each link that it crosses."""
    return Job(name, loop_work("all_reduce", size, 4, RING, round(pause_ms * MS)), npus, **more)


def run(jobs: list[Job], where: str = LINE, steps: int = 4, setting: JobsSetting = PACKED, **more) -> RunSideBySide:
    request = JobsRequest(tuple(jobs), steps, **more)
    request.check()
    return run_in_setting(place_side_by_side(request, build_topology(where), setting), setting)


def training(plan: str, batch: int, model: str = "llama-tiny", seq: int = 64) -> TrainingWork:
    asked = EstimateRequest(model, parse_plan(plan, global_batch=batch, seq=seq), algorithms=ALL_RINGS)
    return TrainingWork(asked, find_device("h100", "bfloat16"))


def test_two_rings_on_the_same_links_by_hand():
    """Alone 2 ms + 6 MB / 1 GB/s; together each has half of every link in its 6 ms, so that a step is 2 + 12."""
    row = run([loop("a", BETWEEN[0]), loop("b", BETWEEN[1])]).row
    for job, other in zip(row.jobs, "ba", strict=True):
        assert (job.alone_s, job.step_s, job.least_s, job.most_s) == (0.008, 0.014, 0.014, 0.014)
        assert (job.slow_down, job.waits_for, job.steps >= 4) == (1.75, other, True)
        assert [(link.beside, link.links, link.together_s) for link in job.links] == [(other, 8, 0.012)]
    assert row.pairs == ((1.0, 1.75), (1.75, 1.0))
    assert (row.fairness, row.slow_down, row.worst) == (1.0, 1.75, 1.75)
    assert row.busiest == pytest.approx(12 / 14, rel=1e-12)
    assert row.computing == pytest.approx(2 / 14, rel=1e-12)


@pytest.mark.parametrize(("pause_ms", "taken_ms"), [(2, 12), (6, 12), (9, 15)])
def test_shifted_rings_send_in_turn_as_far_as_links_have_time(pause_ms, taken_ms):
    """Two jobs need a link for 6 ms a step each: a step is no shorter than 12 ms, and without overlap as long as alone."""
    jobs = [loop("a", BETWEEN[0], pause_ms), loop("b", BETWEEN[1], pause_ms)]
    row = run(jobs, setting=JobsSetting(shift="circle")).row
    assert [job.step_s for job in row.jobs] == pytest.approx([taken_ms / 1000] * 2, rel=1e-9)
    together = run(jobs).row
    assert [job.step_s for job in together.jobs] == [(pause_ms + 12) / 1000] * 2


@pytest.mark.parametrize("starts_ms", [(0, 0), (0, 9), (5, 0), (0, 26)])
def test_a_shifted_job_that_starts_later_still_sends_while_the_other_pauses(starts_ms):
    """A step pauses for 9 ms and sends for 6; a job begins at the first moment of its turn from its own start on."""
    jobs = [loop(name, npus, 9, start_fs=ms * MS) for name, npus, ms in zip("ab", BETWEEN, starts_ms, strict=True)]
    row = run(jobs, setting=JobsSetting(shift="circle")).row
    assert [job.step_s for job in row.jobs] == pytest.approx([0.015] * 2, rel=1e-9)


def test_weights_share_a_full_link_in_proportion():
    """Without pauses the links are always full: a job of weight 3 has three quarters of them, the other one quarter."""
    jobs = [loop("a", BETWEEN[0], 0, weight=3), loop("b", BETWEEN[1], 0)]
    row = run(jobs, steps=6).row
    assert [job.step_s for job in row.jobs] == pytest.approx([0.006 * 4 / 3, 0.006 * 4], rel=1e-6)
    assert row.fairness == pytest.approx((0.75 + 0.25) ** 2 / (2 * (0.75**2 + 0.25**2)), rel=1e-6)


def test_a_row_of_the_matrix_is_the_job_that_is_slowed_down():
    """Without pauses a job of weight 8 leaves one of weight 1 a ninth of each link, and another of weight 1 leaves it half."""
    jobs = [
        loop(name, tuple(range(i, 12, 3)), 0, weight=weight) for i, (name, weight) in enumerate((("a", 8), ("b", 1), ("c", 1)))
    ]
    row = run(jobs, "ring:n=12,bandwidth=1GB/s,latency=0ns", steps=3).row
    assert np.array(row.pairs) == pytest.approx(np.array([[1, 9 / 8, 9 / 8], [9, 1, 2], [9, 2, 1]]), rel=1e-3)
    assert [job.waits_for for job in row.jobs] == ["b", "a", "a"]


def test_the_most_intense_job_gets_the_largest_weight():
    """All send for 6 ms of a link; the longer one computes, the more of the fabric's time is worth to it (Crux)."""
    jobs = [loop(name, BETWEEN[0], pause_ms) for name, pause_ms in (("short", 1), ("long", 8))]
    jobs[1] = replace(jobs[1], npus=BETWEEN[1])
    fair, intense = (run(jobs, steps=8, setting=JobsSetting(share=share)).row for share in ("fair", "intensity"))
    assert [[job.weight for job in row.jobs] for row in (fair, intense)] == [[1, 1], [1, 64]]
    assert [job.compute_s for job in fair.jobs] == [0.001, 0.008]
    assert intense.jobs[1].slow_down < 1.02 < fair.jobs[1].slow_down
    assert intense.computing > fair.computing + 0.01
    assert intense.fairness < fair.fairness


def test_a_job_alone_takes_its_estimate():
    work = training("tp=2,dp=2,pp=2,microbatch=1", 8)
    topology = build_topology("ub-mesh:board")
    row = run([Job("a", work)], "ub-mesh:board", steps=2).row
    assert row.jobs[0].step_s == row.jobs[0].alone_s == estimate(work.request, topology, work.device).step_time_s
    assert (row.jobs[0].slow_down, row.jobs[0].links, row.jobs[0].waits_for) == (1.0, (), None)


@pytest.mark.parametrize("time", ["whole", "composed"])
def test_jobs_without_common_links_do_not_slow_one_another(time):
    jobs = [Job("a", training("tp=2,dp=2,microbatch=1", 2)), Job("b", training("dp=4,microbatch=1", 4))]
    row = run(jobs, "servers:nodes=2,gpus=4", steps=2, time=time).row
    assert [job.slow_down for job in row.jobs] == [1.0, 1.0]
    assert row.pairs == ((1.0, 1.0), (1.0, 1.0))


@pytest.mark.parametrize("seed", range(4))
def test_no_link_carries_more_than_it_can(seed):
    random, where = np.random.default_rng(seed), f"random:seed={seed}"
    pauses, sizes = random.integers(0, 4, 3), random.integers(1, 9, 3)
    jobs = [loop(f"{i}", (), float(p), int(s) * 1_000_000) for i, (p, s) in enumerate(zip(pauses, sizes, strict=True))]
    made = run(jobs, "torus:dims=3x4,bandwidth=1GB/s,latency=1us", setting=JobsSetting(where))
    assert made.row.busiest <= 1 + 1e-9
    assert all(job.slow_down >= 1 - 1e-9 for job in made.row.jobs)
    assert [sum(job.slow_down for job in made.row.jobs) > 3.01] == [seed != 1]  # by the placement of seed 1 no link is shared


def test_the_same_jobs_give_the_same_bits():
    jobs = [loop("a", (), 1), loop("b", (), 0.7), loop("c", (), 0.3)]
    rows = [run(jobs, "torus:dims=3x4,bandwidth=1GB/s,latency=1us", setting=JobsSetting("random")).row for _ in range(2)]
    assert replace(rows[0], wall_s=0) == replace(rows[1], wall_s=0)


def test_a_late_job_is_slowed_down_as_much_as_one_that_begins_at_once():
    jobs = [loop("a", BETWEEN[0], 0), loop("b", BETWEEN[1], 0, start_fs=50 * MS)]
    row = run(jobs).row
    assert [job.step_s for job in row.jobs] == pytest.approx([0.012, 0.012], rel=1e-6)
    assert [job.begin_s for job in row.jobs] == [0.0, 0.05]


def test_packets_slow_two_rings_as_the_fluid_fabric_does_within_their_headers():
    jobs = [loop("a", BETWEEN[0], 0.2, 400_000), loop("b", BETWEEN[1], 0.2, 400_000)]
    row = run(jobs, steps=2, packets=packet_fabric("packets:cell=4KiB")).row
    assert row.engine == "packets"
    assert [job.slow_down for job in row.jobs] == pytest.approx([1.75, 1.75], rel=0.06)


def four(placement: str, where: str, time: str, plan: str = "tp=4,sp,dp=2,microbatch=1") -> RunSideBySide:
    """Four jobs of llama-tiny by one plan."""
    jobs = [Job(name, training(plan, 4, seq=512)) for name in "abcd"]
    return run(jobs, where, steps=3, setting=JobsSetting(placement), time=time)


@pytest.mark.parametrize("placement", ["packed", "spread", "spread:unit=2"])
@pytest.mark.parametrize("where", ["servers:nodes=8,gpus=4,taper=4", "hpn:segment:dims=8x4"])
def test_composed_steps_slow_one_another_as_whole_ones_do(placement, where):
    whole, composed = (four(placement, where, time).row for time in ("whole", "composed"))
    assert composed.engine == "composed" != whole.engine
    for one, other in zip(whole.jobs, composed.jobs, strict=True):
        assert other.step_s == pytest.approx(one.step_s, rel=0.03)


def test_composed_pipelines_whose_last_stages_meet_slow_one_another_as_whole_ones_do():
    where, plan = "servers:nodes=8,gpus=4,taper=4", "tp=2,sp,dp=2,pp=2,microbatch=1"
    whole, composed = (four("random", where, time, plan).row for time in ("whole", "composed"))
    assert max(job.slow_down for job in whole.jobs) > 1.01
    for one, other in zip(whole.jobs, composed.jobs, strict=True):
        assert other.step_s == pytest.approx(one.step_s, rel=0.03)


def test_two_jobs_of_one_name_are_refused():
    request = JobsRequest((loop("a"), loop("a")))
    with pytest.raises(InputError, match="jobs: name must be another for each job, got 'a'"):
        request.check()


def test_ranks_are_on_the_npus_of_their_job_in_the_order_that_is_named():
    topology = build_topology("ub-mesh:board")
    for work in (loop("a").work, training("tp=2,dp=2,microbatch=1", 2)):
        placed = place_job(Job("a", work, (3, 1, 0, 2)), topology, np.array([3, 1, 0, 2]))
        assert placed.step.whole is not None
        assert placed.step.whole.placement.tolist() == placed.step.npus.tolist() == placed.npus.tolist() == [3, 1, 0, 2]


def test_npus_are_told_as_ranges():
    assert npu_ranges(np.array([0, 1, 2, 7, 9, 10, 4])) == "0-2,7,9-10,4"


def at_random(time: str, most_messages: int, **more: int) -> SideBySide:
    """Four jobs of two plans on NPUs at random, over a spine with one port up for sixteen down."""
    plans = [("tp=4,sp,dp=2,microbatch=1", 4), ("tp=2,sp,dp=4,microbatch=1", 8)] * 2
    jobs = [Job(name, training(*plan, seq=512), **more) for name, plan in zip("abcd", plans, strict=True)]
    where = build_topology("servers:nodes=8,gpus=4,taper=16")
    made = place_side_by_side(JobsRequest(tuple(jobs), 3, time), where, JobsSetting("random"))
    return replace(made, most_messages=most_messages)


def test_bodies_for_requests_that_meet_are_told_with_a_range_that_holds_the_steps_of_every_message():
    coarse = run_in_setting(at_random("composed", 100), JobsSetting("random")).row
    fine, whole = (run_in_setting(at_random(time, 2**20), JobsSetting("random")).row for time in ("composed", "whole"))
    assert sum("too many messages" in line for line in coarse.assumptions) == 1
    assert not any("too many messages" in line for row in (fine, whole) for line in row.assumptions)
    assert {job.between_s for row in (fine, whole) for job in row.jobs} == {None}
    for one, other in zip(coarse.jobs, whole.jobs, strict=True):
        assert one.between_s is not None
        least_s, most_s = one.between_s
        assert least_s == one.alone_s <= one.step_s <= most_s
        assert least_s < other.step_s < most_s
    assert max(abs(one.step_s / other.step_s - 1) for one, other in zip(coarse.jobs, whole.jobs, strict=True)) > 0.05


def test_composed_steps_of_too_many_messages_in_all_steps_are_bodies_too():
    """A loop that is a thousand times as short repeats its messages so often that not all of them have room."""
    jobs = [
        Job("long", loop_work("all_reduce", 4_000_000, 4, RING, 10_000 * MS), BETWEEN[0]),
        loop("short", BETWEEN[1], 0, 4000),
    ]
    made = place_side_by_side(JobsRequest(tuple(jobs), 3, "composed"), build_topology(LINE), PACKED)
    assert made.is_coarse


def test_all_links_that_two_jobs_share_are_counted():
    """NPUs 0 and 290 of a ring of 600 send over the 290 links between them, both ways; 1 and 291 over all but one of these."""
    jobs = [Job(name, loop_work("all_reduce", 4_000_000, 2, RING), npus) for name, npus in (("a", (0, 290)), ("b", (1, 291)))]
    for time in ("whole", "composed"):
        row = run(jobs, "ring:n=600,bandwidth=1GB/s,latency=0ns", time=time).row
        assert [[link.links for link in job.links] for job in row.jobs] == [[2 * 289], [2 * 289]]


@pytest.mark.parametrize(("shift", "share"), [("none", 1), ("circle", 0)])
def test_jobs_that_send_in_turn_do_not_meet(shift, share):
    """Steps of 9 ms of computation and 6 ms of messages fit beside one another; at one time, all messages meet."""
    made = run([loop("a", BETWEEN[0], 9), loop("b", BETWEEN[1], 9)], setting=JobsSetting(shift=shift))
    for times in made.times:
        assert times.sending.ticks > 0
        assert times.meeting.within(*made_window(made)).ticks == share * times.sending.within(*made_window(made)).ticks


def made_window(made: RunSideBySide) -> tuple[int, int]:
    """The ticks from when all jobs have begun until one has ended."""
    steps = [times.steps for times in made.times]
    return max(int(of.begin_fs[0]) for of in steps), min(int(of.end_fs[-1]) for of in steps)


def test_jobs_meet_on_links_and_not_because_other_jobs_meet():
    """Two jobs share links at one end of a ring, two others at the other end; the fifth crosses links of its own."""
    ends = {"a": (0, 4), "b": (1, 5), "c": (30, 34), "d": (31, 35), "e": (50, 54)}
    work = {name: loop_work("all_reduce", 4_000_000, 2, RING, (name in "bd") * 3 * MS) for name in ends}
    made = run([Job(name, work[name], npus) for name, npus in ends.items()], "ring:n=64,bandwidth=1GB/s,latency=0ns")
    for one, other in ((0, 1), (1, 0), (2, 3), (3, 2)):
        both = common(made.times[one].sending, made.times[other].sending)
        assert made.times[one].meeting.ticks == both.ticks > 0
    assert made.times[4].meeting.ticks == 0


@pytest.mark.parametrize(
    ("share", "routes", "route", "accepted"),
    [
        (FAIR, OWN, "in-turn", True),
        (PRIORITY, OWN, "in-turn", False),
        (LANES, OWN, "in-turn", False),
        (FAIR, LEAST_LOADED, "in-turn", False),
        (LANES, LEAST_LOADED, "hash", True),
    ],
)
def test_packets_that_choose_their_ways_share_links_without_lanes_or_chosen_routes(share, routes, route, accepted):
    setting, packets = JobsSetting(share=share, routes=routes), packet_fabric("packets", f"roce:route={route}")
    with nullcontext() if accepted else pytest.raises(InputError, match="route=hash where jobs have lanes"):
        setting.check(packets)
