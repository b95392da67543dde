"""Which ranks of a plan talk to which: where each one is on every axis, and the groups of an axis.

A rank counts the axes tp, cp, dp, pp, the first fastest: rank = tp + TP * (cp + CP * (dp + DP * pp)). Expert layers regroup the
same TP * CP * DP ranks of a stage: rank of the stage = etp + ETP * (ep + EP * edp). Source: Megatron-LM, core/parallel_state.
"""

from collections.abc import Mapping

import numpy as np

from emu.arrays import I64
from emu.errors import InputError
from emu.registry import unknown

AXES = ("tp", "cp", "dp", "pp")  # of all ranks, the first fastest
DATA = "dp_cp"  # dp and cp as one, where there is cp: what ranks of either have seen of the gradients is added up
REPLICATE, SHARD = "dp_replicate", "dp_shard"  # the two halves of dp where states are sharded over a part of it
ENDS = "embedding"  # the first and the last rank of each pipeline, which may have copies of one table of words
EXPERT_AXES = ("etp", "ep", "edp", "pp")  # the same ranks, as the expert layers count them


def places(rank: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """Where a rank is on each axis, those of expert layers too."""
    found: dict[str, int] = {}
    for axes in (EXPERT_AXES, AXES):
        at = np.unravel_index(rank, [sizes[axis] for axis in reversed(axes)])
        found |= {axis: int(place) for axis, place in zip(reversed(axes), at, strict=True)}
    return found


def groups(axis: str, sizes: Mapping[str, int]) -> tuple[tuple[int, ...], ...]:
    """The groups of ranks that differ on `axis` alone, in ascending order of their first rank.

    Args:
        axis: One, such as `tp`; or several of one numbering, such as `cp+dp`, the first of them fastest in each group.
        sizes: Of every axis.

    Raises:
        InputError: no such axis, or axes of both numberings.
    """
    return tuple(map(tuple, group_rows(axis, sizes).tolist()))


def group_rows(axis: str, sizes: Mapping[str, int]) -> I64:
    """[groups, members] the same as an array.

    Raises:
        InputError: as `groups`.
    """
    rows = _rows(tuple(axis.split("+")), sizes)
    return rows[np.argsort(rows[:, 0])]


def chunks(place: int, of: int, seq: int) -> I64:
    """Positions in a sequence of the tokens of one of so many ranks of cp: a chunk from the front, one from the back.

    Source: Dubey et al., The Llama 3 Herd of Models (2024), section 3.3.2.
    """
    if of == 1:
        return np.arange(seq)
    return np.arange(seq).reshape(2 * of, -1)[[place, 2 * of - 1 - place]].ravel()


def _rows(wanted: tuple[str, ...], sizes: Mapping[str, int]) -> I64:
    """[groups, members]."""
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
