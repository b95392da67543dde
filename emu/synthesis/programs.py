"""Linear programs of a synthesis, which end when its time is over."""

from typing import TYPE_CHECKING

from emu.arrays import F64
from emu.synthesis.splitting import Tick

if TYPE_CHECKING:  # it takes long to load
    from scipy.optimize import OptimizeResult
    from scipy.sparse import csr_array


def solve_in_time(
    tick: Tick,
    cost: F64,
    at_most: "tuple[csr_array, F64]",
    equal: "tuple[csr_array, F64]",
    method: str = "highs-ipm",
) -> "OptimizeResult":
    """Return the solution of a linear program as `solve` does; `tick` raises its error when the time is over.

    Args:
        tick: It tells how many seconds are left.
        cost: See `solve`, as for the others.
        at_most: A matrix and a column.
        equal: A matrix and a column.
        method: A method of scipy's `linprog`; the simplex ends at a vertex with fewer parts.

    Raises:
        UnsolvedError: The program has no solution.
    """
    from emu.bound.linear_programs import UnsolvedError, solve

    try:
        return solve(cost, at_most, equal, tick(), method)
    except UnsolvedError:
        tick()
        raise
