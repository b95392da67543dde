"""The reduce operations, as what torch does to two tensors, and which of them can be taken of which dtype."""

from collections.abc import Callable
from functools import lru_cache
from math import nan

import torch
from torch import Tensor

from emu import dtypes
from emu.backend.rank.call import dtype_name

FOLDS: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
}
REDUCE_OPERATIONS = tuple(FOLDS)


def unwritten(dtype: torch.dtype, reduce: str) -> complex:
    """Return what memory that nobody has written holds before a check: a value that is seen in whatever it gets into.

    That is NaN, or an integer that every reduce operation shows in its result; only in an xor do two of them cancel.

    Args:
        dtype: Of the memory.
        reduce: One of `REDUCE_OPERATIONS`.
    """
    if dtype.is_complex:
        return complex(nan, nan)
    if dtype.is_floating_point:
        return nan
    if dtype is torch.bool:
        return reduce not in ("and", "min", "product")
    info = torch.iinfo(dtype)
    odd = info.min + 1 if dtype.is_signed else info.max  # however often it is added, it does not add up to 0
    return {"and": 0, "min": info.min, "max": info.max, "product": 3}.get(reduce, odd)


def check_reduces(where: str, dtype: torch.dtype, reduce: str) -> None:
    """Refuse a reduce operation that cannot be taken of a dtype.

    Raises:
        InputError: the message names those that can.
    """
    dtypes.check_reduces(where, dtype_name(dtype), reduce, _reductions_of(dtype))


@lru_cache(maxsize=64)
def _reductions_of(dtype: torch.dtype) -> tuple[str, ...]:
    """Which can be taken of a dtype; tried on one element, as PyTorch alone knows."""
    return tuple(name for name in REDUCE_OPERATIONS if _can_take(name, torch.zeros(1).to(dtype)))


def _can_take(reduce: str, one: Tensor) -> bool:
    if reduce == "product" and one.is_complex():  # torch.distributed refuses it: it reduces the two parts apart
        return False
    try:
        FOLDS[reduce](one, one, out=one)
        if reduce == "avg":
            one.div_(1)
    except RuntimeError:
        return False
    return True
