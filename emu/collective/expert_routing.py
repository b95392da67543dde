"""The routing of tokens in a mixture of experts.

A routing is a table [N, T, k]: the k ranks whose experts the gate chose for token t of rank s, in any order.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool
from emu.errors import must_be

TOKENS = 16  # T, the tokens of each rank
_MOST_EXPERTS = 8
_SEED = 0


@lru_cache(maxsize=256)
def standard_offsets(n: int) -> I64:
    """Return [T, k] the experts of each token in the standard routing, as rank offsets modulo n.

    The offsets are the same for every rank, so that all ranks have the same load. The offsets of a token are a random subset of
    0..n-1, which may include 0, its own rank.

    Returns:
        [T, k], where k is the largest power of two that is neither above 8 nor above n.
    """
    k = 1 << min(_MOST_EXPERTS, n).bit_length() - 1
    keys = np.random.default_rng(_SEED).random((TOKENS, n))
    offsets = np.argsort(keys, axis=1, kind="stable")[:, :k].astype(np.int64)
    offsets.setflags(write=False)
    return offsets


def standard_routing(n: int) -> I64:
    """Return the routing [N, T, k] that applies `standard_offsets` to every rank."""
    return np.asarray((np.arange(n)[:, None, None] + standard_offsets(n)) % n)


def check_routing(name: str, experts: ArrayLike) -> I64:
    """Check that each of N ranks sends each of its T tokens to k different ranks, and return the routing as whole numbers.

    Args:
        name: The operation, for the message.
        experts: [N, T, k] the ranks to which each token goes.

    Raises:
        InputError: `experts` is no [N, T, k] of whole numbers, or names a rank that is none of N or that a token goes to twice.
    """
    table = np.asarray(experts)
    if table.ndim != 3 or not table.size or table.dtype.kind not in "iu":
        raise must_be(name, "experts", "whole numbers [ranks, tokens, experts of a token]", f"{table.dtype} {table.shape}")
    table, n = table.astype(np.int64), len(table)
    _refuse(name, "a rank", (table < 0) | (table >= n), table, f"a rank of 0..{n - 1}")
    ordered = np.sort(table, axis=2)
    _refuse(name, "every rank", np.diff(ordered, axis=2) == 0, ordered, "one that the token goes to once")
    return table


def _refuse(name: str, what: str, bad: Bool, table: I64, expected: str) -> None:
    """Raise the error for the first entry of the routing table [N, T, k] that is marked in `bad`, if any."""
    if bad.any():
        s, t, i = np.argwhere(bad)[0].tolist()
        raise must_be(name, f"{what} of token {t} of rank {s}", expected, int(table[s, t, i]))
