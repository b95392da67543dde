"""The FLOPs, shape and dtype of a matrix product, attention or sum of rows, from its operator and arguments."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop, sdpa_flop

from emu.backend.rank.rank_requests import dtype_name
from emu.errors import RunError
from emu.trace.kernel_shape import MOVES, Kernel, Shape
from emu.trace.timed_dtype import TF32

Tensor = torch.Tensor
aten = torch.ops.aten
_SUMMED = ("addmm", "baddbmm", "addbmm", "addmv")
_NAMES = ("mm", "bmm", "mv", "dot", "vdot", *_SUMMED, *(f"{name}_" for name in _SUMMED))
# Operators that add rows, and the argument that has them.
ADD_ROWS: Mapping[str, str] = {
    **dict.fromkeys(("index_add", "index_add_"), "source"),
    **dict.fromkeys(("scatter_add", "scatter_add_"), "src"),
}
_PRODUCTS = frozenset(getattr(aten, name) for name in _NAMES)  # operators that multiply their last two tensors


def _product_flops(*args: Any, **_: object) -> int:
    """Return the FLOPs of the product of the last two tensors: mm, bmm, addmm, mv, dot and the like."""
    a, b = _last_two(args)
    return 2 * a.numel() * (b.size(-1) if b.dim() > 1 else 1)


def _grouped_flops(a: Tensor, b: Tensor, *_: object, **__: object) -> int:
    """Return the FLOPs of a grouped product: rows by groups times a matrix each, or two factors cut along their common dim."""
    return 2 * a.numel() * b.size(-1)


# torch's own table lacks attention on a CPU and products with a vector, and flattens trees for plain ones.
_FORMULAS: Mapping[Any, Callable[..., int]] = {
    **flop_registry,
    **dict.fromkeys(_PRODUCTS, _product_flops),
    aten._grouped_mm: _grouped_flops,
    aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: sdpa_backward_flop,
}
_MULTIPLIES = re.compile(r"(^|_)(\w*mm|mv|addmv|v?dot|\w*matmul|\w*linear|\w*gemm|\w*conv\w*|attention|lstm|gru|rnn)(_|$|\d)")
_MULTIPLIES_NOTHING = re.compile(r"upsample|convert|combination")


def flops_of(func: OpOverload) -> Callable[..., int] | None:
    """Return the function that counts the FLOPs of an operator; None if it multiplies no matrices.

    For an operator that multiplies matrices and has no known formula, the result raises a RunError when called.
    """
    formula, name = _FORMULAS.get(func.overloadpacket), func.overloadpacket.__name__
    if formula is None and func.namespace == "aten" and _MULTIPLIES.search(name) and not _MULTIPLIES_NOTHING.search(name):
        return _no_formula(f"aten.{name}")
    return formula


def _no_formula(name: str) -> Callable[..., int]:
    def refuse(*_: object, **__: object) -> int:
        raise RunError(
            f"count: {name} multiplies matrices and has no formula for its FLOPs; add one to emu.backend.rank.products"
        )

    return refuse


def shape_of(packet: Any, named: Mapping[str, Any]) -> Shape:
    """Return the shape of an operator that has one; unknown sizes (as of a convolution) are 0."""
    if packet.__name__ in ADD_ROWS:
        return _sum_of_rows(named[ADD_ROWS[packet.__name__]])
    if "query" in named and "key" in named:
        return _attention_shape(named)
    if packet == aten._grouped_mm:
        return _grouped_shape(named["self"], named["mat2"], named["offs"])
    if packet in _PRODUCTS:
        return _product_shape(*_last_two(named.values()))
    return Shape(Kernel.PRODUCT)


def _sum_of_rows(rows: Tensor) -> Shape:
    n = rows.size(0) if rows.dim() else 1
    return Shape(Kernel.SCATTER_ADD, 1, n, rows.numel() // n, 1) if rows.numel() else MOVES


def _last_two(values: Iterable[object]) -> tuple[Tensor, Tensor]:
    """Return the last two tensors among the arguments of a product: its two factors."""
    a, b = [value for value in values if isinstance(value, Tensor)][-2:]
    return a, b


def _product_shape(a: Tensor, b: Tensor) -> Shape:
    batch, rows = (a.size(0) if a.dim() > 2 else 1), (a.size(-2) if a.dim() > 1 else 1)
    return Shape(Kernel.PRODUCT, batch, rows, b.size(-1) if b.dim() > 1 else 1, a.size(-1))


def _grouped_shape(a: Tensor, b: Tensor, ends: Tensor) -> Shape:
    """Return the shape of a grouped product: rows by groups times a matrix each, or two factors cut along their common dim."""
    groups = ends.numel()
    if b.dim() > a.dim():
        return Shape(Kernel.PRODUCT, groups, a.size(0) // groups, b.size(-1), a.size(-1))
    return Shape(Kernel.PRODUCT, groups, a.size(0), b.size(-1), a.size(-1) // groups)


def _attention_shape(named: Mapping[str, Any]) -> Shape:
    query, key = named["query"], named["key"]
    heads = query.shape[:-2].numel()
    kernel = Kernel.CAUSAL if named.get("is_causal") else Kernel.ATTENTION
    shape = Shape(kernel, heads, query.size(-2), key.size(-2), query.size(-1))
    return shape.backward() if any(name.startswith("grad") for name in named) else shape


def product_dtype(dtype: torch.dtype, name: str, shape: Shape) -> str:
    """Return the name of the dtype in which an operator computes: TF32 for a float32 product that CUDA would round to it now.

    The rank may have set this in any of torch's ways; convolutions have a setting of their own. Attention by one kernel does
    not depend on the setting.
    """
    if dtype is torch.float32 and shape.kernel == Kernel.PRODUCT:
        setting = torch._C._get_fp32_precision_getter("cuda", "conv" if "conv" in name else "matmul")
        return TF32 if setting == "tf32" else "float32"
    return dtype_name(dtype)
