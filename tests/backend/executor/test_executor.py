"""The executor against a reading of the schedule's rules row by row, and against itself split over a wire."""

import math
import queue
import threading
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.reductions import unwritten_mark
from emu.collective.operation import Operation, divide_blocks, operation
from emu.collective.schedule import Schedule, Sends, Translations
from emu.collective.transform import concatenate
from emu.dtypes import REDUCE_OPERATIONS
from emu.errors import InputError


def nothing(count: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Memory that nobody has written."""
    return torch.full((count,), unwritten_mark(dtype, "sum"), dtype=dtype)


def ring_reduce_scatter(n: int) -> Schedule:
    r = np.arange(n)
    return Schedule.build(n, n, (Sends(r, (r + 1) % n, (r - t - 1) % n, reduce=True) for t in range(n - 1)))


def ring_all_gather(n: int) -> Schedule:
    r = np.arange(n)
    return Schedule.build(n, n, (Sends(r, (r + 1) % n, (r - t) % n) for t in range(n - 1)))


def all_at_once_reduce(n: int) -> Schedule:
    src, dst = np.nonzero(~np.eye(n, dtype=bool))
    return Schedule.build(n, n, [Sends(src, dst, dst, reduce=True)])


def row_by_row(schedule: Schedule, have: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
    """Return what every (rank, slot) holds at the end, by the letter of the rules."""
    cells = dict(have)
    for rows in schedule.rounds():
        before, adds = dict(cells), defaultdict(list)
        for row in range(rows.start, rows.stop):
            key = (int(schedule.dst[row]), int(schedule.written_slot[row]))
            value = before[int(schedule.src[row]), int(schedule.slot[row])]
            if schedule.reduce[row]:
                adds[key].append((int(schedule.src[row]), value))
            else:
                cells[key] = value
        for key, arrived in adds.items():
            own = [(key[0], before[key])] if key in before else []
            terms = [value for _, value in sorted(arrived + own, key=lambda pair: pair[0])]
            total = terms[0]
            for term in terms[1:]:
                total = total + term
            cells[key] = total
    return cells


@st.composite
def random_schedules(draw: st.DrawFn) -> tuple[Schedule, Operation, list[int]]:
    """Valid rows without any purpose: some ranks hold some blocks, everyone wants whatever they end with."""
    n, blocks, parts = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    helpers = draw(st.integers(0, 1))
    have = draw(st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, blocks - 1)), min_size=1))
    held = {(r, b * parts + p) for r, b in have for p in range(parts)}
    rounds = []
    for _ in range(draw(st.integers(0, 4))):
        rows: dict[tuple[int, int, int], bool] = {}
        mode: dict[tuple[int, int], bool] = {}
        for _ in range(draw(st.integers(1, 6))):
            src, slot = draw(st.sampled_from(sorted(held)))
            dst = draw(st.integers(0, n + helpers - 1))
            reduce = draw(st.booleans()) and (
                dst >= n or (dst, slot) in held
            )  # to what a rank holds nothing of nothing is added
            if dst == src or ((dst, slot) in mode and not (mode[dst, slot] and reduce)) or (src, dst, slot) in rows:
                continue
            rows[src, dst, slot] = mode[dst, slot] = reduce
        rounds.append([Sends(s, d, k, reduce) for (s, d, k), reduce in rows.items()])
        held |= set(mode)
    schedule = Schedule.build(
        n, blocks * parts, rounds, helpers=helpers, shares=draw(st.sampled_from([(), tuple(range(1, parts + 1))]))
    )
    final = sorted(
        {(r, k // parts) for r, k in held if r < n and all((r, k // parts * parts + p) in held for p in range(parts))}
    )
    wanted = draw(st.sets(st.sampled_from(final))) if final else set()
    table = [np.array(sorted(pairs), np.int32).reshape(-1, 2) for pairs in (have, wanted)]
    sizes = draw(st.lists(st.integers(0, 9), min_size=blocks, max_size=blocks))
    return schedule, Operation("random", n, blocks, table[0], table[1]), sizes


@st.composite
def translated_schedules(draw: st.DrawFn) -> tuple[Schedule, Operation, list[int]]:
    """Draw valid rows of rank 0 alone, which translations of a grid repeat, in an operation that they map on itself."""
    dims, digits, rest = (
        draw(st.sampled_from([(2,), (3,), (5,), (2, 2), (2, 3)])),
        draw(st.integers(0, 2)),
        draw(st.integers(1, 2)),
    )
    n = math.prod(dims)
    slots = Translations(dims, n**digits * rest, digits)
    blocks = draw(st.sampled_from([slots, Translations(dims, n**digits, digits), Translations(dims, 1, 0)]))
    parts = slots.n_slots // blocks.n_slots
    have = draw(st.sets(st.integers(0, blocks.n_slots - 1), min_size=1, max_size=4))
    held = {block * parts + part for block in have for part in range(parts)}
    rounds = []
    for _ in range(draw(st.integers(1, 4))):
        rows: dict[tuple[int, int], bool] = {}
        mode: dict[int, bool] = {}
        for _ in range(draw(st.integers(1, 6))):
            dst, slot = draw(st.integers(1, n - 1)), draw(st.sampled_from(sorted(held)))
            written = int(slots.slot(slot, slots.opposite(dst)))
            reduce = draw(st.booleans()) and written in held
            if (dst, slot) not in rows and (written not in mode or (mode[written] and reduce)):
                rows[dst, slot] = mode[written] = reduce
        rounds.append([Sends(0, dst, slot, reduce) for (dst, slot), reduce in rows.items()])
        held |= set(mode)
    schedule = Schedule.build(n, slots.n_slots, rounds, translate=dims, slot_digits=digits)
    final = [b for b in range(blocks.n_slots) if all(b * parts + part in held for part in range(parts))]
    pairs = [have, draw(st.sets(st.sampled_from(final))) if final else set()]
    table = [sorted((v, int(blocks.slot(b, v))) for v in range(n) for b in some) for some in pairs]
    sides = [np.array(rows, np.int32).reshape(-1, 2) for rows in table]
    sizes = draw(st.lists(st.integers(0, 9), min_size=blocks.n_slots, max_size=blocks.n_slots))
    return schedule, Operation("random", n, blocks.n_slots, *sides), sizes


@given(random_schedules() | translated_schedules(), st.booleans())
@settings(max_examples=250)
def test_any_schedule_ends_as_its_rules_read_row_by_row(
    case: tuple[Schedule, Operation, list[int]], side_by_side: bool
) -> None:
    schedule, op, sizes = case
    counts = np.array(sizes, np.int64)
    slots = divide_blocks(counts, schedule.n_slots, schedule.shares)
    values = {(int(r), int(b)): torch.randn(sizes[b]) for r, b in op.have}
    inputs = [torch.cat([values[r, int(b)] for b in op.input_blocks(r)] or [torch.empty(0)]) for r in range(op.n_ranks)]
    widths = [int(counts[op.output_blocks(r)].sum()) for r in range(op.n_ranks)]
    arena = nothing(op.n_ranks * (max(widths) + 1)).view(op.n_ranks, -1)
    outputs = [arena[r, :w] for r, w in enumerate(widths)]
    buffers = {r: Buffers(inputs[r].clone(), outputs[r] if side_by_side else outputs[r].clone()) for r in range(op.n_ranks)}
    execute(schedule, op, buffers, counts=counts)

    def part(r: int, slot: int) -> Tensor:
        start = int(slots.start[slot])
        return values[r, int(slots.block[slot])][start : start + int(slots.count[slot])]

    parts = schedule.n_slots // op.n_blocks
    start = {(int(r), int(b) * parts + p): part(int(r), int(b) * parts + p) for r, b in op.have for p in range(parts)}
    final = row_by_row(schedule.expand(), start)
    for r in range(op.n_ranks):
        expected = [final[r, int(b) * parts + p] for b in op.output_blocks(r) for p in range(parts)]
        assert torch.equal(buffers[r].output, torch.cat(expected or [torch.empty(0)]))
        assert torch.equal(buffers[r].input, inputs[r])


class QueueWire:
    """A wire between threads, in order within (src, dst, channel)."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[int, int, int], queue.Queue[Tensor]] = {}

    def lane(self, *key: int) -> "queue.Queue[Tensor]":
        return self.lanes.setdefault(key, queue.Queue())  # atomic, unlike a defaultdict's

    class _Arrival:
        def __init__(self, lane: "queue.Queue[Tensor] | None" = None, into: Tensor | None = None) -> None:
            self.lane, self.into = lane, into

        def wait(self) -> None:
            if self.lane is not None and self.into is not None:
                self.into.copy_(self.lane.get(timeout=20))

    def send(self, src: int, dst: int, channel: int, data: Tensor) -> "_Arrival":
        self.lane(src, dst, channel).put(data.clone())
        return self._Arrival()

    def receive(self, src: int, dst: int, channel: int, data: Tensor) -> "_Arrival":
        return self._Arrival(self.lane(src, dst, channel), data)


@pytest.mark.parametrize("halves", [ring_reduce_scatter, all_at_once_reduce])
@pytest.mark.parametrize("homes", [[[0], [1], [2], [3], [4]], [[0, 3], [1], [2, 4]]])
def test_ranks_split_over_processes_get_the_same_bits(halves, homes: list[list[int]]) -> None:
    n, count = 5, 23
    schedule, op = concatenate(halves(n), ring_all_gather(n)), operation("all_reduce", n)
    inputs = torch.randn(n, count)
    together = {r: Buffers(inputs[r].clone(), nothing(count)) for r in range(n)}
    execute(schedule, op, together)
    split = {r: Buffers(inputs[r].clone(), nothing(count)) for r in range(n)}
    wire = QueueWire()
    counts = np.array([count])
    threads = [
        threading.Thread(
            target=execute, args=(schedule, op, {r: split[r] for r in home}), kwargs={"counts": counts, "wire": wire}
        )
        for home in homes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(split[r].output, together[r].output) for r in range(n))


@pytest.mark.parametrize("reduce", [r for r in REDUCE_OPERATIONS if r not in ("and", "or", "xor")])
def test_each_reduce_operation_does_what_torch_does_over_a_stack(reduce: str) -> None:
    n = 6
    stack = torch.randint(1, 4, (n, 31)).double()
    buffers = {r: Buffers(stack[r].clone(), nothing(31, torch.float64)) for r in range(n)}
    execute(concatenate(ring_reduce_scatter(n), ring_all_gather(n)), operation("all_reduce", n), buffers, reduce=reduce)
    expected = {"sum": stack.sum(0), "avg": stack.mean(0), "product": stack.prod(0), "min": stack.amin(0), "max": stack.amax(0)}
    for pair in buffers.values():
        torch.testing.assert_close(pair.output, expected[reduce], rtol=1e-15, atol=0)


@pytest.mark.parametrize("reduce", ["and", "or", "xor"])
def test_bitwise_operations_on_integers(reduce: str) -> None:
    n = 4
    stack = torch.randint(0, 2**40, (n, 9))
    buffers = {r: Buffers(stack[r].clone(), nothing(9, torch.int64)) for r in range(n)}
    execute(all_then_gather(n), operation("all_reduce", n), buffers, reduce=reduce)
    table = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    assert np.array_equal(buffers[3].output.numpy(), table[reduce].reduce(stack.numpy()))


def all_then_gather(n: int) -> Schedule:
    return concatenate(all_at_once_reduce(n), ring_all_gather(n))


def test_in_place_and_out_of_place_agree_and_only_the_former_changes_its_input() -> None:
    n, count = 7, 40
    inputs = torch.randn(n, count)
    schedule, op = all_then_gather(n), operation("all_reduce", n)
    apart_ = {r: Buffers(inputs[r].clone(), nothing(count)) for r in range(n)}
    execute(schedule, op, apart_)
    same = inputs.clone()
    execute(schedule, op, {r: Buffers(same[r], same[r]) for r in range(n)})
    assert all(torch.equal(same[r], apart_[r].output) and torch.equal(apart_[r].input, inputs[r]) for r in range(n))


def test_many_small_buffers_that_lie_apart_get_the_bits_of_those_side_by_side() -> None:
    n, count = 16, 64
    inputs = torch.randn(n, count)
    schedule, op = concatenate(ring_reduce_scatter(n), ring_all_gather(n)), operation("all_reduce", n)
    arena = nothing(n * count).view(n, count)
    execute(schedule, op, {r: Buffers(inputs[r], arena[r]) for r in range(n)})
    scattered = {r: Buffers(inputs[r].clone(), nothing(count)) for r in range(n)}
    execute(schedule, op, scattered)
    assert all(torch.equal(scattered[r].output, arena[r]) for r in range(n))


def test_a_slot_read_in_the_round_that_overwrites_it_is_read_first() -> None:
    swap = Schedule.build(2, 2, [[Sends([0, 1], [1, 0], 0, dst_slot=0)], [Sends([0, 1], [1, 0], 1)]])
    op = Operation(
        "swap", 2, 2, np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.int32), np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.int32)
    )
    buffers = {0: Buffers(torch.tensor([1.0, 2.0]), nothing(2)), 1: Buffers(torch.tensor([3.0, 4.0]), nothing(2))}
    execute(swap, op, buffers)
    assert buffers[0].output.tolist() == [3.0, 4.0]
    assert buffers[1].output.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("buffers", "reduce", "message"),
    [
        ({0: (4, torch.float32)}, "sum", "2 ranks take part, buffers are given for 1"),
        ({0: (4, torch.float32), 1: (3, torch.float32)}, "sum", "the input of rank 1 must be 4 contiguous elements, got 3"),
        (
            {0: (4, torch.float32), 1: (4, torch.float64)},
            "sum",
            "all buffers must have one dtype, got torch.float32, torch.float64",
        ),
        ({0: (4, torch.float32), 1: (4, torch.float32)}, "summ", "no reduce operation is called 'summ'; did you mean sum"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(buffers, reduce: str, message: str) -> None:
    made = {r: Buffers(torch.zeros(c, dtype=d), torch.zeros(c, dtype=d)) for r, (c, d) in buffers.items()}
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        execute(all_then_gather(2), operation("all_reduce", 2), made, reduce=reduce)


def test_a_schedule_and_buffers_of_other_ranks_and_buffers_elsewhere_are_refused() -> None:
    op, two = operation("all_reduce", 2), Buffers(torch.zeros(4), torch.zeros(4))
    with pytest.raises(InputError, match=r"^all_reduce: schedule must be one of 2 ranks, got 3$"):
        execute(all_then_gather(3), op, {0: two, 1: two})
    with pytest.raises(InputError, match=r"^all_reduce: ranks with buffers must be some of 0\.\.1, got \[2\]$"):
        execute(all_then_gather(2), op, {0: two, 2: two})
    with pytest.raises(InputError, match=r"^all_reduce: buffers must be on the CPU, as emulated NPUs are, got 'meta'$"):
        execute(all_then_gather(2), op, {0: two, 1: Buffers(torch.zeros(4, device="meta"), torch.zeros(4))})


def test_a_buffer_with_gaps_is_refused() -> None:
    gaps = torch.zeros(8)[::2]
    with pytest.raises(InputError, match="4 that are not contiguous"):
        execute(all_then_gather(2), operation("all_reduce", 2), {r: Buffers(gaps, gaps) for r in range(2)})
