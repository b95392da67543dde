"""The sizes of the blocks of a collective whose members give blocks of uneven sizes, such as an all_to_all of experts' tokens.

N members, B blocks.
"""

from collections.abc import Sequence

import numpy as np

from emu.arrays import I64
from emu.collective.operation import Operation
from emu.errors import InputError, must_be


def packed_blocks(where: str, op: Operation, given: Sequence[I64], elements: int) -> bytes:
    """Return the elements of each block, packed into bytes, so that collectives of equal block sizes compare equal.

    Args:
        where: The name of the collective in error messages.
        op: The operation of the collective.
        given: [N] for each member, the elements of its blocks in their order; an empty array means an even division.
        elements: The elements of all blocks together.

    Raises:
        InputError: a member gives a wrong number of sizes, or two members give different sizes of one block.
    """
    counts = np.full(op.n_blocks, -1, np.int64)
    even = op.block_counts(elements)
    for member, sizes in enumerate(given):
        blocks = op.input_blocks(member)
        if len(sizes) not in (0, len(blocks)):
            what = f"none, or one for each of its {len(blocks)} blocks"
            raise must_be("trace", f"split sizes of member {member} of {where}", what, len(sizes))
        stated = sizes if len(sizes) else even[blocks]
        if ((counts[blocks] >= 0) & (counts[blocks] != stated)).any():
            raise InputError(f"trace: member {member} of {where} gives another size of a block than an earlier member does")
        counts[blocks] = stated
    return counts.tobytes()


def block_counts(packed: bytes) -> I64:
    """Return [B] the elements of each block, from bytes that `packed_blocks` packed."""
    return np.frombuffer(packed, np.int64)
