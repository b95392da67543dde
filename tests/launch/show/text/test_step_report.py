"""A step in words: every figure where it belongs."""

from dataclasses import replace

from emu.study.training.step.rate import Products
from emu.study.training.step.step import Step
from emu.trace.report.activity import BusyLink
from emu.trace.report.critical_path import PathPart
from launch.show.blocks import fact_lines
from launch.show.text.step_report import foot_facts, part_facts, step_report

STEP = Step(
    topology="ring:n=8", device="npu", dtype="bfloat16",
    products=(Products("bfloat16", 1.0, 2e12),), messages_in=("bfloat16", "int64"), ranks=8, step_times_s=(7e-3, 2e-3),
    step_groups=((2,), (1,)), step_time_s=2e-3, step=2,
    rank=5, compute_s=1e-3, early_compute_s=4e-6, other_compute_s=0.0, compute_least_s=0.5e-3, compute_most_s=1.5e-3,
    exposed_comm_s=0.75e-3, idle_s=0.25e-3,
    bubble_s=0.125e-3, optimizer_s=0.1e-3, exposed_comm_by_axis_s={"dp": 0.5e-3, "tp": 0, "": 0.25e-3}, total_comm_s=3e-3,
    straggling_by_rank_s={2: 0.025e-3, 11: 0.1e-3},
    critical_path=(
        PathPart("all_reduce", "tp", 3, None, 1e-3), PathPart("computation", None, 0, None, 0.7e-3),
        PathPart("all_reduce", "dp", None, 5, 0.298e-3), PathPart("message", "", None, None, 2e-6),
    ),
    busiest_links=(BusyLink(7, "NPU 0", "switch 8", 0.754), BusyLink(9, "switch 8", "NPU 1", 0.5)),
    peak_memory_bytes=3 * 2**20, memory_by_part_bytes={"weights": 2**20, "optimizer_state": 2**21, "activations": 0},
    algorithms={"all_reduce": "ring", "broadcast": "binomial"},
    assumptions=("one thing", "another"), spread=None, wall_fabric_s=9.0,
)  # fmt: skip


def test_a_step_and_its_parts_have_a_line_each() -> None:
    assert fact_lines(part_facts(STEP)) == [
        "step            2 ms; its parts are of rank 5, which ended last",
        "  compute       1 ms, and 4 us while the last rank was still in the step before; 500 us to 1.5 ms on the ranks",
        "    optimizer   100 us",
        "  exposed comm  750 us (dp 500 us, other 250 us); of 3 ms in all",
        "  idle          250 us",
        "    bubble      125 us, for other stages of the pipeline",
        "    straggling  125 us, for rank 11 (100 us), rank 2 (25 us)",
        "1 other step    7 ms",
    ]


def test_what_the_rank_computed_of_another_step_is_told() -> None:
    told = fact_lines(part_facts(replace(STEP, other_compute_s=1e-6)))[1]
    before = "4 us while the last rank was still in the step before"
    assert told == f"  compute       1 ms, of which 1 us belong to another step, and {before}; 500 us to 1.5 ms on the ranks"


def test_what_does_not_differ_and_what_is_not_there_is_not_told() -> None:
    alike = replace(STEP, early_compute_s=0.0, compute_least_s=1e-3, compute_most_s=1e-3 + 1e-12, exposed_comm_s=0.0)
    lines = fact_lines(part_facts(replace(alike, exposed_comm_by_axis_s={"dp": 0.0})))
    assert lines[1:4:2] == ["  compute       1 ms; 1 ms on every rank", "  exposed comm  0 s; of 3 ms in all"]
    foot = fact_lines(foot_facts(replace(STEP, algorithms={}, critical_path=(), busiest_links=())))
    assert foot[:2] == ["critical path   none", "busiest links   none"]
    assert foot[3] == "algorithms      none"


def test_of_many_ranks_that_are_waited_for_those_are_named_that_are_waited_for_longest() -> None:
    many = replace(STEP, straggling_by_rank_s={rank: (10 - rank) * 1e-6 for rank in range(7)})
    each = "rank 0 (10 us), rank 1 (9 us), rank 2 (8 us), rank 3 (7 us), rank 4 (6 us), 2 more ranks"
    assert fact_lines(part_facts(many))[6] == f"    straggling  49 us, for {each}"
    assert not any("straggling" in line for line in fact_lines(part_facts(replace(STEP, straggling_by_rank_s={}))))


