"""Messages under way while others are computed: nothing reads or writes memory that they still need."""

import queue
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from emu.backend.executor.buffer_addresses import buffer_addresses
from emu.backend.executor.compiled_program import compile_schedule
from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.schedule_cells import INBOXES
from emu.collective.algorithm import algorithm
from emu.collective.operation import Operation, operation
from emu.collective.schedule import Schedule
from tests.backend.executor.test_executor import nothing, random_schedules, translated_schedules

_FILL = -77.0  # what lies where a message is still to come


class StrictWire:
    """Sees to it that what is sent stays as it was, and what is received is left alone, until the wait is over."""

    def __init__(self) -> None:
        self.lanes: dict[tuple[int, int, int], queue.Queue[Tensor]] = {}
        self.touched: list[str] = []

    def lane(self, *key: int) -> "queue.Queue[Tensor]":
        return self.lanes.setdefault(key, queue.Queue())  # atomic, unlike a defaultdict's

    def send(self, src: int, dst: int, channel: int, data: Tensor) -> "Sent":
        self.lane(src, dst, channel).put(data.clone())
        return Sent(self, data, data.clone())

    def receive(self, src: int, dst: int, channel: int, data: Tensor) -> "Received":
        data.fill_(_FILL)
        return Received(self, data, self.lane(src, dst, channel))


class Sent:
    def __init__(self, wire: StrictWire, data: Tensor, before: Tensor) -> None:
        self.wire, self.data, self.before = wire, data, before

    def wait(self) -> None:
        if not torch.equal(self.data, self.before):
            self.wire.touched.append("what is being sent")


class Received:
    def __init__(self, wire: StrictWire, data: Tensor, lane: "queue.Queue[Tensor]") -> None:
        self.wire, self.data, self.lane = wire, data, lane

    def wait(self) -> None:
        if not (self.data == _FILL).all():
            self.wire.touched.append("where something is to come")
        self.data.copy_(self.lane.get(timeout=20))


def split(schedule: Schedule, op: Operation, made: dict[int, Buffers], counts: np.ndarray, homes: list[list[int]]) -> None:
    """Run each home in a thread of its own."""
    wire = StrictWire()
    given = {"counts": counts, "wire": wire}
    threads = [
        threading.Thread(target=execute, args=(schedule, op, {r: made[r] for r in home}), kwargs=given) for home in homes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wire.touched
    assert all(lane.empty() for lane in wire.lanes.values())


@given(random_schedules() | translated_schedules(), st.integers(2, 5))
@settings(max_examples=150)
def test_any_schedule_split_over_processes_ends_as_in_one(case: tuple[Schedule, Operation, list[int]], n_homes: int) -> None:
    schedule, op, sizes = case
    counts = np.array(sizes, np.int64)
    widths = [[int(counts[of(r)].sum()) for r in range(op.n_ranks)] for of in (op.input_blocks, op.output_blocks)]
    inputs = [torch.randn(width) for width in widths[0]]
    together, apart = ({r: Buffers(inputs[r].clone(), nothing(widths[1][r])) for r in range(op.n_ranks)} for _ in range(2))
    execute(schedule, op, together, counts=counts)
    homes = [list(apart)[first::n_homes] for first in range(min(n_homes, op.n_ranks))]
    split(schedule, op, apart, counts, homes)
    assert all(torch.equal(apart[r].output, together[r].output) for r in apart)
    assert all(torch.equal(apart[r].input, inputs[r]) for r in apart)


@pytest.mark.parametrize("name", ["ring", "bidirectional-ring", "halving-doubling", "recursive-doubling", "direct"])
@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_in_place_an_all_reduce_over_processes_gets_the_bits_of_one(name: str, n: int) -> None:
    found, op, counts = algorithm("all_reduce", name), operation("all_reduce", n), np.array([4 * n + 3])
    if not list(found.shapes(n)):
        return
    schedule, inputs = found.compact_schedule(n), torch.randn(n, int(counts[0]))
    together, apart = ({r: Buffers(mine, mine) for r, mine in enumerate(inputs.clone())} for _ in range(2))
    execute(schedule, op, together, counts=counts)
    split(schedule, op, apart, counts, [[r] for r in range(n)])
    assert all(torch.equal(apart[r].output, together[r].output) for r in range(n))


def landings(n: int) -> list[int]:
    """The memory that the message of each round of a ring all_reduce comes into, on rank 0."""
    schedule, op, mine = algorithm("all_reduce", "ring").compact_schedule(n), operation("all_reduce", n), torch.zeros(8 * n)
    where, _ = buffer_addresses(n, {0: mine}, {0: mine})
    program = compile_schedule(schedule, op, np.array([8 * n]), where, np.array([0]))
    return [transfer.pieces[0][0] for each in program.rounds for transfer in each.receives]


@pytest.mark.parametrize("n", [4, 8])
def test_what_is_added_comes_into_two_inboxes_in_turn_and_what_is_copied_into_the_output(n: int) -> None:
    into = landings(n)
    assert into[: n - 1] == [INBOXES[t % 2] for t in range(n - 1)]
    assert set(into[n - 1 :]).isdisjoint(INBOXES)


def test_a_message_does_not_land_on_what_is_being_sent() -> None:
    assert set(landings(2)) == set(INBOXES)
