"""Bounds from some sets of ranks only: every rank, all but it, and the groups and halves that the numbering makes.

What a set has to send is read off the operation, so that this serves any; of an exchange among all it is known without looking
at the N² blocks, which may be billions. N ranks, V nodes, B blocks.
"""

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from emu.arrays import I64, Bool
from emu.bound.cuts import Cut, parting
from emu.bound.network import Network, sums
from emu.collective.operation import Operation

ALL_PAIRS = "all_to_all"  # the operation in which each rank has a block for each


def tried(net: Network, op: Operation, dims: tuple[int, ...], *, most_sets: int) -> Cut:
    """The set, of those tried, that has most blocks to send for the capacity that leaves it.

    Args:
        net: At least two ranks in it.
        op: Whose blocks.
        dims: Of the numbering of the NPUs.
        most_sets: To take a maximum flow for, beside single ranks.
    """
    best = max(_alone(net, op, back=False), _but_one(net, op), key=lambda cut: cut.ratio)
    for ranks in _groups(net, dims, most_sets):
        amount = _to_send(op, ranks[net.ranks])
        if amount:
            cut = parting(net, ranks)
            best = max(best, Cut(cut.inside, amount * cut.ratio), key=lambda cut: cut.ratio)
    return best


def _to_send(op: Operation, inside: Bool) -> int:
    """How many blocks a rank of the set [N] has and one outside wants."""
    if op.name == ALL_PAIRS:
        return int(inside.sum()) * int((~inside).sum())
    held, wanted = np.zeros((2, op.n_blocks), np.bool_)
    held[op.have[inside[op.have[:, 0]], 1]] = True
    wanted[op.want[~inside[op.want[:, 0]], 1]] = True
    return int((held & wanted).sum())


def _alone(net: Network, op: Operation, *, back: bool) -> Cut:
    """The rank that has most to send (to get, of a network turned round), by itself."""
    amount = np.full(op.n_ranks, op.n_ranks - 1) if op.name == ALL_PAIRS else _sent(op, back=back)
    rates = [Fraction(int(a), int(c)) if a else Fraction(0) for a, c in zip(amount, net.leaving[net.ranks], strict=True)]
    rank = max(range(len(rates)), key=rates.__getitem__)
    return Cut(np.arange(net.n_nodes) == net.ranks[rank], rates[rank])


def _sent(op: Operation, *, back: bool) -> I64:
    """[N] blocks that each rank has and another wants; the other way round."""
    have, want = (op.want, op.have) if back else (op.have, op.want)
    n_blocks = 1 + int(max(have[:, 1].max(), want[:, 1].max()))
    wanters = np.bincount(want[:, 1], minlength=n_blocks)
    own = np.isin(have[:, 0].astype(np.int64) * n_blocks + have[:, 1], want[:, 0].astype(np.int64) * n_blocks + want[:, 1])
    sent = wanters[have[:, 1]] > own
    return sums(have[sent, 0].astype(np.int64), np.ones(int(sent.sum()), np.int64), op.n_ranks)


def _but_one(net: Network, op: Operation) -> Cut:
    """The set without the rank that has most to get."""
    cut = _alone(net.back(), op, back=True)
    return Cut(~cut.inside, cut.ratio)


def groups(net: Network, dims: tuple[int, ...]) -> Iterator[I64]:
    """[N] the group of each rank, for each number of leading dims that parts the ranks in fewer groups than ranks."""
    for axis in range(1, len(dims)):
        group = np.unique(net.ranks // int(np.prod(dims[axis:])), return_inverse=True)[1].astype(np.int64)
        if 1 < group.max(initial=0) + 1 < len(net.ranks):
            yield group


def _groups(net: Network, dims: tuple[int, ...], most_sets: int) -> Iterator[Bool]:
    """[V] for each set that is tried, which nodes hold its ranks: groups, halves along a dim, and what is left of them."""
    found = list[Bool]()
    for group in groups(net, dims):
        if group.max() < most_sets - len(found):
            found += [_nodes(net, group == one) for one in range(int(group.max()) + 1)]
    for axis, size in enumerate(dims or (net.n_npus,)):
        digit = np.unravel_index(net.ranks, dims or (net.n_npus,))[axis]
        found.append(_nodes(net, digit < size // 2))
    for ranks in found:
        if 0 < ranks.sum() < len(net.ranks):
            yield ranks
            yield net.has_rank & ~ranks


def _nodes(net: Network, of_ranks: Bool) -> Bool:
    found = np.zeros(net.n_nodes, np.bool_)
    found[net.ranks[of_ranks]] = True
    return found
