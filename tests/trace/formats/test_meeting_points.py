"""Operations of a schedule in simpler forms, held against walking through them one after another."""

import random

import pytest

from emu.trace.formats.goal.goal_ops import GoalOps, Op
from emu.trace.formats.goal.goal_text import parse_text
from emu.trace.formats.goal.meeting_points import leave_in_turn, post_receives, wait_for_ends


def operations(seed: int, *, starts: bool) -> GoalOps:
    """Two ranks of computations on two cpus and of messages to one another, each waiting for some earlier ones of its rank."""
    random_, text = random.Random(seed), ["num_ranks 2"]
    for rank in (0, 1):
        text.append(f"rank {rank} {{")
        for op in range(random_.randrange(2, 12)):
            kinds = (
                f"calc {random_.randrange(3)} cpu {random_.randrange(2)}",
                *(f"{word} 8b {way} {1 - rank} tag {random_.randrange(2)}" for word, way in (("send", "to"), ("recv", "from"))),
            )
            text.append(f"l{op}: {random_.choice(kinds)}")
            earlier = random_.sample(range(op), random_.randrange(min(3, op) + 1))
            how = ["irequires" if starts and random_.random() < 0.5 else "requires" for _ in earlier]
            text += [f"l{op} {word} l{before}" for word, before in zip(how, earlier, strict=True)]
        text.append("}")
    return parse_text("\n".join(text), "a.goal")


def walked(ops: GoalOps) -> list[tuple[int, int]]:
    """When each operation begins and ends, if messages take a time of their own each; computations of a cpu are in line."""
    waits: list[list[tuple[int, bool]]] = [[] for _ in ops.kind]
    for later, before, at_start in zip(ops.waiting.tolist(), ops.waited.tolist(), ops.at_start.tolist(), strict=True):
        waits[later].append((before, at_start))
    found: list[tuple[int, int]] = []
    last: dict[tuple[int, int], int] = {}
    for op, (kind, size, cpu, rank) in enumerate(
        zip(*(c.tolist() for c in (ops.kind, ops.size, ops.cpu, ops.rank)), strict=True)
    ):
        computes = kind == Op.CALC and size > 0
        begins = max((found[before][0 if at_start else 1] for before, at_start in waits[op]), default=0)
        if computes:
            begins = max(begins, last.get((rank, cpu), 0))
        found.append((begins, begins + (size if kind == Op.CALC else 5 + op % 3)))
        if computes:
            last[rank, cpu] = found[-1][1]
    return found


@pytest.mark.parametrize("seed", range(60))
def test_who_waits_for_a_start_waits_for_the_ends_before_it(seed: int) -> None:
    ops = operations(seed, starts=True)
    found = wait_for_ends(ops)
    assert not found.at_start.any()
    assert walked(found) == walked(ops)
    plain = operations(seed, starts=False)
    assert wait_for_ends(plain) is plain


@pytest.mark.parametrize("seed", range(40))
def test_sends_to_one_peer_and_tag_leave_in_turn(seed: int) -> None:
    ops = operations(seed, starts=False)
    before = {*zip(ops.waiting.tolist(), ops.waited.tolist(), strict=True)}
    last: dict[tuple[int, ...], int] = {}
    for op, key in enumerate(zip(*(c.tolist() for c in (ops.rank, ops.peer, ops.tag, ops.kind)), strict=True)):
        if key[-1] == Op.SEND:
            if key in last:
                before.add((op, last[key]))
            last[key] = op
    found = leave_in_turn(ops)
    assert [*zip(found.waiting.tolist(), found.waited.tolist(), strict=True)] == sorted(before)
    assert not found.at_start.any()


@pytest.mark.parametrize("seed", range(40))
def test_receives_that_are_posted_early_pass_on_what_they_waited_for(seed: int) -> None:
    """Whoever waits for one of them waits for the last of each queue that it waited for, by itself or by another."""
    ops = operations(seed, starts=False)
    random_ = random.Random(seed)
    which = (ops.kind == Op.RECV) & [random_.random() < 0.7 for _ in ops.kind]
    waits: dict[int, set[int]] = {}
    for later, before in zip(ops.waiting.tolist(), ops.waited.tolist(), strict=True):
        waits.setdefault(later, set()).add(before)
    columns = [c.tolist() for c in (ops.rank, ops.kind, ops.peer, ops.tag, ops.cpu)]

    def queue(op: int) -> tuple[int, ...]:
        rank, kind, peer, tag, cpu = (c[op] for c in columns)
        return (rank, kind, cpu, 0) if kind == Op.CALC else (rank, kind, peer, tag)

    def every(op: int) -> set[int]:
        own = waits.get(op, set())
        more = own.union(*(every(before) for before in own if which[before]))
        return {max(each for each in more if queue(each) == queue(one)) for one in more}

    found = post_receives(ops, which)
    if not any(which[op] for op in waits):
        assert found is ops
        return
    pairs = {*zip(found.waiting.tolist(), found.waited.tolist(), strict=True)}
    assert pairs == {(op, before) for op in waits if not which[op] for before in every(op)}
