"""The times of an elastic job that has run, leg by leg, beside sums by hand: its steps, its recoveries, and its goodput."""

from types import SimpleNamespace
from typing import Any

import pytest

from emu.model.plan.plan import Plan
from emu.study.live.elastic_job import ElasticJob, Leg, _plan_for_remaining, time_elastic, traces_by_plan
from emu.study.live.faulty_job import FaultyJob
from emu.study.training.learn.checkpoints import CheckpointFolder
from emu.study.training.learn.program import Program
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import parse_fault
from emu.topology.fault_injection.machine_state import MachineState, RankLoss

RACK = build_topology("ub-mesh:rack-full:dims=2x2")
WIDE, NARROW = Plan(tp=2, dp=2, global_batch=4, seq=16), Plan(tp=2, dp=1, global_batch=4, seq=16)
FAULTS = ("link 0-2 slow 0.5 from step 3 to 5", "npu 1 at step 4", "rank 3 kill at step 7")
TOLD_S = 0.6e-6  # within which all know that an NPU has failed


def times(base: float) -> Any:
    """Steps whose lower middle is `base`, three times as long with a slow link, and 10 s longer without an NPU."""

    def timed(found: MachineState) -> tuple[float, ...]:
        name = found.topology.name
        middle = base * (3 if "at 0.5" in name else 1) + 10 * ("without NPU 1" in name)
        return (middle + 50, middle - 0.5, middle + 0.25, middle)

    return timed


def timed_job(legs: tuple[Leg, ...], texts: tuple[str, ...] = FAULTS, steps: int = 8) -> FaultyJob:
    learned: Any = SimpleNamespace(loss=(3.0, 2.0), reference_loss=(3.0, 2.5), trace=None)
    final: Any = SimpleNamespace(steps=steps)
    faults = [parse_fault(text) for text in texts]
    return time_elastic(ElasticJob(legs, learned, final), RACK, faults, {WIDE: times(2.0), NARROW: times(7.0)}, "h100")


LEGS = (
    Leg(WIDE, 1, 1, RankLoss(4, 1, "npu 1 failed", ""), "npu 1 failed"),
    Leg(WIDE, 2, 4, RankLoss(7, 3, "rank 3 was killed", ""), "rank 3 was killed"),
    Leg(NARROW, 4, 7),
)


def test_each_leg_does_its_steps_on_the_machine_that_its_loss_has_left() -> None:
    """One step was done before; steps 3, 5 and 6 are done twice, and the second time with what failed meanwhile."""
    found = timed_job(LEGS)
    assert [step.step for step in found.steps] == [2, 3, 3, 4, 5, 6, 5, 6, 7, 8]
    own = [step.time_s - step.mending_s for step in found.steps]
    assert own == pytest.approx([2, 6, 16, 16, 16, 12, 17, 17, 17, 17])
    assert [step.mending_s for step in found.steps] == pytest.approx([0, 0, TOLD_S, 0, 0, 0, 0, 0, 0, 0])
    assert found.undisturbed_s == 2.0 * 7
    assert found.goodput == pytest.approx(14 / sum(step.time_s for step in found.steps))
    assert (found.ranks, found.device, found.topology) == (4, "h100", RACK.name)
    assert (found.loss, found.reference_loss) == ((3.0, 2.0), (3.0, 2.5))


def test_what_happens_is_told_of_the_step_that_it_first_meets_on_each_leg() -> None:
    events = [step.events for step in timed_job(LEGS).steps]
    assert events[:6] == [
        (),
        ("link 0-2 has 0.5 of its speed",),
        ("npu 1 failed",),
        (),
        (),
        ("link 0-2 is as before",),
    ]
    assert events[6:9] == [("rank 3 was killed",), (), ()]


def test_a_recovery_has_the_steps_since_the_checkpoint_and_what_the_system_did() -> None:
    first, second = timed_job(LEGS).recoveries
    assert (first.step, first.lost, first.went_on_from, first.plan, first.ranks) == (4, "npu 1 failed", 2, "tp=2,dp=2", 4)
    assert (first.lost_steps, first.recovery_s) == (1, pytest.approx(6 + TOLD_S))
    assert (second.step, second.lost, second.went_on_from, second.plan, second.ranks) == (
        7,
        "rank 3 was killed",
        4,
        "tp=2",
        2,
    )
    assert (second.lost_steps, second.recovery_s) == (2, pytest.approx(16 + 12))


def test_a_leg_that_no_fault_ends_has_done_the_steps_up_to_the_checkpoint_that_follows() -> None:
    found = timed_job((Leg(WIDE, 0, 0, None, "a process died"), Leg(WIDE, 3, 0)), ("npu 1 at step 4",), steps=5)
    assert [step.step for step in found.steps] == [1, 2, 3, 4, 5]
    assert [step.time_s - step.mending_s for step in found.steps] == pytest.approx([2, 2, 2, 12, 12])
    (recovery,) = found.recoveries
    assert (recovery.step, recovery.lost, recovery.went_on_from, recovery.lost_steps) == (4, "a process died", 3, 0)
    assert recovery.recovery_s == pytest.approx(TOLD_S)


@pytest.mark.parametrize(("steps", "short"), [(8, 2), (2, 2), (1, 1)])
def test_plans_that_did_not_come_to_an_end_are_run_for_two_steps_and_each_once(steps: int, short: int) -> None:
    ran: list[tuple[int, Any]] = []

    def run_on(world: int, choice: Any, program: Any) -> tuple[Any, Any]:
        ran.append((world, program))
        return None, f"a trace of {world} ranks"

    kept, lost = CheckpointFolder("nowhere", 1, {}), (RankLoss(4, 1, "npu 1 failed", ""),)
    final = Program("llama-tiny", NARROW, b"", steps, 0, 0.1, lost=lost, kept=kept, first=4)
    learned: Any = SimpleNamespace(trace="the trace of the job")
    legs = (Leg(WIDE, 0, 0), Leg(WIDE, 1, 2), Leg(NARROW, 4, 7))
    choice: Any = "a choice"
    found = traces_by_plan(ElasticJob(legs, learned, final), choice, run_on)
    assert found == {NARROW: "the trace of the job", WIDE: "a trace of 4 ranks"}
    assert ran == [(4, Program("llama-tiny", WIDE, b"", short, 0, 0.1))]


@pytest.mark.parametrize(
    ("lost", "batch", "step", "dp"),
    [((1,), 12, 4, 3), ((1, 2), 12, 4, 2), ((1,), 8, 4, 2), ((1, 2, 3), 12, 4, 1), ((1,), 12, 3, 4)],
)
def test_the_plan_that_goes_on_has_the_largest_dp_that_divides_the_batch_and_finds_room(
    lost: tuple[int, ...], batch: int, step: int, dp: int
) -> None:
    """Four copies lose some NPUs of four at step 4."""
    program: Any = SimpleNamespace(plan=Plan(dp=4, global_batch=batch, seq=16), model="tests/data/two-layers.toml")
    switch = build_topology("switch:n=4,bandwidth=50GB/s,latency=500ns")
    faults = [parse_fault(f"npu {npu} at step 4") for npu in lost]
    assert _plan_for_remaining(program, switch, faults, step) == Plan(dp=dp, global_batch=batch, seq=16)
