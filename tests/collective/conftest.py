"""Random schedules that are right by construction, and a plain definition of what running one means."""

from collections import Counter, defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from emu.collective.operation import Operation, operation
from emu.collective.schedule import Schedule, Sends

Row = tuple[int, int, int, bool, int, int]  # src, dst, slot, reduce, channel, dst_slot
NOISE = "noise"


def rounds_of(schedule: Schedule) -> list[list[Row]]:
    columns = (schedule.src, schedule.dst, schedule.slot, schedule.reduce, schedule.channel, schedule.written_slot)
    rows = list(zip(*(c.tolist() for c in columns), strict=True))
    return [rows[r] for r in schedule.rounds()]


def run_plainly(schedule: Schedule, wanted: Operation) -> bool:
    """Return whether every wanted (rank, slot) ends with each holder's value exactly once, by dictionaries of multisets."""
    parts = schedule.n_slots // wanted.n_blocks
    slots_of = [(r, b * parts + p) for r, b in wanted.have.tolist() for p in range(parts)]
    state = {(r, k): Counter({(r, k): 1}) for r, k in slots_of}
    whole = defaultdict(Counter)
    for r, k in slots_of:
        whole[k][r, k] = 1
    for rows in rounds_of(schedule.expand()):
        read = [state.get((src, slot), Counter({NOISE: 1})) for src, _, slot, *_ in rows]
        for (_, dst, _, adds, _, slot), value in zip(rows, read, strict=True):
            if not adds:
                state[dst, slot] = value
        for (_, dst, _, adds, _, slot), value in zip(rows, read, strict=True):
            if adds:
                nothing = Counter({NOISE: 1} if dst < schedule.n_ranks else {})  # a helper begins at zero
                state[dst, slot] = state.get((dst, slot), nothing) + value
    return all(state.get((r, b * parts + p)) == whole[b * parts + p] for r, b in wanted.want.tolist() for p in range(parts))


class Weaver:
    """Weaves rounds of a random schedule: each slot's values merge along a random tree, then spread along another."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        names = ["all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "scatter", "gather"]
        self.n = int(self.random.integers(2, 7))
        name = str(self.random.choice(names))
        root = int(self.random.integers(self.n)) if name in ("broadcast", "reduce", "scatter", "gather") else 0
        self.operation = operation(name, self.n, root)
        self.parts = int(self.random.integers(1, 4))
        self.helpers = int(self.random.integers(0, 3))
        self.n_slots = self.operation.n_blocks * self.parts
        self.temps: list[int] = []
        self.rounds: dict[int, list[Row]] = defaultdict(list)

    def weave(self) -> tuple[Schedule, Operation]:
        have, want = (
            [{r for r, b in pairs.tolist() if b == block} for block in range(self.operation.n_blocks)]
            for pairs in (self.operation.have, self.operation.want)
        )
        for slot in range(self.n_slots):
            block = slot // self.parts
            self.spread(slot, *self.merge(slot, sorted(have[block])), want[block])
        rounds = [[Sends(*row) for row in rows] for _, rows in sorted(self.rounds.items())]
        shares = tuple(self.random.integers(1, 5, self.parts).tolist()) if self.random.random() < 0.5 else ()
        return Schedule.build(
            self.n, self.n_slots, rounds, shares=shares, helpers=self.helpers, temps=self.temps
        ), self.operation

    def merge(self, slot: int, holders: list[int]) -> tuple[int, int]:
        """Round after round some holders send their sum to one that does not send, or to a helper that is still empty."""
        now, fresh = int(self.random.integers(3)), list(range(self.n, self.n + self.helpers))
        while len(holders) > 1:
            self.random.shuffle(holders)
            n_senders = int(self.random.integers(1, len(holders)))
            senders, others = holders[:n_senders], holders[n_senders:]
            if fresh and self.random.random() < 0.3:
                others.append(fresh.pop())
            targets = [int(self.random.choice(others)) for _ in senders]
            holders = sorted({*holders[n_senders:], *targets})
            for sender, target in zip(senders, targets, strict=True):
                self.add(now, sender, target, slot)
            now += int(self.random.integers(2, 4))
        return holders[0], now

    def add(self, now: int, src: int, dst: int, slot: int) -> None:
        channel = int(self.random.integers(3))
        if self.random.random() < 0.15:
            spare = self.n_slots + len(self.temps)
            self.temps.append(slot)
            self.rounds[now].append((src, dst, slot, False, channel, spare))
            self.rounds[now + 1].append((dst, dst, spare, True, channel, slot))
        else:
            self.rounds[now].append((src, dst, slot, True, channel, slot))

    def spread(self, slot: int, source: int, now: int, wanting: set[int]) -> None:
        """Round after round ranks that have the whole send it on, to helpers too."""
        has, missing = [source], sorted({*wanting, *range(self.n, self.n + self.helpers)} - {source})
        self.random.shuffle(missing)
        while missing:
            taken = [missing.pop() for _ in range(min(len(missing), int(self.random.integers(1, 4))))]
            for dst in taken:
                self.rounds[now].append((int(self.random.choice(has)), dst, slot, False, int(self.random.integers(3)), slot))
            has += taken
            now += int(self.random.integers(1, 3))


@pytest.fixture
def weave() -> Callable[[int], tuple[Schedule, Operation]]:
    return lambda seed: Weaver(seed).weave()


@pytest.fixture
def runs_right() -> Callable[[Schedule, Operation], bool]:
    return run_plainly


@pytest.fixture
def rows_by_round() -> Callable[[Schedule], list[list[Row]]]:
    return rounds_of
