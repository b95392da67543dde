"""How large each block of a collective is where its members do not give even ones, as an all_to_all of experts' tokens.

N members, B blocks.
"""

from collections.abc import Sequence

import numpy as np

from emu.arrays import I64
from emu.collective.operation import Operation
from emu.errors import InputError, must_be


def packed_blocks(where: str, op: Operation, given: Sequence[I64], elements: int) -> bytes:
    """The elements of each block, as bytes, so that collectives of equal ones are known as equal.

    Args:
        where: What errors call the collective.
        op: What it is for.
        given: [N] of each member, the elements of the blocks that it has, in their order; none: as an even cut has them.
        elements: Of the whole.

    Raises:
        InputError: a member that gives another number of blocks than it has, or two that give different sizes of one block.
    """
    counts = np.full(op.n_blocks, -1, np.int64)
    even = op.block_counts(elements)
    for member, sizes in enumerate(given):
        blocks = op.input_blocks(member)
        if len(sizes) not in (0, len(blocks)):
            what = f"none, or one for each of the {len(blocks)} blocks that it has"
            raise must_be("replay", f"split sizes of member {member} of {where}", what, len(sizes))
        told = sizes if len(sizes) else even[blocks]
        if ((counts[blocks] >= 0) & (counts[blocks] != told)).any():
            raise InputError(f"replay: member {member} of {where} gives other split sizes of a block than one before it")
        counts[blocks] = told
    return counts.tobytes()


def block_counts(packed: bytes) -> I64:
    """[B] the elements of each block."""
    return np.frombuffer(packed, np.int64)
