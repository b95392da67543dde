"""The least time of an exchange of one block from every rank to every other, on any paths at once: concurrent flow.

The linear program is that of Shahrokhi and Matula, The maximum concurrent flow problem, J. ACM 37 (1990), with all that one
rank sends as one flow. It is apart because it loads scipy. Letters: A arcs, V nodes, N ranks, R ranks of different kinds.
"""

import numpy as np
from scipy.optimize import OptimizeResult, linprog
from scipy.sparse import coo_array, csr_array, hstack, kron, vstack

from emu.arrays import F64, I64
from emu.bound.link_prices import price_bound
from emu.bound.network import Network
from emu.bound.symmetry import Symmetry
from emu.errors import RunError


def exchange(net: Network, symmetry: Symmetry) -> float:
    """Return the time of an exchange of one block from each rank to each other, in blocks per unit of capacity.

    The solution of the program is right to its tolerance. What its prices give is a bound to the last digit, and is returned.
    """
    sources, n_arcs = symmetry.ranks, len(net.src)
    kept = [conservation(net, int(source)) for source in sources]
    balance = block_diagonal([rows for rows, _ in kept])
    wanted = np.concatenate([net.has_rank[nodes] for _, nodes in kept]).astype(np.float64)
    load, capacity = loads(net, symmetry)
    cost = np.concatenate((np.zeros(len(sources) * n_arcs), [1.0]))
    no_time = csr_array((balance.shape[0], 1))
    fits = hstack([load, csr_array(-capacity[:, None])])
    found = solve(cost, at_most=(fits, np.zeros(len(capacity))), equal=(hstack([balance, no_time]), wanted))
    price = np.maximum(-found.ineqlin.marginals, 0.0) / np.bincount(symmetry.arc_kind)
    return price_bound(net, symmetry, price[symmetry.arc_kind])


def conservation(net: Network, source: int) -> tuple[csr_array, I64]:
    """Return a matrix [V - 1, A]: what each arc adds to the flow into each node but the source, less the flow out of it.

    The second value is these nodes.
    """
    arc, ones = np.arange(len(net.src)), np.ones(len(net.src))
    shape = (net.n_nodes, len(net.src))
    into = coo_array((ones, (net.dst, arc)), shape).tocsr()
    out = coo_array((ones, (net.src, arc)), shape).tocsr()
    nodes = np.delete(np.arange(net.n_nodes), source)
    return csr_array((into - out)[nodes]), nodes


def loads(net: Network, symmetry: Symmetry) -> tuple[csr_array, F64]:
    """Return the load of the flows of each kind of rank on an arc of each kind [kinds, R A], and the capacity of that arc."""
    kind, alike = symmetry.arc_kind, np.bincount(symmetry.arc_kind)
    of_one = coo_array((1 / alike[kind], (kind, np.arange(len(kind)))), (len(alike), len(kind))).tocsr()
    capacity = np.zeros(len(alike))
    capacity[kind] = net.capacity
    return csr_array(kron(symmetry.ranks_alike[None, :].astype(np.float64), of_one)), capacity


def block_diagonal(blocks: list[csr_array]) -> csr_array:
    """Return a matrix of blocks of one shape, each in rows and columns of its own."""
    rows, columns = blocks[0].shape
    parts = [block.tocoo() for block in blocks]
    row = np.concatenate([part.row + i * rows for i, part in enumerate(parts)])
    col = np.concatenate([part.col + i * columns for i, part in enumerate(parts)])
    values = np.concatenate([part.data for part in parts])
    return coo_array((values, (row, col)), shape=(len(blocks) * rows, len(blocks) * columns)).tocsr()


def solve(cost: F64, at_most: tuple[csr_array, F64], equal: tuple[csr_array, F64]) -> OptimizeResult:
    """Return the cheapest solution `x` of a linear program in variables of 0 or more, with the marginal values of its rows.

    Raises:
        RunError: It has no solution.
    """
    # By interior points: the simplex takes up to twenty times as long where many solutions are equal, as many are here.
    found = linprog(cost, A_ub=at_most[0], b_ub=at_most[1], A_eq=equal[0], b_eq=equal[1], method="highs-ipm")
    if not found.success:
        raise RunError(f"bound: the linear program was not solved: {found.message}")
    return found


def stacked(rows: list[list[csr_array]]) -> csr_array:
    """Return a matrix of rows of blocks: the blocks of a row side by side, the rows below one another."""
    return csr_array(vstack([hstack(row) for row in rows]))
