"""Memory that nobody has written: what it holds before a check, and schedules that read it or add to it."""

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from emu.backend.executor import executor as execute_module
from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.reductions import FOLDS, check_reduces, unwritten_mark
from emu.backend.executor.schedule_cells import INBOXES, SCRATCH, STAGE
from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.collective.proof import ProofError, ScheduleFault
from emu.collective.schedule import Schedule, Sends
from emu.dtypes import DTYPES, REDUCE_OPERATIONS
from emu.errors import InputError
from tests.backend.executor.test_execute_catalogue import apart, buffers, over_a_wire, side_by_side

N = 4
RANK = np.arange(N)


def gathered(reduce: bool, *, first_slot: int = 0) -> Schedule:
    """A ring whose receivers add to what they have nothing of, or whose senders send what they have nothing of."""
    return Schedule.build(N, N, [Sends(RANK, (RANK + 1) % N, (RANK - t + first_slot) % N, reduce) for t in range(N - 1)])


def moved(schedule: Schedule, lay=apart, run: Callable[..., None] = execute) -> list[list[float]]:
    op, counts = operation("all_gather", N), np.full(N, 2)
    made = buffers(op, [torch.full((2,), float(r)) for r in range(N)], counts, lay)
    run(schedule, op, made, counts=counts)
    return [pair.output.tolist() for pair in made.values()]


def translated(schedule: Schedule) -> Schedule:
    rounds = [Sends(0, schedule.dst[r][:1], schedule.slot[r][:1], schedule.reduce[r][:1]) for r in schedule.rounds()]
    return Schedule.build(N, N, rounds, translate=(N,))


@pytest.mark.parametrize("lay", [apart, side_by_side])
@pytest.mark.parametrize("stored", [lambda s: s, translated])
def test_a_schedule_that_adds_to_what_nobody_wrote_is_refused_before_anything_moves(lay, stored):
    assert moved(stored(gathered(reduce=False)), lay) == [[0, 0, 1, 1, 2, 2, 3, 3]] * N
    said = r"all_gather: round 0: rank 1, slot 0 holds nothing, and what rank 0 sends is added to it; let the first write"
    with pytest.raises(ProofError, match=said) as error:
        moved(stored(gathered(reduce=True)), lay)
    assert error.value.fault == ScheduleFault(0, 1, 0)


def test_all_who_add_at_once_to_what_nobody_wrote_are_named():
    both = Schedule.build(N, N, [Sends(3, [0, 1], 3), Sends([0, 1], 2, 3, reduce=True)])
    said = "round 1: rank 2, slot 3 holds nothing, and what ranks 0-1 send is added to it; let the .* of an earlier round"
    with pytest.raises(ProofError, match=said):
        moved(both)


@pytest.mark.parametrize("stored", [lambda s: s, translated])
def test_a_schedule_that_sends_what_nobody_wrote_is_refused_before_anything_moves(stored):
    said = "all_gather: round 0: rank 0, slot 1 holds nothing, it must hold what is sent to rank 1"
    with pytest.raises(ProofError, match=said) as error:
        moved(stored(gathered(reduce=False, first_slot=1)))
    assert error.value.fault == ScheduleFault(0, 0, 1)


def test_ranks_elsewhere_are_refused_by_those_that_see_it():
    """Rank 1 adds, and rank 0 need not know: it has what it sends."""
    op, counts = operation("all_gather", N), np.full(N, 2)
    wrong = Schedule.build(N, N, [Sends(0, 1, 0, reduce=True)])
    for rank, sees in ((1, True), (2, False)):
        mine = {rank: Buffers(torch.ones(2), torch.ones(8))}
        if sees:
            with pytest.raises(ProofError, match="round 0: rank 1, slot 0 holds nothing"):
                execute(wrong, op, mine, counts=counts, wire=object())
        else:
            execute(wrong, op, mine, counts=counts, wire=object())


