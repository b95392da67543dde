"""The parts of a measured step, held against marking each microsecond."""

import random

import numpy as np
import pytest

from emu.trace.formats.measured_parts import MeasuredParts, mean_of_ranks, measured_parts


@pytest.mark.parametrize("seed", range(40))
def test_each_moment_of_a_step_is_of_the_computation_or_of_the_first_axis_that_is_under_way(seed: int) -> None:
    random_ = random.Random(seed)

    def pairs(most: int) -> list[tuple[float, float]]:
        starts = [random_.randrange(0, 60) for _ in range(random_.randrange(most))]
        return [(float(start), float(start + random_.randrange(0, 15))) for start in starts]

    low, high = 10, 50
    computed, asked = pairs(5), {axis: pairs(4) for axis in random_.sample(["tp", "dp", "pp"], random_.randrange(4))}
    kind = ["idle"] * 100
    for axis in reversed(asked):
        for begin, end in asked[axis]:
            kind[int(begin) : int(end)] = [axis] * (int(end) - int(begin))
    for begin, end in computed:
        kind[int(begin) : int(end)] = ["compute"] * (int(end) - int(begin))
    found = measured_parts(low, high, np.array(computed, np.float64), asked)
    us = {each: kind[low:high].count(each) * 1e-6 for each in ("compute", "idle", *asked)}
    assert found.compute_s == pytest.approx(us["compute"])
    assert found.idle_s == pytest.approx(us["idle"], abs=1e-15)
    assert found.exposed_comm_by_axis_s == pytest.approx({axis: us[axis] for axis in asked})
    assert list(found.exposed_comm_by_axis_s) == list(asked)
    assert found.exposed_comm_s == pytest.approx(sum(us[axis] for axis in asked))


def test_parts_of_a_microsecond_are_kept() -> None:
    found = measured_parts(0.5, 3.0, np.array([(0.25, 1.125)]), {"tp": [(1.0, 1.5)]})
    assert (found.compute_s, found.exposed_comm_s, found.idle_s) == pytest.approx((0.625e-6, 0.375e-6, 1.5e-6))


def test_the_mean_is_over_all_ranks_with_nothing_on_the_axes_that_a_rank_has_not() -> None:
    ranks = [
        MeasuredParts(compute_s=1.0, exposed_comm_by_axis_s={"tp": 0.5, "dp": 1.0}, idle_s=0.25),
        MeasuredParts(compute_s=2.0, exposed_comm_by_axis_s={"pp": 3.0, "dp": 2.0}, idle_s=0.0),
        MeasuredParts(compute_s=6.0, exposed_comm_by_axis_s={}, idle_s=0.5),
    ]
    found = mean_of_ranks(iter(ranks))
    assert (found.compute_s, found.idle_s) == (3.0, 0.25)
    assert found.exposed_comm_by_axis_s == pytest.approx({"dp": 1.0, "pp": 1.0, "tp": 0.5 / 3})
    assert list(found.exposed_comm_by_axis_s) == ["dp", "pp", "tp"]