def test_a_report_begins_with_who_ran_where_and_ends_with_what_was_assumed() -> None:
    lines = step_report(STEP).splitlines()
    assert lines[:4] == [
        "8 npu on ring:n=8",
        "timed float32 as bfloat16: products in bfloat16, at a peak of 2 TFLOP/s; messages in bfloat16, int64",
        "",
        "steps           7 ms, 2 ms",
    ]
    assert lines[4:12] == fact_lines(part_facts(STEP))
    assert lines[12:] == [
        "critical path   50 % tp all_reduce in stage 3, 35 % computation in stage 0, 15 % dp all_reduce that waits for rank 5",
        "busiest links   NPU 0 to switch 8 75 %, switch 8 to NPU 1 50 %",
        "peak memory     3 MiB on the rank that holds most (weights 1 MiB, optimizer state 2 MiB)",
        "algorithms      all_reduce ring, broadcast binomial",
        "",
        "Assumed:",
        "- one thing",
        "- another",
    ]


def test_a_script_without_a_training_step_is_told_so() -> None:
    lines = step_report(replace(STEP, whole_script=True, step_times_s=(2e-3,), step_groups=((1,),), step=1)).splitlines()
    assert lines[:4] == [
        "8 npu on ring:n=8",
        "timed float32 as bfloat16: products in bfloat16, at a peak of 2 TFLOP/s; messages in bfloat16, int64",
        "",
        "whole script    2 ms, as it has no training step; its parts are of rank 5, which ended last",
    ]
    assert lines[4:] == [line for line in step_report(STEP).splitlines()[5:] if "other step" not in line]


def test_the_time_is_told_with_those_of_the_steps_that_do_as_much() -> None:
    times = (9e-3, 2e-3, 3e-3, 2.5e-3, 4e-3, 5e-3)
    lines = fact_lines(part_facts(replace(STEP, step_times_s=times, step_groups=((2, 3, 4), (1,), (5, 6)), step_time_s=2.5e-3)))
    assert lines[0].startswith(
        "step            2.5 ms, the median of 3 steps of equal work (2 ms to 3 ms); its parts are of rank 5"
    )
    assert lines[-2:] == ["1 other step    9 ms", "2 other steps   4 ms, 5 ms"]
    alike = fact_lines(part_facts(replace(STEP, step_times_s=(2e-3, 2e-3), step_groups=((1, 2),))))
    assert alike[0].startswith("step            2 ms, as each of 2 equal steps; its parts")
    assert alike[-3] == "  idle          250 us"


def test_of_many_other_works_the_last_share_a_line() -> None:
    times = tuple(k * 1e-3 for k in range(1, 8))
    lines = fact_lines(part_facts(replace(STEP, step_times_s=times, step_groups=tuple((k,) for k in (7, 1, 2, 3, 4, 5, 6)))))
    assert lines[-4:] == [
        "1 other step    1 ms",
        "1 other step    2 ms",
        "1 other step    3 ms",
        "3 other steps   4 ms, 5 ms, 6 ms",
    ]


def test_of_many_parts_of_the_path_the_longest_are_told() -> None:
    parts = tuple(PathPart("all_reduce", f"axis{k}", None, None, s * 1e-5) for k, s in enumerate((60, 50, 40, 30, 12, 5, 3)))
    (line, *_) = fact_lines(foot_facts(replace(STEP, critical_path=parts)))
    told = ", ".join(f"{share} % axis{k} all_reduce" for k, share in enumerate((30, 25, 20, 15, 6)))
    assert line == f"critical path   {told}, 4 % other"


def test_of_many_steps_the_first_are_told() -> None:
    lines = step_report(replace(STEP, step_times_s=(1e-3,) * 11, step_groups=(tuple(range(1, 12)),))).splitlines()
    assert lines[3] == "steps           " + "1 ms, " * 7 + "1 ms and 3 more"


def test_the_algorithms_of_several_axes_have_a_line_for_each_axis_in_the_order_of_a_plan() -> None:
    of_tp = {"all_gather": "direct", "all_reduce": "tree"}
    step = replace(STEP, algorithms_by_axis={"dp": {"all_reduce": "ring"}, "": {}, "tp": of_tp})
    lines = fact_lines(foot_facts(step))
    at = next(number for number, line in enumerate(lines) if line.startswith("algorithms"))
    assert lines[at:] == [
        "algorithms      tp: all_gather direct, all_reduce tree",
        "                dp: all_reduce ring",
        "                other: none",
    ]