def test_a_helper_begins_at_zero():
    op = operation("all_reduce", N)
    switch = Schedule.build(N, 1, [Sends(RANK, N, 0, reduce=True), Sends(N, RANK, 0)], helpers=1)
    made = buffers(op, [torch.full((3,), float(r)) for r in range(N)], np.array([3]), apart)
    execute(switch, op, made)
    assert all(pair.output.tolist() == [6, 6, 6] for pair in made.values())


class Memories:
    """The contents of the executor's own memories when a program begins to run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held: list[Tensor] = []
        run = execute_module.run_program

        def watched(program, memories, *rest):
            self.held += [memories[m].clone() for m in (SCRATCH, STAGE, *INBOXES) if memories[m].numel()]
            run(program, memories, *rest)

        monkeypatch.setattr(execute_module, "run_program", watched)

    def all_hold(self, value: complex) -> bool:
        wanted = [torch.full_like(t, value) for t in self.held]
        return len(wanted) > 0 and all(
            torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(self.held, wanted, strict=True)
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_of_its_own_holds_what_is_seen_in_a_result(dtype: str, monkeypatch: pytest.MonkeyPatch):
    """The memories are scratch and inboxes of relays, on ranks that lie apart and over a wire."""
    of = getattr(torch, dtype)
    schedule, op, counts = algorithm("all_to_all", "bruck").schedule(N), operation("all_to_all", N), np.full(N * N, 3)
    for run in (execute, over_a_wire):
        memories = Memories(monkeypatch)
        made = buffers(op, [torch.ones(3 * N).to(of) for _ in range(N)], counts, apart)
        run(schedule, op, made, counts=counts)
        assert memories.all_hold(unwritten_mark(of, "sum"))


def test_memory_that_buffers_are_stacked_in_is_marked_too(monkeypatch: pytest.MonkeyPatch):
    """An output that a schedule leaves out is not what lay there before."""
    n = 16
    left_out = Schedule.build(n, n, [Sends(r := np.arange(n), (r + 1) % n, (r - t) % n) for t in range(n - 2)])
    op, counts = operation("all_gather", n), np.full(n, 4)
    made = buffers(op, [torch.full((4,), float(r)) for r in range(n)], counts, apart)
    stacked = []
    monkeypatch.setattr(execute_module, "_execute_stacked", lambda *a, f=execute_module._execute_stacked: stacked.append(f(*a)))
    execute(left_out, op, made, counts=counts)
    assert stacked
    assert all(pair.output.isnan().sum() == 4 for pair in made.values())


def test_a_program_whose_result_nobody_checks_saves_the_time(monkeypatch: pytest.MonkeyPatch):
    filled = []
    monkeypatch.setattr(Tensor, "fill_", lambda _, value: filled.append(value))
    op = operation("all_to_all", N)
    made = buffers(op, [torch.ones(N) for _ in range(N)], np.full(N * N, 1), apart)
    execute(algorithm("all_to_all", "bruck").schedule(N), op, made, counts=np.full(N * N, 1), fill_scratch=False)
    assert not filled


@pytest.mark.parametrize("dtype", DTYPES)
def test_whatever_takes_in_what_nobody_wrote_is_another_value(dtype: str):
    """The mark is copied, or folded once, twice or three times into small numbers; two of them cancel out in an xor."""
    of = getattr(torch, dtype)
    values = torch.tensor([0, 1]).to(of) if of is torch.bool else torch.tensor([1, 2, 3]).to(of)
    for reduce in REDUCE_OPERATIONS:
        try:
            check_reduces("test", of, reduce)
        except InputError:
            continue
        mark = torch.full_like(values, unwritten_mark(of, reduce))
        assert (mark != values).any()
        folded = values
        for times in (1, 2, 3):
            folded = FOLDS[reduce](folded, mark)
            assert (folded != values).any() or (reduce, times) == ("xor", 2), reduce


def test_what_is_refused_names_no_more_than_a_line():
    with pytest.raises(ProofError) as error:
        moved(gathered(reduce=True))
    assert re.fullmatch(r"[^\n]+", str(error.value))
