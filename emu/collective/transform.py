"""Transformations of schedules: the dual, another root, a sequence of two, more channels, or only some participants.

Each function permutes or copies columns; none needs to know the operation, unless it takes one. If translations are declared,
only the rows of rank 0 are changed. `slot_representatives` returns a part of a schedule whose proof is a proof of the whole.

Letters: N ranks; S stored rows, of N times as many. A schedule with translations is defined as what they make of the rows of
rank 0. Where they also map the operation onto itself, a result for one slot holds for every translation of that slot. Each slot
is a translation of a slot whose first rank digit is 0, and slots do not depend on one another. So it is enough to prove the
slots whose first digit is 0, which takes S rows of all ranks.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I32, I64, Bool, ascending
from emu.collective.operation import Operation
from emu.collective.proof import check_shapes
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule, Sends, Translations, typed_rows
from emu.errors import InputError, must_be

_SENT = ("src", "dst", "slot", "reduce", "channel")  # columns that every schedule has of its rows


def _with_rounds(schedule: Schedule, rounds: Iterable[Sends]) -> Schedule:
    """Return a schedule with these rounds, and with the ranks, helpers, slots, shares and translations of another schedule."""
    return Schedule.build(
        schedule.n_ranks,
        schedule.n_slots,
        rounds,
        shares=schedule.shares,
        helpers=schedule.helpers,
        temps=schedule.temps,
        translate=schedule.translate,
        slot_digits=schedule.slot_digits,
    )


def dual(schedule: Schedule, *, reduce: bool = True, wanted: Operation | None = None) -> Schedule:
    """Return the schedule with time reversed, every send in the other direction, and every overwrite made an add.

    The dual of an all_gather is a reduce_scatter and that of a broadcast is a reduce, provided that no (rank, slot) is written
    twice or already holds a value (the proof of the result checks that).

    Args:
        schedule: A schedule that only copies.
        reduce: False if each slot has one holder, so that nothing is added: a gather from a scatter.
        wanted: The operation of the dual, if ranks that have nothing of a slot are sent that slot: see `copy_first_values`.

    Raises:
        InputError: The schedule adds, so that it has no dual.
    """
    if schedule.reduce.any():
        raise InputError("schedule: one that adds has no dual; take the dual of the half that copies")
    turned = (_reverse_rows(schedule, rows, reduce) for rows in reversed(schedule.rounds()))
    found = _with_rounds(schedule, turned)
    return found if wanted is None else copy_first_values(found, wanted)


def copy_first_values(schedule: Schedule, wanted: Operation) -> Schedule:
    """Return the schedule changed so that no rank adds to an empty slot: the first value is copied there.

    The first value that is sent to such a slot is copied into it. Each further value is written to a spare slot of its own, and
    the rank adds it from there. So no message waits for more than it waited for before.

    Args:
        schedule: A schedule in which ranks without a value of a slot add to it.
        wanted: Its operation, which says what every rank has.
    """
    full = schedule.expand()
    names = full.n_slots + len(full.temps)
    cell = full.dst.astype(np.int64) * names + full.written_slot
    add_number = _adds_on_nothing(full, wanted, cell)
    if not (add_number >= 0).any():
        return schedule
    slot = np.concatenate((np.arange(full.n_slots), np.array(full.temps, np.int64)))[full.written_slot]
    spares = np.zeros(full.n_slots, np.int64)  # of each slot
    np.maximum.at(spares, slot, add_number)
    spare = np.where(add_number > 0, names + (np.cumsum(spares) - spares)[slot] + add_number - 1, full.written_slot)
    temps = (*full.temps, *np.repeat(np.arange(full.n_slots), spares).tolist())
    rounds = (each for rows in full.rounds() for each in _landings(full, rows, add_number, spare))
    return Schedule.build(full.n_ranks, full.n_slots, rounds, shares=full.shares, helpers=full.helpers, temps=temps)


def _adds_on_nothing(schedule: Schedule, wanted: Operation, cell: I64) -> I64:
    """Return [S] the number of each row among the adds to its (rank, slot), if the first of these adds to an empty slot.

    Else -1.

    Args:
        schedule: The schedule, with every row stored.
        wanted: Its operation.
        cell: [S] a number of the (rank, slot) that each row writes.
    """
    order = np.argsort(cell, kind="stable")  # of one round by rank, as rows are
    starts = np.flatnonzero(np.diff(cell[order], prepend=-1))
    first, size = order[starts], np.diff(starts, append=len(order))
    parts = schedule.n_slots // wanted.n_blocks
    held = np.zeros((schedule.n_participants, wanted.n_blocks + 1), np.bool_)
    held[wanted.have[:, 0], wanted.have[:, 1]] = True
    held[schedule.n_ranks :] = True  # a helper begins at zero
    block = np.where(schedule.written_slot < schedule.n_slots, schedule.written_slot // parts, wanted.n_blocks)
    begins = schedule.reduce[first] & ~held[schedule.dst[first], block[first]]
    add_number = np.full(schedule.n_rows, -1)
    add_number[order] = np.where(np.repeat(begins, size), np.arange(len(order)) - np.repeat(starts, size), -1)
    return add_number


def _landings(schedule: Schedule, rows: slice, add_number: I64, target: I64) -> Iterator[Sends]:
    """Yield a round that writes all received values, then rounds that add values from spare slots.

    Args:
        schedule: The schedule.
        rows: The rows of the round.
        add_number: [S] the result of `_adds_on_nothing`.
        target: [S] the slot that each row now writes.
    """
    reduce = schedule.reduce[rows] & (add_number[rows] < 0)
    yield Sends(schedule.src[rows], schedule.dst[rows], schedule.slot[rows], reduce, schedule.channel[rows], target[rows])
    late = np.arange(rows.start, rows.stop)[add_number[rows] > 0]
    for each in np.unique(add_number[late]):
        row = late[add_number[late] == each]
        yield Sends(schedule.dst[row], schedule.dst[row], target[row], True, 0, schedule.written_slot[row])


def _reverse_rows(schedule: Schedule, rows: slice, reduce: bool) -> Sends:
    """Return the sends of some rows, each in the other direction.

    If only the rows of rank 0 are stored, each reversed send is translated so that rank 0 sends it.
    """
    src, dst, slot, channel = (c[rows] for c in (schedule.src, schedule.dst, schedule.slot, schedule.channel))
    if schedule.by_rank:
        translations = schedule.translations
        back = translations.opposite(dst)
        return Sends(0, back, translations.slot(slot, back), reduce, channel)
    return Sends(dst, src, schedule.written_slot[rows], reduce, channel, slot)


def concatenate(first: Schedule, second: Schedule) -> Schedule:
    """Return the schedule with the rounds of `first` followed by those of `second`, on the same ranks and slots.

    Raises:
        InputError: Their ranks, slots, helpers, shares or spare slots differ.
    """
    same_translations = (first.translate, first.slot_digits) == (second.translate, second.slot_digits)
    a, b = (first, second) if same_translations else (first.expand(), second.expand())
    shape = [(s.n_ranks, s.n_slots, s.helpers, s.shares, s.temps) for s in (a, b)]
    if shape[0] != shape[1]:
        raise InputError(f"schedule: (ranks, slots, helpers, shares, spares) {shape[0]} cannot be followed by {shape[1]}")
    renames = a.dst_slot is not None or b.dst_slot is not None
    ends = np.concatenate((a.round_end, b.round_end + a.n_rows))
    rows = [np.concatenate((getattr(a, name), getattr(b, name))) for name in _SENT]
    written = np.concatenate((a.written_slot, b.written_slot)) if renames else None
    joined = replace(a, **typed_rows(ends, *rows, written))
    joined.check()
    return joined


def on_channels(schedule: Schedule, k: int) -> Schedule:
    """Return the schedule with every slot in k equal parts, each on a channel of its own: part i of channel c is on c k + i.

    NCCL calls these channels, too. They fill parallel links between two nodes, if routes differ by channel. Rounds and proof
    stay the same.

    Raises:
        InputError: The result would have more channels, slots or rows than a schedule may have.
    """
    if schedule.n_rows * k > MAX_ROWS or (schedule.n_slots + len(schedule.temps)) * k > 2**31:
        raise InputError(f"schedule: {schedule.n_rows} rows on {k} times as many channels are more than 2**24; take fewer")
    if (int(schedule.channel.max(initial=0)) + 1) * k > 2**15:
        raise must_be("schedule", "channels", "at most 2**15", (int(schedule.channel.max()) + 1) * k, "take fewer")
    table, place = np.empty((6, schedule.n_rows * k), np.int32), _old_rows(schedule, k)
    columns = (schedule.src, schedule.dst, schedule.reduce, schedule.slot, schedule.channel, schedule.written_slot)
    for row, values in enumerate(columns):
        table[row, place] = np.repeat(values.astype(np.int32), k) * (k if row > 2 else 1)
    table[3:, place] += np.tile(np.arange(k, dtype=np.int32), schedule.n_rows)
    src, dst, reduce, slot, channel, written = table
    renamed = None if schedule.dst_slot is None else written
    rows = typed_rows(schedule.round_end * k, src, dst, slot, reduce, channel, renamed)
    shares, temps = np.repeat(schedule.shares, k).tolist(), (t * k + i for t in schedule.temps for i in range(k))
    found = replace(schedule, n_slots=schedule.n_slots * k, shares=tuple(shares), temps=tuple(temps), **rows)
    found.check()
    return found


def _old_rows(schedule: Schedule, k: int) -> I64:
    """Return [S k] the old row of each new row if each message is divided into k parts."""
    columns = (schedule.round_column(), schedule.src, schedule.dst, schedule.channel)
    begins = np.any([np.diff(c, prepend=-1) != 0 for c in columns], axis=0)
    first = np.flatnonzero(begins)
    message = np.cumsum(begins) - 1
    size = np.diff(np.append(first, schedule.n_rows))
    at = first[message] * (k - 1) + np.arange(schedule.n_rows)
    return np.asarray((at[:, None] + size[message, None] * np.arange(k)).ravel())


def rotate(schedule: Schedule, root: int, *, slots_are_ranks: bool) -> Schedule:
    """Return the schedule for another root: rank r becomes (r + root) mod N, and so do slots numbered by rank.

    Raises:
        InputError: The slots are numbered by rank and are also renamed by rows.
    """
    n = schedule.n_ranks
    if root == 0 or (schedule.translate == (n,) and schedule.slot_digits == slots_are_ranks):
        return schedule  # the rotation is one of its translations
    full = schedule.expand()
    if slots_are_ranks and full.dst_slot is not None:
        raise InputError("schedule: one that renames slots named by rank has no other root; write it for that root")
    parts = full.n_slots // n if slots_are_ranks else 1

    def move(ranks: I64) -> I64:
        return np.where(ranks < n, (ranks + root) % n, ranks)

    def moved(rows: slice) -> Sends:
        slot, renamed = (c[rows].astype(np.int64) for c in (full.slot, full.written_slot))
        if slots_are_ranks:
            slot = renamed = move(slot // parts) * parts + slot % parts
        src, dst = (move(c[rows].astype(np.int64)) for c in (full.src, full.dst))
        return Sends(src, dst, slot, full.reduce[rows], full.channel[rows], renamed)

    return _with_rounds(full, (moved(rows) for rows in full.rounds()))


def rows_of_participants(schedule: Schedule, here: Bool) -> Schedule:
    """Return the schedule of the rows that given participants send or receive, each in its round.

    Args:
        schedule: A schedule of P participants, with every row stored or with translations.
        here: [P] whether each participant is one of them.
    """
    if here.all():
        return schedule.expand()
    if schedule.by_rank:
        return _moved_to(schedule, here)
    row = np.flatnonzero(here[schedule.src] | here[schedule.dst])
    return _pick_rows(schedule, row, schedule.src[row], schedule.dst[row], schedule.slot[row])


def _moved_to(schedule: Schedule, here: Bool) -> Schedule:
    """Return the rows that given participants send or receive, from the rows of rank 0 under all translations."""
    translations, ranks = schedule.translations, np.flatnonzero(here)
    sender = translations.rank(ranks, translations.opposite(schedule.dst)[:, None])  # the sender to each receiver here
    every = np.concatenate((np.broadcast_to(ranks, sender.shape), np.where(here[sender], -1, sender)), axis=1)
    row, at = np.nonzero(every >= 0)
    src = every[row, at]
    dst, slot = translations.rank(schedule.dst[row], src), translations.slot(schedule.slot[row], src)
    order = np.lexsort((slot, schedule.channel[row], dst, src, schedule.round_column()[row]))
    return _pick_rows(schedule, row[order], src[order], dst[order], slot[order])


def _pick_rows(schedule: Schedule, row: I64, src: ArrayLike, dst: ArrayLike, slot: ArrayLike) -> Schedule:
    """Return the schedule of stored rows in a given order, with other senders, receivers and slots."""
    ends = np.cumsum(np.bincount(schedule.round_column()[row], minlength=schedule.n_rounds))
    renamed = None if schedule.dst_slot is None else schedule.dst_slot[row]
    rows = typed_rows(ends, src, dst, slot, schedule.reduce[row], schedule.channel[row], renamed)
    return replace(schedule, translate=(), **rows)


def on_grid(schedule: Schedule, dims: tuple[int, ...]) -> Schedule:
    """Return the schedule with the translations of a grid, if all ranks but 0 are treated equally; else unchanged.

    If every permutation that leaves rank 0 in place maps the rows of rank 0 onto themselves, then every permutation of ranks
    maps all rows onto themselves: each is a declared translation followed by one such permutation.
    """
    n = schedule.n_ranks
    if schedule.translate in {(), dims} or prod(dims) != n or not _treats_alike(schedule):
        return schedule
    return replace(schedule, translate=dims)


def _treats_alike(schedule: Schedule) -> bool:
    """Return whether every permutation of the ranks other than 0 maps the rows of rank 0 onto themselves.

    One swap and one cycle are tried, which is enough, because they generate all these permutations.
    """
    sent = np.bincount(schedule.dst, minlength=schedule.n_ranks)[1:]
    if len(sent) and sent.min() != sent.max():
        return False  # seen at once of most
    ranks = np.arange(schedule.n_ranks)
    swap, cycle = ranks.copy(), ranks.copy()
    swap[1:3], cycle[1:] = ranks[1:3][::-1], np.roll(ranks[1:], 1)
    rows = _sorted_rows(schedule, ranks)
    return all(np.array_equal(_sorted_rows(schedule, moved), rows) for moved in (swap, cycle))


def _sorted_rows(schedule: Schedule, moved: I64) -> I64:
    """Return [5, S] the rows of rank 0 under a permutation of the other ranks, sorted.

    The columns are round, destination, channel, slot and reduce.

    Args:
        schedule: The schedule.
        moved: [N] the image of each rank.
    """
    n = schedule.n_ranks
    rest = schedule.n_slots // n**schedule.slot_digits
    slot = schedule.slot.astype(np.int64)
    named = slot % rest
    for place in (rest * n**i for i in range(schedule.slot_digits)):
        named += moved[slot // place % n] * place
    rows = np.stack((schedule.round_column(), moved[schedule.dst], schedule.channel, named, schedule.reduce))
    return np.asarray(rows[:, np.lexsort(rows)], np.int64)


def slot_representatives(schedule: Schedule, operation: Operation) -> tuple[Schedule, Operation]:
    """Return the part of a schedule whose proof proves the whole, and its operation.

    It has the slots whose first digit, a rank, is 0. Translations of the ranks map these slots onto all others.

    Raises:
        ProofError: The schedule has other ranks or blocks than the operation.
        RowsError: No translations are declared, or they do not map the operation onto itself, so that every row is needed.
    """
    check_shapes(schedule, operation)
    rows = f"{schedule.n_rows * schedule.n_ranks} rows"
    if not schedule.by_rank or schedule.slot_digits < 1:
        raise RowsError(f"schedule: {rows} and no translation that moves slots is declared")
    blocks = block_translations(schedule, operation)
    if blocks is None:
        raise RowsError(f"schedule: {rows}, and its translations do not map {operation.name} on itself")
    translations, n = schedule.translations, schedule.n_ranks
    first = (_translated_to_first(schedule, now, translations) for now in schedule.rounds())
    part = Schedule.build(n, schedule.n_slots // n, first)
    return part, _first_blocks(operation, operation.n_blocks // n if blocks.slot_digits else operation.n_blocks)


def block_translations(schedule: Schedule, operation: Operation) -> Translations | None:
    """Return the translations of blocks that follow from a schedule's declared translations.

    None is returned if they do not map the operation onto itself, or if they would divide a block.
    """
    n, count = schedule.n_ranks, operation.n_blocks
    digits = max(d for d in range(schedule.slot_digits + 1) if count % n**d == 0)
    if digits < schedule.slot_digits and count != n**digits:
        return None
    blocks = Translations(schedule.translate, count, digits)
    return blocks if all(_maps(blocks, pairs) for pairs in (operation.have, operation.want)) else None


def adds_once_per_round(schedule: Schedule) -> bool:
    """Return whether every round adds at most once to each (rank, slot).

    Several adds are folded in ascending rank, and a translation does not keep that order. Then equal bits at one rank do not
    prove equal bits at its translations.
    """
    for rows in schedule.rounds():
        adds = schedule.reduce[rows]
        cell = schedule.dst[rows][adds].astype(np.int64) * schedule.n_slots + schedule.slot[rows][adds]
        if len(ascending(cell)) < len(cell):
            return False
    return True


def _translated_to_first(schedule: Schedule, rows: slice, translations: Translations) -> Sends:
    """Return each row under the translation that makes the first digit of its slot 0."""
    slot = schedule.slot[rows]
    back = translations.opposite(slot // (schedule.n_slots // schedule.n_ranks))
    dst = translations.rank(schedule.dst[rows], back)
    return Sends(back, dst, translations.slot(slot, back), schedule.reduce[rows], schedule.channel[rows])


def _maps(blocks: Translations, pairs: I32) -> bool:
    """Return whether translations map a set of (rank, block) pairs onto itself.

    Each pair is translated to rank 0; there every block must occur N times or never.
    """
    if len(pairs) == blocks.n_ranks * blocks.n_slots:
        return True
    rank, block = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    times = np.bincount(blocks.slot(block, blocks.opposite(rank)))
    return bool(np.isin(times, (0, blocks.n_ranks)).all())


def _first_blocks(operation: Operation, count: int) -> Operation:
    """Return the operation without the blocks from `count` on."""
    have, want = (pairs[pairs[:, 1] < count] for pairs in (operation.have, operation.want))
    return Operation(operation.name, operation.n_ranks, count, have, want, operation.root)
