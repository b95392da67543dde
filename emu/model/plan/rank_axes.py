"""The axes of a plan over its ranks: the place of each rank on every axis, and the groups of an axis.

A rank counts the axes tp, cp, dp, pp, the first fastest: rank = tp + TP * (cp + CP * (dp + DP * pp)). Expert layers regroup the
same TP * CP * DP ranks of a stage: rank of the stage = etp + ETP * (ep + EP * edp). Source: Megatron-LM, core/parallel_state.
"""

from collections.abc import Mapping

import numpy as np

from emu.arrays import I64
from emu.errors import InputError
from emu.registry import unknown

AXES = ("tp", "cp", "dp", "pp")  # the axes of all ranks, the first fastest
# Of each axis and of expert tensor parallelism, what stands before "parallel" in sentences.
TITLES = {"tp": "tensor", "cp": "context", "ep": "expert", "etp": "expert tensor", "dp": "data", "pp": "pipeline"}
COPY_AXES = ("cp", "dp")  # their ranks have copies of the same parameters, but for experts, and sum gradients over both
COPIES = "+".join(COPY_AXES)  # all of them as one axis, as `groups` reads it
DATA = "dp_cp"  # ... as requests of PyTorch's pieces have it, if there is more than dp
REPLICATE, SHARD = "dp_replicate", "dp_shard"  # the two halves of dp, if states are sharded over a part of it
ENDS = "embedding"  # the first and the last rank of each pipeline, which may have copies of one embedding
EXPERT_AXES = ("etp", "ep", "edp", "pp")  # the axes of the same ranks in expert layers


def places_of(ranks: I64, sizes: Mapping[str, int]) -> dict[str, I64]:
    """Return the places of ranks on each axis, with those of expert layers."""
    found: dict[str, I64] = {}
    for axes in (EXPERT_AXES, AXES):
        at = np.unravel_index(ranks, [sizes[axis] for axis in reversed(axes)])
        found |= dict(zip(reversed(axes), at, strict=True))
    return found


def groups(axis: str, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of ranks that differ on `axis` alone, ascending by their first rank.

    Args:
        axis: One axis, such as `tp`; or several of one numbering, such as `cp+dp`, the first of them fastest in each group.
        sizes: The size of every axis.

    Raises:
        InputError: no such axis, or axes of both numberings.
    """
    return tuple(map(tuple, group_rows(axis, sizes).tolist()))


def group_rows(axis: str, sizes: Mapping[str, int]) -> I64:
    """Return [groups, members] the groups as an array.

    Raises:
        InputError: see `groups`.
    """
    rows = _rows(tuple(axis.split("+")), sizes)
    return rows[np.argsort(rows[:, 0])]


def cp_positions(place: int, of: int, seq: int) -> I64:
    """Return the positions in a sequence of the tokens of one of `of` ranks of cp: a chunk from the front, one from the back.

    Source: Dubey et al., The Llama 3 Herd of Models (2024), section 3.3.2.
    """
    if of == 1:
        return np.arange(seq)
    return np.arange(seq).reshape(2 * of, -1)[[place, 2 * of - 1 - place]].ravel()


def _rows(wanted: tuple[str, ...], sizes: Mapping[str, int]) -> I64:
    """Return [groups, members] the groups of some axes."""
    for axis in wanted:
        if axis not in sizes:
            raise unknown("axis of a plan", axis, sizes)
    axes = next((axes for axes in (AXES, EXPERT_AXES) if set(wanted) <= set(axes)), None)
    if axes is None:
        raise InputError(f"plan: {'+'.join(wanted)} mixes axes of all layers ({', '.join(AXES)}) with those of expert layers")
    shape = [sizes[axis] for axis in reversed(axes)]
    ranks = np.arange(int(np.prod(shape))).reshape(shape)
    last = [len(axes) - 1 - axes.index(axis) for axis in reversed(wanted)]
    size = int(np.prod([sizes[axis] for axis in wanted]))
    return np.moveaxis(ranks, last, range(-len(last), 0)).reshape(-1, size)
