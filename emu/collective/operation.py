"""What a collective is for: which rank has which blocks, and which blocks each wants.

N ranks, B blocks. A block that one rank has is copied; one that several have is summed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I32, I64, column, digest
from emu.collective.routing import check_routing, standard_routing
from emu.errors import InputError, must_be
from emu.registry import unknown

_MOST_PAIRS = 2**29
_FEW = 1024  # ranks, of which the blocks of each are kept
Pairs = I32 | Callable[[], I32]  # [rows, 2] (rank, block), sorted; or what makes them, where they are many and seldom asked for


@dataclass(frozen=True, eq=False, slots=True)
class Operation:
    """Have and want; nothing else.

    Every wanted block must end as the sum of the values of those that had it, each exactly once. A rank's input is its
    have-blocks in ascending order, its output its want-blocks; the operation's size is the larger of the two, over ranks.
    """

    name: str
    n_ranks: int
    n_blocks: int
    having: Pairs  # who has which block
    wanting: Pairs
    root: int = 0  # of a rooted operation
    _known: dict[tuple[int, bool], I32] = field(default_factory=dict, init=False, repr=False)  # blocks of few ranks, by side
    _most: list[int] = field(default_factory=list, init=False, repr=False)  # blocks of the largest buffer, once it is asked for

    @property
    def have(self) -> I32:
        """[H, 2] (rank, block), sorted."""
        return self.having() if callable(self.having) else self.having

    @property
    def want(self) -> I32:
        """[W, 2] (rank, block), sorted."""
        return self.wanting() if callable(self.wanting) else self.wanting

    def input_blocks(self, rank: int) -> I32:
        """The blocks that `rank` has, ascending."""
        return self._blocks(rank, wants=False)

    def output_blocks(self, rank: int) -> I32:
        """The blocks that `rank` wants, ascending."""
        return self._blocks(rank, wants=True)

    def _blocks(self, rank: int, *, wants: bool) -> I32:
        """Ranks that run ask for theirs with every call."""
        known = self._known.get((rank, wants))
        if known is None:
            known = _blocks_of(self.want if wants else self.have, rank)
            if self.n_ranks <= _FEW:
                known = known.copy()  # not with all others, of which it is a part
                known.setflags(write=False)
                self._known[rank, wants] = known
        return known

    def block_counts(self, count: int) -> I64:
        """[B] elements of each block where the whole size is `count` elements, as even as can be.

        A whole that does not divide is cut at `count * b // blocks`, so that some blocks are one element larger; an
        all_to_all, whose size is a rank's own buffer, cuts every rank's in the same way. Tokens are all of one size.

        Raises:
            InputError: as `check_count`.
        """
        self.check_count(count)
        largest = self.blocks_in_size
        if self.name in ROUTED:
            return np.full(self.n_blocks, count // largest)
        if count % largest == 0:
            return np.broadcast_to(np.int64(count // largest), self.n_blocks)  # a view of one number
        edges = _shares(np.int64(count), np.arange(largest + 1, dtype=np.int64))
        return np.tile(np.diff(edges), self.n_blocks // largest)

    @property
    def blocks_in_size(self) -> int:
        """How many blocks the largest buffer of a rank holds (1 for a job of no ranks' blocks)."""
        if not self._most:
            self._most.append(self._blocks_of_largest())
        return self._most[0]

    def _blocks_of_largest(self) -> int:
        if callable(self.having):  # of so many blocks every rank has and wants as many
            return self.n_blocks // self.n_ranks
        per_rank = [np.bincount(rows[:, 0], minlength=1).max(initial=0) for rows in (self.have, self.want)]
        return max(1, *map(int, per_rank))

    @property
    def count_step(self) -> int:
        """What a whole size in elements must be a multiple of."""
        return self.blocks_in_size if self.name in ROUTED else 1

    def check_count(self, count: int) -> None:
        """Refuse a whole size of so many elements, where it does not divide and must.

        Raises:
            InputError: the message names what it must be a multiple of.
        """
        step = self.count_step
        if count % step:
            raise must_be(self.name, "elements", f"a multiple of {step}, the tokens of the largest buffer", count)

    @property
    def holders(self) -> int:
        """How many ranks have each block."""
        return len(self.have) // max(1, self.n_blocks)

    def digest(self) -> str:
        """Equal operations have equal digests."""
        return digest((self.name, self.n_ranks, self.n_blocks, self.have, self.want, self.root))


def _blocks_of(rows: I32, rank: int) -> I32:
    low, high = np.searchsorted(rows[:, 0], (rank, rank + 1))
    return rows[low:high, 1]


def _table(ranks: ArrayLike, blocks: ArrayLike) -> I32:
    """[rows, 2] rank and block, in the order given."""
    ranks, blocks = np.asarray(ranks), np.asarray(blocks)
    shape = np.broadcast_shapes(ranks.shape, blocks.shape)
    if prod(shape) > _MOST_PAIRS:
        raise must_be(
            "operation", "pairs of a rank and a block", "at most 2**29, 4 GiB of them", prod(shape), "take fewer ranks"
        )
    table = np.empty((*shape, 2), np.int32)
    table[..., 0], table[..., 1] = ranks, blocks
    table.setflags(write=False)
    return table.reshape(-1, 2)


def _pairs(ranks: ArrayLike, blocks: ArrayLike) -> I32:
    table = _table(ranks, blocks)
    sorted_rows = np.ascontiguousarray(table[np.lexsort((table[:, 1], table[:, 0]))])
    sorted_rows.setflags(write=False)
    return sorted_rows


def _all_reduce(n: int, root: int) -> Operation:
    ranks = np.arange(n)
    return Operation("all_reduce", n, 1, _pairs(ranks, 0), _pairs(ranks, 0))


def _reduce_scatter(n: int, root: int) -> Operation:
    ranks = np.arange(n)
    return Operation("reduce_scatter", n, n, _table(ranks[:, None], ranks), _pairs(ranks, ranks))


def _all_gather(n: int, root: int) -> Operation:
    ranks = np.arange(n)
    return Operation("all_gather", n, n, _pairs(ranks, ranks), _table(ranks[:, None], ranks))


def _all_to_all(n: int, root: int) -> Operation:
    return Operation("all_to_all", n, n * n, partial(_items, n, of_source=True), partial(_items, n, of_source=False))


@lru_cache(maxsize=16)
def _items(n: int, *, of_source: bool) -> I32:
    """Block s * n + d, what s has for d, at its source or at its sink."""
    rank, other = np.arange(n, dtype=np.int32)[:, None], np.arange(n, dtype=np.int32)
    return _table(rank, rank * n + other if of_source else other * n + rank)


def _broadcast(n: int, root: int) -> Operation:
    return Operation("broadcast", n, 1, _pairs([root], 0), _pairs(np.arange(n), 0), root)


def _reduce(n: int, root: int) -> Operation:
    return Operation("reduce", n, 1, _pairs(np.arange(n), 0), _pairs([root], 0), root)


def _scatter(n: int, root: int) -> Operation:
    ranks = np.arange(n)
    return Operation("scatter", n, n, _pairs(root, ranks), _pairs(ranks, ranks), root)


def _gather(n: int, root: int) -> Operation:
    ranks = np.arange(n)
    return Operation("gather", n, n, _pairs(ranks, ranks), _pairs(root, ranks), root)


def routed(name: str, experts: ArrayLike) -> Operation:
    """The dispatch or the combine of a mixture of experts, for a routing of one's own.

    Block s*T + t is token t of rank s. A dispatch copies it to the ranks of its experts; a combine gives rank s the sum of
    what they have made of it.

    Args:
        name: dispatch or combine.
        experts: [N, T, k] the k ranks that each token of each rank goes to, all different.

    Raises:
        InputError: another name, or what is no routing.
    """
    if name not in ROUTED:
        raise unknown("routed operation", name, ROUTED)
    table = check_routing(name, experts)
    n, tokens, _ = table.shape
    block = np.arange(n * tokens).reshape(n, tokens, 1)
    home, away = _pairs(np.arange(n)[:, None, None], block), _pairs(table, block)
    have, want = (home, away) if name == "dispatch" else (away, home)
    return Operation(name, n, n * tokens, have, want)


def _dispatch(n: int, root: int) -> Operation:
    return routed("dispatch", standard_routing(n))


def _combine(n: int, root: int) -> Operation:
    return routed("combine", standard_routing(n))


OPERATIONS: dict[str, Callable[[int, int], Operation]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "all_to_all": _all_to_all,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "scatter": _scatter,
    "gather": _gather,
    "dispatch": _dispatch,
    "combine": _combine,
}
ROOTED = frozenset({"broadcast", "reduce", "scatter", "gather"})
REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce", "combine"})
ROUTED = frozenset({"dispatch", "combine"})  # whose blocks are tokens, all of one size
SLOTS_ARE_RANKS = frozenset({"scatter", "gather"})  # rooted ones whose blocks are named by rank, so that they rotate too


@lru_cache(maxsize=256)  # the executor knows a program again by its operation
def operation(name: str, n: int, root: int = 0) -> Operation:
    """The operation `name` among `n` ranks.

    Raises:
        InputError: an unknown name, fewer than one rank, or a root that is not one of them.
    """
    if name not in OPERATIONS:
        raise unknown("operation", name, OPERATIONS)
    check_root(name, n, root)
    return OPERATIONS[name](n, root)


def check_root(name: str, n: int, root: int) -> None:
    """Refuse fewer than one rank, and a root that is not one of them.

    Raises:
        InputError: as it says.
    """
    if n < 1:
        raise must_be(name, "ranks", "1 or more", n)
    if not 0 <= root < n or (root and name not in ROOTED):
        raise must_be(name, "root", f"a rank of 0..{n - 1}" if name in ROOTED else "0, because the operation has no root", root)


@dataclass(frozen=True, eq=False, slots=True)
class Slots:
    """How many elements each slot of a schedule holds, and where in its block they begin.

    A block's count is cut at `count * W[j] // W[-1]`, W the running sum of the shares: one formula for equal, unequal,
    ragged and empty parts.
    """

    block: I32  # [K] the block a slot is a part of
    start: I64  # [K] its first element within that block
    count: I64  # [K] its elements


def _shares(count: I64 | np.int64, running: I64) -> I64:
    """`count * running // running[-1]`, in two halves that do not overflow."""
    whole, rest = np.divmod(count, running[-1])
    return np.asarray(whole * running + rest * running // running[-1])


def cut(block_counts: I64, n_slots: int, shares: Sequence[int] = ()) -> Slots:
    """Cut blocks into the slots of a schedule.

    Args:
        block_counts: [B] elements of each block.
        n_slots: K, a multiple of B; slot = block * parts + part.
        shares: Of the parts of a block; () is equal.

    Raises:
        InputError: K is no multiple of B, or the shares are not one a part.
    """
    parts = n_slots // max(1, len(block_counts))
    if parts < 1 or parts * len(block_counts) != n_slots or (shares and len(shares) != parts):
        raise InputError(f"schedule: {n_slots} slots and {len(shares)} shares do not cut {len(block_counts)} blocks")
    running = np.concatenate(([0], np.cumsum(shares or np.ones(parts, np.int64)))).astype(np.int64)
    edges = _shares(block_counts[:, None], running)
    return Slots(
        column(np.repeat(np.arange(len(block_counts)), parts), np.int32),
        column(edges[:, :-1], np.int64),
        column(np.diff(edges, axis=1), np.int64),
    )
