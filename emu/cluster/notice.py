"""What a member of a group tells the others of its call, as numbers: so that calls that do not agree are refused.

It also gives every member the size of every block, of which each knows only some. N ranks of the group.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from emu.backend.executor.reduction import REDUCE_OPERATIONS
from emu.backend.rank.call import Call, Known, Members
from emu.collective.operation import OPERATIONS
from emu.collective.routing import TOKENS

_NAMES = (*OPERATIONS, "barrier", "send", "recv")
_DTYPES = sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)
_FIELDS = 9


def notice_size(n: int) -> int:
    """Numbers in a notice among n ranks."""
    return _FIELDS + 2 * _most_known(n)


def _most_known(n: int) -> int:
    """No rank tells of more blocks: a row and a column of an all_to_all, or its own tokens."""
    return max(2 * n, TOKENS)


def notice(call: Call) -> Tensor:
    """[notice_size] what the others need to know of a call."""
    n, n_known = len(call.group.ranks), len(call.known.block)
    words = np.zeros(notice_size(n), np.int64)
    words[:_FIELDS] = (
        _NAMES.index(call.name),
        _NAMES.index(call.operation),
        call.input.numel(),
        call.output.numel(),
        _DTYPES.index(call.dtype),
        REDUCE_OPERATIONS.index(call.reduce),
        call.root,
        call.tag,
        n_known,
    )
    blocks, counts = words[_FIELDS:].reshape(2, _most_known(n))
    blocks[:n_known], counts[:n_known] = call.known
    return torch.from_numpy(words)


def calls_of(notices: Tensor, group: Members) -> Iterator[Call]:
    """The members' calls, from their notices [N, notice_size] in group-rank order; their tensors have sizes and no data."""
    return (call_of(words, group, rank) for rank, words in enumerate(notices))


def call_of(words: Tensor, group: Members, rank: int) -> Call:
    """The call of one member, from its notice."""
    fields, known = words[:_FIELDS].tolist(), words[_FIELDS:].numpy().reshape(2, -1)
    name, operation, given, made, dtype, reduce, root, tag, n_known = fields
    return Call(
        _NAMES[name],
        _NAMES[operation],
        torch.empty(given, dtype=_DTYPES[dtype], device="meta"),
        torch.empty(made, dtype=_DTYPES[dtype], device="meta"),
        Known(*known[:, :n_known]),
        [],
        reduce=REDUCE_OPERATIONS[reduce],
        root=root,
        tag=tag,
        group=group,
        rank=rank,
    )
