"""The pairs of nodes that one entry of a description joins, counted before they are made.

Letters: M, A, B nodes; D dims.
"""

from collections.abc import Callable
from math import prod

import numpy as np

from emu.arrays import I64
from emu.errors import must_be
from emu.topology.builders.route_parts import pairs

NodePairs = tuple[I64, I64, int]  # [C] both nodes of each pair that an entry joins, and the number of its parallel cables


def _cycle(size: int) -> NodePairs:
    """Return the pairs of neighbours on a ring; two nodes have a cable each way round."""
    here = np.arange(size if size > 2 else size - 1)
    return here, (here + 1) % size, 2 if size == 2 else 1


AMONG: dict[str, tuple[Callable[[int], int], Callable[[int], NodePairs]]] = {  # number of pairs for a size, and the pairs
    "complete": (lambda size: size * (size - 1) // 2, lambda size: (*pairs(size), 1)),
    "cycle": (lambda size: size if size > 2 else size - 1, _cycle),
    "line": (lambda size: size - 1, lambda size: (np.arange(size - 1), np.arange(1, size), 1)),
    "none": (lambda _: 0, lambda _: (np.arange(0), np.arange(0), 1)),
}
BETWEEN: dict[str, Callable[[I64, I64], NodePairs]] = {
    "each": lambda a, b: (np.repeat(a, len(b)), np.tile(b, len(a)), 1),
    "pairs": lambda a, b: (a, b, 1),
    "blocks": lambda a, b: (a, np.repeat(b, len(a) // len(b)), 1),
    "turns": lambda a, b: (a, np.tile(b, len(a) // len(b)), 1),
}


def count_among(dims: tuple[int, ...], wirings: tuple[str, ...]) -> int:
    """Return the number of pairs that `pairs_among` makes."""
    return sum(prod(dims) // size * AMONG[wiring][0](size) for size, wiring in zip(dims, wirings, strict=True))


def pairs_among(nodes: I64, dims: tuple[int, ...], wirings: tuple[str, ...]) -> list[NodePairs]:
    """Return, for each dim, the pairs of nodes that it joins: nodes that differ in its digit only.

    Args:
        nodes: [M] numbered over `dims` in C order.
        dims: Sizes, of product M.
        wirings: [D] a word of `AMONG` each.
    """
    grid = nodes.reshape(dims)
    found = []
    for axis, (size, wiring) in enumerate(zip(dims, wirings, strict=True)):
        along = np.moveaxis(grid, axis, -1)
        a, b, count = AMONG[wiring][1](size)
        found.append((along[..., a].ravel(), along[..., b].ravel(), count))
    return found


def count_between(n_a: int, n_b: int, wiring: str, where: str) -> int:
    """Return the number of pairs that `pairs_between` makes.

    Raises:
        InputError: The wiring cannot join these numbers of nodes.
    """
    if wiring == "pairs" and n_a != n_b:
        raise must_be(where, "between", "as many nodes on both sides for wiring pairs", f"{n_a} and {n_b}")
    if wiring in ("blocks", "turns") and n_a % n_b:
        what = f"two groups for wiring {wiring}, where the second divides the first into equal parts"
        raise must_be(where, "between", what, f"groups of {n_a} and {n_b} nodes")
    return n_a * n_b if wiring == "each" else n_a


def pairs_between(a: I64, b: I64, wiring: str) -> NodePairs:
    """Return the pairs that a word of `BETWEEN` joins.

    Args:
        a: [A] nodes.
        b: [B] other nodes.
        wiring: `each` joins each to each, `pairs` the i-th to the i-th, `blocks` neighbours to one node, `turns` nodes to the
            others in turn.
    """
    return BETWEEN[wiring](a, b)
