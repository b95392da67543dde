"""Mixture of experts: tokens go to the ranks of their experts (dispatch), and the experts' outputs come back summed (combine).

`flat` sends one copy of a token to each expert's rank. `hierarchical` sends one copy to each board: there the rank at the
sender's place copies it to the experts, and on the way back it adds before it sends. Source: UB-Mesh, arXiv:2503.20377 (2025),
sections 5.1 and 5.3. N ranks are on g boards of m, dims = (g, m), rank = board*m + place; each rank has T tokens, and a token
has k experts. The claim of `hierarchical` is on the links of a full mesh on each board and among ranks at equal places: one
link for each pair of ranks between which it sends.
"""

from fractions import Fraction
from math import prod

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.expert_routing import TOKENS, standard_offsets
from emu.collective.operation import ROUTED, Operation, operation
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import planes
from emu.collective.transform import dual
from emu.errors import must_be

Dims = tuple[int, int]


def _copies(op: Operation) -> tuple[I64, I64, I64]:
    """Return the copies of tokens of a dispatch or a combine, as columns: the token's rank, the expert's rank, the token."""
    if op.name not in ROUTED:
        raise must_be("moe", "operation", "a dispatch or a combine", op.name)
    homes, experts = (op.have, op.want) if op.name == "dispatch" else (op.want, op.have)
    home = np.empty(op.n_blocks, np.int64)
    home[homes[:, 1]] = homes[:, 0]
    expert, token = experts.T.astype(np.int64)
    return home[token], expert, token


def _schedule(op: Operation, rounds: list[Sends]) -> Schedule:
    """Return the schedule that sends copies in given rounds, or for a combine its dual.

    No rank is sent a token twice, or a token that it has. In a combine, a value that comes back is stored beside the present
    value on the token's own rank, or on the rank of a board that adds, and is then added.
    """
    copied = Schedule.build(op.n_ranks, op.n_blocks, rounds)
    return copied if op.name == "dispatch" else dual(copied, wanted=op)


def flat(op: Operation) -> Schedule:
    """Return the schedule that sends a copy of each token to each of its experts' ranks.

    For a combine, each of these ranks sends its value straight back.

    Args:
        op: A dispatch or a combine, with any routing.

    Raises:
        InputError: The operation is another.
    """
    home, expert, token = _copies(op)
    away = home != expert
    return _schedule(op, [Sends(home[away], expert[away], token[away])])


def hierarchical(op: Operation, dims: Dims) -> Schedule:
    """Return the schedule that sends one copy of each token to each board with an expert for it, and copies it there.

    For a combine, values go the reverse way.

    Args:
        op: A dispatch or a combine, with any routing.
        dims: Boards, and ranks of a board.

    Raises:
        InputError: The operation is another, or the boards do not have its ranks.
    """
    n, m = op.n_ranks, dims[1]
    if prod(dims) != n:
        raise must_be("moe", "dims", f"a grid of the {n} ranks", "x".join(map(str, dims)))
    home, expert, token = _copies(op)
    proxy = expert // m * m + home % m
    inside = proxy != expert
    _, first = np.unique(token * n + proxy, return_index=True)
    between = first[proxy[first] != home[first]]
    return _schedule(
        op,
        [
            Sends(home[between], proxy[between], token[between]),
            Sends(proxy[inside], expert[inside], token[inside]),
        ],
    )


def _remote_share(n: int) -> Fraction:
    """Return the share of the copies of a rank's tokens that go to other ranks."""
    offsets = standard_offsets(n)
    return Fraction(int(np.count_nonzero(offsets)), offsets.size)


def _expert_positions(dims: Dims) -> tuple[I64, I64]:
    """Return [m, T, k] the board of each expert of each token and the position on it, for a rank at each of m positions.

    Boards are counted from the rank's own board.
    """
    g, m = dims
    rank = np.arange(m)[:, None, None] + standard_offsets(g * m)
    return rank // m % g, rank % m


def _copies_between(dims: Dims) -> I64:
    """Return [m, g] the number of copies that a rank at each of m positions of a board sends to each of g boards.

    Boards are counted from the rank's own, to which it sends none.
    """
    (g, m), (board, _) = dims, _expert_positions(dims)
    goes = np.zeros((m, TOKENS, g), np.bool_)
    np.put_along_axis(goes, board, values=True, axis=2)
    goes[..., 0] = False
    return np.asarray(goes.sum(axis=1))


def _copies_inside(dims: Dims) -> I64:
    """Return [m, m] the number of copies that each position of a board sends to each other position of the board.

    These are copies of the tokens of all ranks at the same position of their boards.
    """
    m, (_, place) = dims[1], _expert_positions(dims)
    counts = np.stack([np.bincount(each.ravel(), minlength=m) for each in place])
    np.fill_diagonal(counts, 0)
    return counts


def _busiest_links(dims: Dims) -> tuple[Fraction, Fraction]:
    """Return the share of the size on the busiest link inside a board, and on the busiest between boards."""
    tokens = standard_offsets(prod(dims)).size
    return Fraction(int(_copies_inside(dims).max()), tokens), Fraction(int(_copies_between(dims).max()), tokens)


def _is_between(dims: Dims, src: I64, dst: I64) -> I64:
    """Return [P] 1 for each pair of ranks on two boards, else 0."""
    return np.asarray(src // dims[1] != dst // dims[1], np.int64)


def _meet(dims: Dims) -> bool:
    """Return whether some tokens cross both a busiest link between boards and a busiest link within one."""
    (between, inside), (board, place) = (_copies_between(dims), _copies_inside(dims)), _expert_positions(dims)
    p = np.arange(dims[1])[:, None, None]
    joined = (between[p, board] == between.max())[..., :, None] & (inside[p, place] == inside.max())[..., None, :]
    same = board[..., :, None] == board[..., None, :]
    return bool((joined & same).any())


_FLAT = Claim("rank", alpha=lambda n: min(n - 1, 1), beta=_remote_share)
_HIERARCHICAL = Claim("link", alpha=lambda _: (1, 1), beta=_busiest_links, exact=_meet, link_class=_is_between)


@collective("dispatch", "flat", claim=_FLAT, default=True)
def flat_dispatch(n: int) -> Schedule:
    """Send a copy of each token to each of its experts' ranks, all in one round."""
    return flat(operation("dispatch", n))


@collective("combine", "flat", claim=_FLAT, default=True)
def flat_combine(n: int) -> Schedule:
    """Send the value of a token from each of its experts' ranks to the token's own rank, which adds all of them."""
    return flat(operation("combine", n))


@collective("dispatch", "hierarchical", claim=_HIERARCHICAL, shapes=planes)
def hierarchical_dispatch(dims: Dims) -> Schedule:
    """Send one copy of a token to each board with experts of it.

    It goes to the rank at the sender's position on that board, which copies it to the experts.
    """
    return hierarchical(operation("dispatch", prod(dims)), dims)


@collective("combine", "hierarchical", claim=_HIERARCHICAL, shapes=planes)
def hierarchical_combine(dims: Dims) -> Schedule:
    """Add the values of a token on each board, at the token's position, and send each board's sum to the token's own rank."""
    return hierarchical(operation("combine", prod(dims)), dims)
