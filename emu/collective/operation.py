"""Operations: which rank has which blocks at the start, and which blocks each rank wants at the end.

Letters: N ranks, B blocks. A block that one rank has is copied; a block that several ranks have is summed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I32, I64, column, digest
from emu.collective.expert_routing import check_routing, standard_routing
from emu.errors import InputError, must_be
from emu.registry import unknown

_MOST_PAIRS = 2**29
_FEW = 1024  # up to this many ranks, the blocks of each rank are cached
Pairs = I32 | Callable[[], I32]  # [rows, 2] (rank, block), sorted; or a function that makes them, where they are many


@dataclass(frozen=True, eq=False)
class Operation:
    """The task of a collective: the blocks that each rank has, and those that it wants.

    Every wanted block must end as the sum of the values of the ranks that had it, each exactly once. A rank's input is its
    have-blocks in ascending order, its output its want-blocks. The operation's size is the larger of the two, over all ranks.
    """

    name: str
    n_ranks: int
    n_blocks: int
    having: Pairs  # which rank has which block
    wanting: Pairs  # which rank wants which block
    root: int = 0  # of a rooted operation
    _known: dict[tuple[int, bool], I32] = field(default_factory=dict, init=False, repr=False)  # cache, by (rank, wants)

    @property
    def have(self) -> I32:
        """[H, 2] the pairs (rank, block) of the blocks that ranks have at the start, sorted."""
        return self.having() if callable(self.having) else self.having

    @property
    def want(self) -> I32:
        """[W, 2] the pairs (rank, block) of the blocks that ranks want at the end, sorted."""
        return self.wanting() if callable(self.wanting) else self.wanting

    def input_blocks(self, rank: int) -> I32:
        """Return the numbers of the blocks that `rank` has at the start, ascending."""
        return self._blocks(rank, wants=False)

    def output_blocks(self, rank: int) -> I32:
        """Return the numbers of the blocks that `rank` wants at the end, ascending."""
        return self._blocks(rank, wants=True)

    def _blocks(self, rank: int, *, wants: bool) -> I32:
        """Return the blocks that `rank` has or wants; the result is cached."""
        known = self._known.get((rank, wants))
        if known is None:
            known = _blocks_of(self.want if wants else self.have, rank)
            if self.n_ranks <= _FEW:
                known = known.copy()  # not with all others, of which it is a part
                known.setflags(write=False)
                self._known[rank, wants] = known
        return known

    def block_counts(self, count: int) -> I64:
        """Return [B] the elements of each block for a total size of `count` elements, divided as evenly as possible.

        A count that does not divide is cut at `count * b // blocks`, so that some blocks are one element larger. The size of an
        all_to_all is one rank's buffer, and every rank's buffer is cut in the same way. Tokens all have one size.

        Raises:
            InputError: See `check_count`.
        """
        self.check_count(count)
        largest = self.blocks_in_size
        if self.name in ROUTED:
            return np.full(self.n_blocks, count // largest)
        if count % largest == 0:
            return np.broadcast_to(np.int64(count // largest), self.n_blocks)  # a view of one number
        edges = _shares(np.int64(count), np.arange(largest + 1, dtype=np.int64))
        return np.tile(np.diff(edges), self.n_blocks // largest)

    @cached_property
    def blocks_in_size(self) -> int:
        """The number of blocks in the largest buffer of a rank, before or after the operation; at least 1."""
        if callable(self.having):  # of so many blocks every rank has and wants as many
            return self.n_blocks // self.n_ranks
        per_rank = [np.bincount(rows[:, 0], minlength=1).max(initial=0) for rows in (self.have, self.want)]
        return max(1, *map(int, per_rank))

    @property
    def count_step(self) -> int:
        """The number of elements of which every size must be a multiple."""
        return self.blocks_in_size if self.name in ROUTED else 1

    def check_count(self, count: int) -> None:
        """Check that a size of `count` elements can be cut into blocks.

        Raises:
            InputError: It cannot. The message names the number of which it must be a multiple.
        """
        step = self.count_step
        if count % step:
            raise must_be(self.name, "elements", f"a multiple of {step}, the tokens of the largest buffer", count)

    @property
    def holders(self) -> int:
        """The number of ranks that have each block at the start."""
        return len(self.have) // max(1, self.n_blocks)

    def digest(self) -> str:
        """Return a hash of the pairs of ranks and blocks; equal operations have equal digests."""
        return digest((self.name, self.n_ranks, self.n_blocks, self.have, self.want, self.root))


def _blocks_of(rows: I32, rank: int) -> I32:
    """Return the blocks of one rank, from pairs (rank, block) sorted by rank."""
    low, high = np.searchsorted(rows[:, 0], (rank, rank + 1))
    return rows[low:high, 1]


def _table(ranks: ArrayLike, blocks: ArrayLike) -> I32:
    """Return a table [rows, 2] of rank and block, in the given order."""
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
    """Return the pairs (rank, block) [K, 2] as a read-only table, sorted by rank and then by block."""
    table = _table(ranks, blocks)
    sorted_rows = np.ascontiguousarray(table[np.lexsort((table[:, 1], table[:, 0]))])
    sorted_rows.setflags(write=False)
    return sorted_rows


# Which ranks have which blocks, and which want which: `each` rank its own, `every` rank all, or the `root` all.
_HAVE_AND_WANT = {
    "reduce_scatter": ("every", "each"),
    "all_gather": ("each", "every"),
    "scatter": ("root", "each"),
    "gather": ("each", "root"),
    "all_reduce": ("every", "every"),
    "broadcast": ("root", "every"),
    "reduce": ("every", "root"),
}
_OF_ONE_BLOCK = frozenset({"all_reduce", "broadcast", "reduce"})  # of the above; the others have a block for each rank


def _whole_blocks(name: str, n: int, root: int) -> Operation:
    """Return an operation in which each rank gets its own block, or every rank (or only the root) gets all blocks."""
    ranks, blocks = np.arange(n), np.arange(1 if name in _OF_ONE_BLOCK else n)
    tables: dict[str, tuple[ArrayLike, ArrayLike]] = {
        "each": (ranks, ranks),
        "every": (ranks[:, None], blocks),
        "root": (root, blocks),
    }
    have, want = (_table(*tables[who]) for who in _HAVE_AND_WANT[name])
    return Operation(name, n, len(blocks), have, want, root)


def _all_to_all(n: int) -> Operation:
    """Return the operation all_to_all: every rank has a block for every rank."""
    return Operation("all_to_all", n, n * n, partial(_items, n, of_source=True), partial(_items, n, of_source=False))


@lru_cache(maxsize=16)
def _items(n: int, *, of_source: bool) -> I32:
    """Return the pairs (rank, block) of an all_to_all of n ranks, in which block s * n + d goes from rank s to rank d.

    Args:
        n: The number of ranks.
        of_source: True: at the start, when rank s has the block; False: at the end, when rank d has it.
    """
    rank, other = np.arange(n, dtype=np.int32)[:, None], np.arange(n, dtype=np.int32)
    return _table(rank, rank * n + other if of_source else other * n + rank)


def routed_operation(name: str, experts: ArrayLike) -> Operation:
    """Return the dispatch or the combine of a mixture of experts for a given routing.

    Block s*T + t is token t of rank s. A dispatch copies it to the ranks of its experts. A combine gives rank s the sum of the
    values that those ranks made of it.

    Args:
        name: dispatch or combine.
        experts: [N, T, k] the k ranks to which each token of each rank goes, all different.

    Raises:
        InputError: The name is another, or `experts` is no routing.
    """
    if name not in ROUTED:
        raise unknown("routed operation", name, ROUTED)
    table = check_routing(name, experts)
    n, tokens, _ = table.shape
    block = np.arange(n * tokens).reshape(n, tokens, 1)
    home, away = _pairs(np.arange(n)[:, None, None], block), _pairs(table, block)
    have, want = (home, away) if name == "dispatch" else (away, home)
    return Operation(name, n, n * tokens, have, want)


OPERATIONS = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "dispatch",
    "combine",
)
ROOTED = frozenset({"broadcast", "reduce", "scatter", "gather"})
REDUCING = frozenset({"all_reduce", "reduce_scatter", "reduce", "combine"})
GATHERING = frozenset({"all_gather", "gather"})  # operations whose result is what all ranks give, one behind another
ROUTED = frozenset({"dispatch", "combine"})  # operations whose blocks are tokens, all of one size
SLOTS_ARE_RANKS = frozenset({"scatter", "gather"})  # rooted operations whose blocks are numbered by rank: blocks rotate too


@lru_cache(maxsize=256)  # the executor knows a program again by its operation
def operation(name: str, n: int, root: int = 0) -> Operation:
    """Return the operation `name` among `n` ranks.

    Raises:
        InputError: The name is unknown, there is no rank, or the root is none of the ranks.
    """
    if name not in OPERATIONS:
        raise unknown("operation", name, OPERATIONS)
    check_root(name, n, root)
    if name in ROUTED:
        return routed_operation(name, standard_routing(n))
    return _all_to_all(n) if name == "all_to_all" else _whole_blocks(name, n, root)


def check_root(name: str, n: int, root: int) -> None:
    """Check that an operation has at least one rank, and that its root is one of them (0 if it has no root).

    Raises:
        InputError: There is no rank, or the root is invalid.
    """
    if n < 1:
        raise must_be(name, "ranks", "1 or more", n)
    if not 0 <= root < n or (root and name not in ROOTED):
        raise must_be(name, "root", f"a rank of 0..{n - 1}" if name in ROOTED else "0, because the operation has no root", root)


@dataclass(frozen=True, eq=False, slots=True)
class Slots:
    """The size of each slot of a schedule and its offset in its block, both in elements.

    A block is cut at `count * W[j] // W[-1]`, where W is the running sum of the shares. This one formula covers equal, unequal,
    ragged and empty parts.
    """

    block: I32  # [K] the block of which the slot is a part
    start: I64  # [K] index of its first element within that block
    count: I64  # [K] number of its elements


def _shares(count: I64 | np.int64, running: I64) -> I64:
    """Return `count * running // running[-1]`, computed in two halves that do not overflow."""
    whole, rest = np.divmod(count, running[-1])
    return np.asarray(whole * running + rest * running // running[-1])


def divide_blocks(block_counts: I64, n_slots: int, shares: Sequence[int] = ()) -> Slots:
    """Return the slots into which a schedule cuts the blocks.

    Args:
        block_counts: [B] elements of each block.
        n_slots: K, a multiple of B; slot = block * parts + part.
        shares: Relative sizes of the parts of a block; () means equal parts.

    Raises:
        InputError: K is no multiple of B, or there is not one share for each part.
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
