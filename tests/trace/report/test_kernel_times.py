"""Equal kernels of a step and equal calls, held against looking at each by itself."""

import random
from collections import Counter, defaultdict
from dataclasses import replace
from statistics import median

import pytest

from emu.arrays import column
from emu.collective.choice import Choice
from emu.fabric.run import run_graph
from emu.trace.kernel_shape import Kernel, Shape
from emu.trace.report.collective_times import collective_times
from emu.trace.report.kernel_times import KernelKey, kernel_times
from emu.trace.trace import Events, Group, Trace
from tests.trace.laid import DEVICE, Words, replay, star_of, trace_of


def lasting(events: Events, seconds: list[float]) -> Events:
    object.__setattr__(events, "lasts_s", column(seconds, float))
    return events


@pytest.mark.parametrize("seed", range(10))
def test_kernels_are_told_by_name_and_size_with_the_median_of_their_times(seed: int) -> None:
    random_, words, roles = random.Random(seed), Words(), []
    each = defaultdict[tuple[object, ...], list[tuple[float, int]]](list)
    ranks = (0, 1, 0)
    for role in range(2):
        rows, lasts = [], []
        for _ in range(random_.randrange(4, 20)):
            step, size, name, dtype = (random_.choice(some) for some in ((1, 1, 2), (8, 16), "ab", ("float32", "")))
            name = f"{name} of {size}"
            sizes = {"kernel": 1, "batch": 1, "m": size, "n": 2, "k": 4, "bytes": size}
            rows.append(words.compute(random_.random() * bool(dtype), step=step, name=name, dtype=dtype, **sizes))
            lasts.append(random_.randrange(1, 9) * 1e-3)
            if step == 1:
                each[name, dtype, size].append((lasts[-1], ranks.count(role)))
        roles.append(lasting(words.events(*rows), lasts))
    trace = trace_of(*roles, role_of_rank=ranks, groups=(Group("world", (0, 1, 2)),))
    found = kernel_times(trace, replace(DEVICE, keeps_unknown=True), "float32", 1)
    assert {(one.name, one.dtype, one.work): (one.times, one.measured_s) for one in found} == {
        (name, dtype, f"product 1 x {size} x 2 x 4" if dtype else "unknown"): (
            sum(n for _, n in own),
            median(s for s, _ in own),
        )
        for (name, dtype, size), own in each.items()
    }
    assert [one.device_s is None for one in found] == [not one.dtype for one in found]
    totals = [one.times * (one.measured_s if one.device_s is None else one.device_s) for one in found]
    assert totals == sorted(totals, reverse=True)
    assert totals == [one.total_s for one in found]


def test_the_work_of_a_kernel_is_in_words() -> None:
    of = KernelKey("a", "bfloat16", Shape(Kernel.CAUSAL_BACKWARD, 2, 3, 4, 5), 77)
    assert of.words == "causal backward 2 x 3 x 4 x 5"
    assert of._replace(shape=Shape()).words == "77 B"
    assert of._replace(dtype="").words == "unknown"


def calls_of(seed: int) -> tuple[Trace, list[list[tuple[int, str, int, float]]]]:
    """A trace of three roles on four ranks, with the step, operation, elements and seconds of each call of each role."""
    random_, words = random.Random(seed), Words()
    made = [
        (random_.choice((1, 1, 2)), random_.choice(("all_reduce", "all_gather")), random_.choice((8, 8000))) for _ in range(9)
    ]
    made.sort(key=lambda call: call[0])
    told = [[(*call, random_.randrange(1, 9) * 1e-5) for call in made] for _ in range(3)]
    roles = []
    for calls in told:
        rows, lasts = [], []
        for number, (step, name, elements, seconds) in enumerate(calls):
            rows += [
                words.compute(random_.randrange(3), step=step),
                words.collective(elements, name, step=step, instance=number),
            ]
            lasts += [0.0, seconds]
        roles.append(lasting(words.events(*rows), lasts))
    world = Group("dp", (0, 1, 2, 3))
    return trace_of(*roles, role_of_rank=(0, 1, 2, 1), groups=(world,)), told


@pytest.mark.parametrize("seed", range(12))
def test_a_call_takes_as_long_as_the_member_stays_that_came_last(seed: int) -> None:
    trace, told = calls_of(seed)
    laid = replay(trace, Choice({"all_reduce": "ring", "all_gather": "ring"}), star_of(4), every_rank=True)
    timeline = run_graph(laid.graph)
    found = {(one.operation, one.size_bytes): one for one in collective_times(trace, laid, timeline, 1)}
    kinds = Counter((name, 4 * elements) for step, name, elements, _ in told[0] if step == 1)
    assert {key: one.times for key, one in found.items()} == kinds
    for (name, size), one in found.items():
        stays = [
            [of_role[i][3] for of_role in (told[0], told[1], told[2], told[1])]
            for i, call in enumerate(told[0])
            if call[:3] == (1, name, size // 4)
        ]
        last = Counter(stay.index(min(stay)) for stay in stays if min(stay) < max(stay))
        assert (one.axis, one.ranks) == ("dp", 4)
        assert one.measured.time_s == pytest.approx(median(map(min, stays)))
        assert one.measured.apart_s == pytest.approx(median(max(stay) - min(stay) for stay in stays))
        assert (one.measured.last_rank is None) == (not last)
        assert not last or last[one.measured.last_rank or 0] == max(last.values())
        assert one.ratio == pytest.approx(one.virtual.time_s / one.measured.time_s)
        assert one.virtual.apart_s is not None
        assert one.virtual.time_s > 0
    longest = [one.times * max(one.measured.time_s, one.virtual.time_s) for one in found.values()]
    assert longest == sorted(longest, reverse=True)


def test_of_ranks_of_one_profile_nobody_knows_who_came_last() -> None:
    words = Words()
    role = lasting(words.events(words.compute(1), words.collective(1000)), [0.0, 0.25])
    trace = trace_of(role, role_of_rank=(0, 0, 0, 0), groups=(Group("dp", (0, 1, 2, 3)),))
    laid = replay(trace, Choice({"all_reduce": "ring"}), star_of(4), every_rank=True)
    [found] = collective_times(trace, laid, run_graph(laid.graph), 1)
    assert found.measured == (0.25, None, None)
    assert found.virtual[1:] == (0.0, None)
