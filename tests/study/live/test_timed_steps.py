"""A step of a job that runs through faults at times: its repairs, its events, and the step of each task, by hand."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.study.live.timed_faults import _step, _why, steps_of_tasks
from emu.topology.fault_injection.fault import parse_fault
from emu.units import TICKS_PER_S


def moment(time_s: int, name: str, mended_s: int = 0, told: str = "", events: tuple[str, ...] = ()) -> Any:
    found = SimpleNamespace(topology=SimpleNamespace(name=name))
    times = {"time_fs": time_s * TICKS_PER_S, "mended_fs": mended_s * TICKS_PER_S}
    return SimpleNamespace(**times, found=found, told=told, events=events)


MOMENTS = [
    moment(0, "whole"),
    moment(40, "less", 10, "turned", ("a failed",)),
    moment(100, "least", 30, "moved", ("b failed", "c failed")),
    moment(130, "more", 0, "moved", ("b is back",)),
    moment(150, "most", 2, "waited"),
    moment(200, "whole again", 170, "turned back", ("all are back",)),
]


@pytest.mark.parametrize(
    ("low", "high", "mending_s", "events", "told", "name"),
    [
        (0, 25, 0, [], "", "whole"),
        (25, 38, 8, [], "", "whole"),  # the repair that ends at 40 and the one that ends at 200 both began at 30
        (38, 100, 62, ["a failed at 40 s"], "turned", "less"),
        (
            100,
            200,
            100,
            ["b failed at 100 s", "c failed at 100 s", "b is back at 130 s"],
            "moved; waited",
            "most",
        ),
        (200, 260, 0, ["all are back at 200 s"], "turned back", "whole again"),
        (150, 151, 1, [], "waited", "most"),
        (201, 260, 0, [], "", "whole again"),
    ],
)
def test_a_step_has_what_comes_in_it_and_the_time_of_repairs_that_lies_in_it(
    low: int, high: int, mending_s: int, events: list[str], told: str, name: str
) -> None:
    found = _step(MOMENTS, 7, low * TICKS_PER_S, high * TICKS_PER_S)
    assert (found.step, found.time_s, found.mending_s) == (7, high - low, mending_s)
    assert ([*found.events], found.told, found.topology) == (events, told, name)


def test_tasks_are_of_the_step_of_their_event_and_those_of_a_request_of_the_last_step_that_asks_for_it() -> None:
    """Requests have tasks 6 to 8 and 9 to 11; what has no task, such as the last event of each rank, says nothing."""
    step = [[1, 1, 3, 9], [1, 2, 2, 8]]
    trace: Any = SimpleNamespace(n_ranks=2, events_of=lambda rank: SimpleNamespace(step=np.array(step[rank], np.int32)))
    graph = SimpleNamespace(n_tasks=12)
    begins, instance = np.array([0, 1, 2, -1, 3, 4, 5, -1]), np.array([-1, 0, 1, 1, -1, 0, -1, 0])
    replayed: Any = SimpleNamespace(begins=begins, instance=instance, firsts=np.array([6, 9]), graph=graph)
    assert steps_of_tasks(trace, replayed).tolist() == [1, 1, 3, 1, 2, 2, 2, 2, 2, 3, 3, 3]


def test_a_job_ends_at_a_moment_that_kills_a_rank_or_leaves_no_room_and_at_no_other() -> None:
    npu, rank = parse_fault("npu 2 at 1s"), parse_fault("rank 3 kill at 1s")
    goes_on: Any = SimpleNamespace(taken=[(npu, 2)], states=("npu 2 failed",), stops="")
    no_room: Any = SimpleNamespace(taken=[(npu, 2)], states=("npu 2 failed",), stops="no NPU is left")
    killed: Any = SimpleNamespace(taken=[(npu, 2), (rank, 3)], states=("npu 2 failed",), stops="no NPU is left")
    assert _why(goes_on) is None
    assert _why(no_room) == "npu 2 failed, and the job cannot go on: no NPU is left"
    assert str(_why(killed)).startswith("rank 3 was killed, and its state with it")
