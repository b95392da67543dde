"""What a product or an attention that ran is for a device: its shape, by the arguments of its operator, and its dtype."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from emu.backend.rank.call import dtype_name
from emu.trace.device.dtypes import TF32
from emu.trace.kernel import Kernel, Shape

Tensor = torch.Tensor
aten = torch.ops.aten
_SUMMED = ("addmm", "baddbmm", "addbmm", "addmv")
_NAMES = ("mm", "bmm", "mv", "dot", "vdot", *_SUMMED, *(f"{name}_" for name in _SUMMED))
PRODUCTS = frozenset(getattr(aten, name) for name in _NAMES)  # of the last two tensors


def shape_of(packet: object, named: Mapping[str, Any]) -> Shape:
    """Of what has FLOPs; sizes of 0 where they are not known, as of a convolution."""
    if "query" in named and "key" in named:
        return _attention(named)
    if packet == aten._grouped_mm:
        return _grouped(named["self"], named["mat2"], named["offs"])
    if packet in PRODUCTS:
        return _product(*last_two(named.values()))
    return Shape(Kernel.PRODUCT)


def last_two(values: Iterable[object]) -> tuple[Tensor, Tensor]:
    """The factors of a product."""
    a, b = [value for value in values if isinstance(value, Tensor)][-2:]
    return a, b


def _product(a: Tensor, b: Tensor) -> Shape:
    batch, rows = (a.size(0) if a.dim() > 2 else 1), (a.size(-2) if a.dim() > 1 else 1)
    return Shape(Kernel.PRODUCT, batch, rows, b.size(-1) if b.dim() > 1 else 1, a.size(-1))


def _grouped(a: Tensor, b: Tensor, ends: Tensor) -> Shape:
    """Rows by groups, each times its group's matrix; or two factors cut into groups along what they share."""
    groups = ends.numel()
    if b.dim() > a.dim():
        return Shape(Kernel.PRODUCT, groups, a.size(0) // groups, b.size(-1), a.size(-1))
    return Shape(Kernel.PRODUCT, groups, a.size(0), b.size(-1), a.size(-1) // groups)


def _attention(named: Mapping[str, Any]) -> Shape:
    query, key = named["query"], named["key"]
    heads = query.shape[:-2].numel()
    kernel = Kernel.CAUSAL if named.get("is_causal") else Kernel.ATTENTION
    return Shape(kernel, heads, query.size(-2), key.size(-2), query.size(-1))


def computed_in(dtype: torch.dtype, name: str, shape: Shape) -> str:
    """Return the name of the dtype, or TF32 of a product of float32 that CUDA would round to it now.

    That is as the rank has set it in any of torch's ways, for convolutions by itself. Attention by one kernel does not ask for
    the setting: PyTorch's of float32 does the same whatever is set.
    """
    if dtype is torch.float32 and shape.kernel == Kernel.PRODUCT:
        setting = torch._C._get_fp32_precision_getter("cuda", "conv" if "conv" in name else "matmul")
        return TF32 if setting == "tf32" else "float32"
    return dtype_name(dtype)
