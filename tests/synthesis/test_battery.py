"""Random networks: every synthesised schedule is proved, leaves the right data, is near the best trees and above all bounds."""

import pytest

from emu.backend.executor.executor import execute
from emu.bound.limit import FULL_EFFORT, limit_of
from emu.collective.proof import prove
from emu.study.measure.move import Payload, dtype_of
from emu.study.synthesize import SynthesisRequest, synthesize
from emu.synthesis.splitting import UnpairedError
from emu.synthesis.variants import MATCHED, SYNTHESIS_OPERATIONS, VariantFamilies
from tests.synthesis.graphs import drawn, made

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


@pytest.mark.parametrize("operation", SYNTHESIS_OPERATIONS)
@pytest.mark.parametrize("up_Bps", [1e9, 10e9])
def test_a_switch_that_lets_out_many_times_what_it_lets_in_is_served(up_Bps: float, operation: str) -> None:
    rows = [row for npu in range(6) for row in ((npu, 6, up_Bps if npu else 100e9, 0), (6, npu, 100e9, 0))]
    found = synthesize(made(6, 7, rows), SynthesisRequest(operation, LARGE))
    assert 0.8 < found.of_trees < 1 + 1e-6


def test_blocks_of_unequal_sizes_are_compared_with_trees_of_the_least() -> None:
    rows = [(a, b, 1000.0, 0) for a in range(3) for b in range(3) if a != b]
    found = synthesize(made(3, 3, rows), SynthesisRequest("all_gather", 28))  # blocks of 12, 8 and 8 bytes
    assert found.trees_s == pytest.approx(8 / 1000)  # two blocks of 8 bytes over two links
    assert found.time_s >= 20 / 2000  # what the last rank gets over its two links


def test_without_trees_a_matching_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpaired(_: VariantFamilies, *, by_rates: bool) -> None:
        raise UnpairedError

    monkeypatch.setattr(VariantFamilies, "_forests", unpaired)
    assert synthesize(drawn(3), SynthesisRequest("broadcast", LARGE)).variant.how == MATCHED


@pytest.mark.slow
@pytest.mark.parametrize("operation", SYNTHESIS_OPERATIONS)
@pytest.mark.parametrize("seed", MANY)
def test_many_more_schedules_are_right_and_near_the_best_trees(seed: int, operation: str) -> None:
    check(seed, operation, even=True)
