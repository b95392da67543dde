"""Random networks: every synthesised schedule is proved, leaves the right data, is near the best trees and above all bounds."""

import pytest

from emu.backend.executor.executor import execute
from emu.bound.limit import FULL_EFFORT, limit_of
from emu.collective.proof import prove
from emu.study.measure.move import Payload, dtype_of
from emu.study.synthesize import SynthesisRequest, synthesize
from emu.synthesis.variants import SYNTHESIS_OPERATIONS
from tests.synthesis.graphs import drawn

LARGE = 256 * 2**20
FEW, MANY = range(12), range(12, 200)


def check(seed: int, operation: str, *, even: bool, most_above: float = 1.05) -> None:
    topology = drawn(seed, even=even)
    found = synthesize(topology, SynthesisRequest(operation, LARGE))
    full = found.schedule.expand()
    assert prove(full, found.operation).uniform
    assert found.time_s <= most_above * found.trees_s
    limit = limit_of(topology, found.operation, found.site.npus, helpers=False, effort=FULL_EFFORT)
    block_bytes = int(found.operation.block_counts(LARGE // 4).min()) * 4
    assert found.time_s >= limit.least_s(block_bytes)[0] * (1 - 1e-6)
    payload = Payload.make(found.operation, 4099, dtype_of("float32"), "sum")
    execute(full, found.operation, payload.buffers(), counts=payload.block_counts)
    assert payload.wrong() == 0


@pytest.mark.parametrize("operation", SYNTHESIS_OPERATIONS)
@pytest.mark.parametrize("seed", FEW)
def test_a_schedule_is_right_and_near_the_best_trees(seed: int, operation: str) -> None:
    check(seed, operation, even=True)


@pytest.mark.parametrize("seed", FEW)
def test_switches_that_let_out_more_than_they_let_in_are_served(seed: int) -> None:
    check(seed, "all_gather", even=False, most_above=1.06)


@pytest.mark.slow
@pytest.mark.parametrize("operation", SYNTHESIS_OPERATIONS)
@pytest.mark.parametrize("seed", MANY)
def test_many_more_schedules_are_right_and_near_the_best_trees(seed: int, operation: str) -> None:
    check(seed, operation, even=True)
