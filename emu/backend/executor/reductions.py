"""The reduce operations as torch functions of two tensors, and the dtypes that each of them accepts."""

from collections.abc import Callable
from functools import lru_cache
from math import nan

import torch
from torch import Tensor

from emu import dtypes
from emu.backend.rank.rank_requests import dtype_name
from emu.dtypes import REDUCE_OPERATIONS

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


def divide(total: Tensor, by: float) -> Tensor:
    """Return a sum after a division in place, for an average; a quotient of integers is cut, as NCCL does."""
    parts = torch.view_as_real(total) if total.is_complex() else total  # a complex division rounds otherwise
    parts.div_(by, rounding_mode=None if parts.is_floating_point() else "trunc")
    return total


def unwritten_mark(dtype: torch.dtype, reduce: str) -> complex:
    """Return the value that unwritten memory holds for a check: NaN, or an integer that shows in every result.

    Only in an xor do two of these integers cancel.

    Args:
        dtype: The dtype of the memory.
        reduce: One of `REDUCE_OPERATIONS`.
    """
    if dtype.is_complex:
        return complex(nan, nan)
    if dtype.is_floating_point:
        return nan
    if dtype is torch.bool:
        return reduce not in ("and", "min", "product")
    info = torch.iinfo(dtype)
    odd = info.min + 1 if dtype.is_signed else info.max  # an odd number: no number of additions gives 0
    return {"and": 0, "min": info.min, "max": info.max, "product": 3}.get(reduce, odd)


def check_reduces(where: str, dtype: torch.dtype, reduce: str) -> None:
    """Check that a reduce operation accepts a dtype.

    Raises:
        InputError: it does not; the message names the operations that do.
    """
    dtypes.check_reduces(where, dtype_name(dtype), reduce, _reductions_of(dtype))


@lru_cache(maxsize=64)
def _reductions_of(dtype: torch.dtype) -> tuple[str, ...]:
    """Return the reduce operations that a dtype supports, found by trying each on one element."""
    return tuple(name for name in REDUCE_OPERATIONS if _can_take(name, torch.zeros(1).to(dtype)))


def _can_take(reduce: str, one: Tensor) -> bool:
    if (
        reduce == "product" and one.is_complex()
    ):  # torch.distributed refuses it, because it reduces the real and the imaginary part separately
        return False
    try:
        FOLDS[reduce](one, one, out=one)
        if reduce == "avg":
            divide(one, 1)
    except RuntimeError:
        return False
    return True
