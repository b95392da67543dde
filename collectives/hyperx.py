"""Direct collectives on a HyperX: every rank sends to all others of its line in one step, one dimension after another.

Source: Feng et al., RailX (2025), eq. 12-13 between nodes, for two halves on two dimensions; here for any number. D dimensions,
N ranks; N blocks, each in D parts. Part c is on channel c: it reduces along dimensions c, c + 1, .. (mod D) and gathers along
them backwards, so that at equal dims each link serves one part at a time.
"""

from fractions import Fraction
from math import prod

import numpy as np

from emu.collective.algorithm import collective
from emu.collective.claim import Claim
from emu.collective.schedule import Schedule
from emu.collective.shape import gather_along, grids, to_all
from emu.collective.transform import concatenate, dual

Dims = tuple[int, ...]


def _steps(dims: Dims) -> int:
    """Return the claimed alpha: one round for each dimension that has more than one rank."""
    return sum(d > 1 for d in dims)


def _share(dims: Dims) -> Fraction:
    """Return the share of the data that the busiest link carries in a reduce_scatter or all_gather.

    This is a link of the part that reduces along the smallest dims first. With side d in all dimensions the share is (1 - 1/N)
    / (D (d - 1)).
    """
    n_dims = len(dims)
    orders = (dims[c:] + dims[:c] for c in range(n_dims))
    per_link = (sum((Fraction(d > 1, prod(o[: k + 1])) for k, d in enumerate(o)), Fraction(0)) for o in orders)
    return max(per_link) / n_dims


_HALF = Claim("link", alpha=_steps, beta=_share)
_BOTH = Claim("link", alpha=lambda dims: 2 * _steps(dims), beta=lambda dims: 2 * _share(dims))


@collective("reduce_scatter", "hyperx-direct", claim=_HALF, shapes=grids)
def reduce_scatter(dims: Dims) -> Schedule:
    """Send each other rank of a line the sums which that rank adds up, dimension by dimension; rank r ends with block r."""
    return dual(all_gather(dims))


@collective("all_gather", "hyperx-direct", claim=_HALF, shapes=grids)
def all_gather(dims: Dims) -> Schedule:
    """Send all blocks that a rank has to every other rank of its line, one dimension after another.

    A block is cut into as many parts as there are dimensions. Each part begins with another dimension, so that all are busy.
    """
    n, n_dims = prod(dims), len(dims)
    place = np.arange(n).reshape(dims)
    order = [[(c + k) % n_dims for k in reversed(range(n_dims))] for c in range(n_dims)]
    parts = (gather_along(place.transpose(order[c]), [to_all] * n_dims, part=c, parts=n_dims) for c in range(n_dims))
    return Schedule.build(n, n * n_dims, zip(*parts, strict=True), translate=dims)  # rank 0's rows give the others'


@collective("all_reduce", "hyperx-direct", claim=_BOTH, shapes=grids)
def all_reduce(dims: Dims) -> Schedule:
    """Do a reduce_scatter in D parts at once, then an all_gather back along the same dimensions."""
    return concatenate(reduce_scatter(dims), all_gather(dims))
