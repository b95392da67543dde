"""How jobs are timed beside one another, their planes, and the links that they share, with figures that are given."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.errors import InputError
from emu.study.jobs import side_by_side
from emu.study.jobs.jobs_request import AUTO, CIRCLE, COMPOSED, NONE, PLANES, WEIGHTS, WHOLE, JobsSetting
from emu.study.jobs.setting_run import SettingFigures, npu_ranges
from emu.study.jobs.side_by_side import SideBySide, _check_links, _is_composed, planes_of_jobs, steps_of
from emu.topology.catalogue import build_topology
from emu.trace.replay.replay import SizeError

TOPOLOGY = build_topology("switch:n=4,bandwidth=50GB/s,latency=500ns")
FEW = side_by_side._FEW_TASKS


def job(planes: tuple[int, ...] = ()) -> Any:
    return SimpleNamespace(planes=planes)


@pytest.mark.parametrize(
    ("count", "jobs", "dealt"),
    [
        (4, 3, [(0, 3), (1,), (2,)]),
        (7, 3, [(0, 3, 6), (1, 4), (2, 5)]),
        (2, 3, [(0,), (1,), (0,)]),
        (3, 1, [(0, 1, 2)]),
        (0, 2, [(0,), (0,)]),
    ],
)
def test_planes_are_dealt_to_jobs_in_turn_and_one_that_more_jobs_need_is_dealt_again(
    count: int, jobs: int, dealt: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "planes_of", lambda _: np.array([-1, *range(count), -1]))
    setting = JobsSetting(share=PLANES)
    assert planes_of_jobs([job() for _ in range(jobs)], TOPOLOGY, setting) == dealt
    own = [job((5, 6)), *[job() for _ in range(jobs - 1)]]
    assert planes_of_jobs(own, TOPOLOGY, setting) == [(5, 6), *dealt[1:]]
    assert planes_of_jobs(own, TOPOLOGY, JobsSetting(share=WEIGHTS)) == [(5, 6), *[()] * (jobs - 1)]


def placed(step_fs: int = 100, tasks: int = 10, *, is_whole: bool = True, name: str = "a job") -> Any:
    alone = SimpleNamespace(report=SimpleNamespace(step_time_fs=step_fs, step_time_s=step_fs / 1e15))
    messages = SimpleNamespace(graph=SimpleNamespace(n_tasks=tasks))
    return SimpleNamespace(alone=alone, messages=messages, is_whole=is_whole, job=SimpleNamespace(name=name, start_fs=step_fs))


def request(steps: int = 4, time: str = AUTO, packets: Any = None) -> Any:
    return SimpleNamespace(steps=steps, time=time, packets=packets, jobs=())


def test_jobs_repeat_their_steps_until_the_slowest_has_its_own_and_three_more() -> None:
    assert steps_of(request(4), [placed(100), placed(700), placed(300), placed(0)]) == [49, 7, 17, 4900]


@pytest.mark.parametrize("time", [AUTO, COMPOSED])
def test_a_job_of_too_many_events_is_composed(time: str) -> None:
    assert _is_composed(request(time=time), [placed(), placed(is_whole=False), placed()])


@pytest.mark.parametrize(("time", "packets"), [(WHOLE, None), (AUTO, "cells"), (COMPOSED, "cells")])
def test_a_job_of_too_many_events_is_refused_where_all_messages_are_needed(time: str, packets: str | None) -> None:
    jobs = [placed(), placed(is_whole=False, name="the large one")]
    with pytest.raises(InputError, match="jobs: the step of the large one must be few enough events for a whole graph, got"):
        _is_composed(request(time=time, packets=packets), jobs)


@pytest.mark.parametrize(
    ("time", "packets", "tasks", "composed"),
    [
        (COMPOSED, None, 1, True),
        (WHOLE, None, FEW, False),
        (AUTO, "cells", FEW, False),
        (AUTO, None, FEW // 16, False),  # four and four steps of this, twelve of the shorter one
        (AUTO, None, FEW // 16 + 1, True),
    ],
)
def test_small_jobs_are_composed_where_that_is_asked_for_or_all_their_steps_have_too_many_tasks(
    time: str, packets: str | None, tasks: int, composed: bool
) -> None:
    jobs = [placed(300, tasks), placed(100, tasks)]
    assert _is_composed(request(1, time, packets), jobs) is composed


def test_a_step_that_only_a_symmetry_made_small_is_composed() -> None:
    class Large(SimpleNamespace):
        @property
        def messages(self) -> Any:
            raise SizeError

    large = Large(alone=placed().alone, is_whole=True)
    assert _is_composed(request(), [placed(), large])


def test_software_that_leaves_links_another_bandwidth_is_refused_by_the_name_of_its_job() -> None:
    rates = [np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.array([1.0, 3.0])]
    rated = [SimpleNamespace(capacity_Bps=own) for own in rates]
    jobs: Any = [SimpleNamespace(job=SimpleNamespace(name=f"job {i}"), topology=own) for i, own in enumerate(rated)]
    _check_links(jobs[:2])
    with pytest.raises(InputError, match="jobs: stack of job 2 must be one that leaves links as the others do"):
        _check_links(jobs)


def test_jobs_begin_at_their_start_and_on_a_circle_as_much_later_as_they_are_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = (placed(5), placed(70), placed(900))
    beside = SideBySide(request(), TOPOLOGY, jobs, is_composed=False)
    vars(beside)["profiles"] = [SimpleNamespace(step_fs=step_fs) for step_fs in (1000, 50, 400)]
    vars(beside)["common_links"] = "given"
    monkeypatch.setattr(side_by_side, "shifts_of", lambda *_: [0, 20, 300])
    assert beside.begins_fs(NONE) == [5, 70, 900]
    assert beside.begins_fs(CIRCLE) == [5, 75, 1105]  # 5 + 20 + 50 and 5 + 300 + 2 * 400: at their start or later


def figures(*, is_composed: bool = False) -> SettingFigures:
    """Three jobs; messages of link 2 are not looked at."""
    names = [SimpleNamespace(job=SimpleNamespace(name=name)) for name in "abc"]
    together = {(1, 0, 1): 0.2, (3, 0, 1): 0.3, (4, 0, 1): 0.3, (3, 0, 2): 0.5, (1, 1, 0): 0.1, (3, 1, 0): 0.1, (4, 1, 0): 0.1}
    use: Any = SimpleNamespace(links=np.array([4, 3, 1]), together_s=lambda link, i, other: together.get((link, i, other), 0.0))
    beside: Any = SimpleNamespace(is_composed=is_composed, placed=names, topology=TOPOLOGY)
    return SettingFigures(beside, JobsSetting(), (), np.ones((3, 3)), use)


BUSY = np.array(
    [
        [0.9, 0.1, 0.5, 0.2, 0.3, 0.0],
        [0.0, 0.1, 0.4, 0.2, 0.2, 0.0],
        [0.0, 0.0, 0.0, 0.3, 0.0, 0.7],
    ]
)


def test_of_the_links_with_each_other_job_the_one_with_most_time_together_is_told_the_longest_first() -> None:
    """On links 3 and 4 jobs a and b are together equally long, and link 3 is busier with all jobs."""
    found = [(each.beside, each.links, each.link, each.together_s) for each in figures()._links(0, BUSY)]
    assert found == [("c", 1, 3, 0.5), ("b", 4, 3, 0.3)]
    assert [each.busy for each in figures()._links(0, BUSY)] == pytest.approx([0.7, 0.7])
    assert [(each.beside, each.links, each.link) for each in figures()._links(1, BUSY)] == [("a", 4, 3), ("c", 1, 3)]
    src, dst = (TOPOLOGY.node_name(int(end[3])) for end in (TOPOLOGY.links.src, TOPOLOGY.links.dst))
    assert {(each.src, each.dst) for each in figures()._links(0, BUSY)} == {(src, dst)}


def test_where_bodies_stand_for_messages_the_busiest_common_link_is_told_without_a_time() -> None:
    found = [(each.beside, each.links, each.link, each.together_s) for each in figures(is_composed=True)._links(0, BUSY)]
    assert found == [("b", 4, 2, None), ("c", 1, 3, None)]


@pytest.mark.parametrize(
    ("npus", "told"), [([5], "5"), ([0, 1], "0-1"), ([1, 0], "1,0"), ([0, 2, 3, 4, 9], "0,2-4,9"), ([7, 8, 8], "7-8,8")]
)
def test_runs_of_neighbours_are_told_as_ranges(npus: list[int], told: str) -> None:
    assert npu_ranges(np.array(npus)) == told
