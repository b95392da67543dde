"""The work of an operator of PyTorch, computed from the shapes of its tensors in a profile.

A profile has shapes where it was taken with `record_shapes=True`. Products and attention have sizes; any other operator reads
its tensors and writes one that is as large as the largest of them, as element-wise operators do.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from emu.dtypes import DTYPES
from emu.errors import BareError, must_be
from emu.trace.formats.kineto.event_arguments import MOST, UNREADABLE, whole
from emu.trace.formats.kineto.profiled_request import dtype_of
from emu.trace.formats.kineto.request_arguments import BYTES, KERNEL, SIZES
from emu.trace.kernel_shape import BACKWARD, MOVES, Kernel, Shape
from emu.trace.timed_dtype import FLOAT_BYTES, TF32

_PRODUCTS = {  # by operator, the places of both factors
    "aten::mm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::bmm": (0, 1),
    "aten::baddbmm": (1, 2),
    "aten::_scaled_mm": (0, 1),
    "aten::_addmm_activation": (1, 2),
}


class _Attention(NamedTuple):
    """The positions of an attention operator's arguments: its queries, its mask, and the dimension of heads."""

    query: int
    causal: int
    heads: int  # the dim of the heads: 1 or 2; the other one is the sequence


_ATTENTIONS = {
    "aten::_flash_attention_forward": _Attention(0, 8, 2),
    "aten::_flash_attention_backward": _Attention(1, 11, 2),
    "aten::_efficient_attention_forward": _Attention(0, 9, 2),
    "aten::_efficient_attention_backward": _Attention(1, 14, 2),
    "aten::_cudnn_attention_forward": _Attention(0, 10, 1),
    "aten::_cudnn_attention_backward": _Attention(1, 14, 1),
    "aten::_scaled_dot_product_cudnn_attention": _Attention(0, 6, 1),
    "aten::_scaled_dot_product_cudnn_attention_backward": _Attention(1, 14, 1),
}
_MOST_SIZE = 2**31  # limit of each size of a shape
_FLOPS = {Kernel.PRODUCT: 2, Kernel.OTHER: 0, Kernel.SCATTER_ADD: 0}
_OF_ATTENTION = {False: 4, True: 10}  # of the forward and of the backward, for each query, key and element of a head


class KernelWork(NamedTuple):
    """The work of a computation: its operator, dtype, sizes, FLOPs and bytes, on which its time depends."""

    name: str  # name of the operator
    dtype: str
    shape: Shape
    flops: float
    bytes: int
    elements: int  # elements of the dtype in these bytes


def work_of_operator(name: str, args: Mapping[str, Any]) -> KernelWork | None:
    """Return the work of an operator; None if the profile lacks the shape or dtype of one of its tensors."""
    try:
        tensors = _tensors(args.get("Input Dims") or (), args.get("Input type") or ())
        found = _sized(name, args) if name in _PRODUCTS or name in _ATTENTIONS else _moving(tensors)
        if found is None:
            return None
        shape, dtype, moved = found
        elements = moved // DTYPES[dtype] if shape != MOVES else sum(prod(dims) for dims, of in tensors if of == dtype)
        return _timeable(_possible(KernelWork(name, dtype, shape, _flops(shape), moved, elements)))
    except (BareError, *UNREADABLE):  # lists of lists, or scalars in place of dims
        return None


def _possible(work: KernelWork) -> KernelWork:
    """Return a work whose sizes a trace can hold.

    Raises:
        BareError: one is larger, or less than none.
    """
    sizes = {"bytes": work.bytes, **dict(zip(SIZES, work.shape[1:], strict=True))}  # each element has a byte at least
    for name in sizes:
        whole(sizes, name, below=MOST if name == "bytes" else _MOST_SIZE)
    return work


def _timeable(work: KernelWork) -> KernelWork | None:
    """Return the work, or None if it is a product of integers, for which no device has a rate."""
    floats = work.shape.kernel != Kernel.PRODUCT or work.dtype in (*FLOAT_BYTES, TF32)
    return work if floats else None


def _tensors(dims: Sequence[Any], types: Sequence[str]) -> list[tuple[Sequence[int], str]]:
    """Return the dims and the dtype of each tensor.

    Raises:
        BareError: a dtype is unknown, as that of a list of tensors always is.
    """
    known = (each for each in zip(dims, types, strict=False) if each[0])
    return [(of, dtype_of("unknown" if isinstance(of[0], list) else str(kind))) for of, kind in known]


def _moving(tensors: Sequence[tuple[Sequence[int], str]]) -> tuple[Shape, str, int] | None:
    """Return the work of an operator that only moves bytes; None if it has no tensor."""
    sizes = [DTYPES[of] * prod(dims) for dims, of in tensors]
    return (MOVES, tensors[0][1], sum(sizes) + max(sizes)) if tensors else None


def _sized(name: str, args: Mapping[str, Any]) -> tuple[Shape, str, int] | None:
    """Return the shape, dtype and bytes of a product or attention; None if its tensors have an unexpected form.

    Raises:
        BareError: the dtype is unknown; too few tensors raise one of `UNREADABLE`.
    """
    dims, types = args.get("Input Dims") or (), args.get("Input type") or ()
    first = _PRODUCTS[name][0] if name in _PRODUCTS else _ATTENTIONS[name].query
    shape = _product(*dims[first : first + 2]) if name in _PRODUCTS else _attention(name, dims, args)
    if shape is None:
        return None
    dtype = dtype_of(str(types[first]))
    return shape, dtype, DTYPES[dtype] * _moved(shape)


def _product(left: Sequence[int], right: Sequence[int]) -> Shape | None:
    if len(left) != len(right) or len(left) not in (2, 3) or left[-1] != right[-2]:
        return None
    return Shape(Kernel.PRODUCT, left[0] if len(left) == 3 else 1, left[-2], right[-1], left[-1])


def _attention(name: str, dims: Sequence[Any], args: Mapping[str, Any]) -> Shape | None:
    at = _ATTENTIONS[name]
    query, key = dims[at.query : at.query + 2]
    if len(query) != 4 or len(key) != 4:
        return None
    values = args.get("Concrete Inputs") or ()
    causal = at.causal < len(values) and str(values[at.causal]) not in ("", "False", "0")
    sequence = 3 - at.heads
    kernel = Kernel.CAUSAL if causal else Kernel.ATTENTION
    shape = Shape(kernel, query[0] * query[at.heads], query[sequence], key[sequence], query[3])
    return shape.backward() if name.endswith("backward") else shape


def _flops(shape: Shape) -> float:
    each = _FLOPS.get(shape.kernel, _OF_ATTENTION[shape.kernel in BACKWARD])
    return float(each * shape.batch * shape.m * shape.n * shape.k)


def _moved(shape: Shape) -> int:
    """Return the elements that a product or an attention reads and writes: of the latter queries, keys, values and results."""
    _, batch, m, n, k = shape
    if shape.kernel == Kernel.PRODUCT:
        return batch * (m * k + k * n + m * n)
    return batch * k * (m + n) * (4 if shape.kernel in BACKWARD else 2)


def work_of_kernel(name: str, args: Mapping[str, Any]) -> KernelWork | None:
    """Return the FLOPs and bytes that a kernel itself states (in Emu's own profiles), or those of a copy or fill on the device.

    None if it states none. A copy from or to the host takes the time of its bus, which no model of a device has.

    Raises:
        BareError: a size is no number, or the kernel or its dtype is unknown.
    """
    if KERNEL in args:
        if str(args[KERNEL]).upper() not in Kernel.__members__:
            raise must_be("", f"its {KERNEL!r}", f"one of {', '.join(Kernel.__members__).lower()}", args[KERNEL])
        shape = Shape(Kernel[str(args[KERNEL]).upper()], *(whole(args, size, 0, below=_MOST_SIZE) for size in SIZES))
        dtype, flops = str(args["dtype"]), float(args["FLOPs"])
        if dtype not in (*DTYPES, TF32):
            raise must_be("", "its 'dtype'", "one of torch's", dtype)
        return _timeable(KernelWork(name, dtype, shape, flops, whole(args, BYTES), whole(args, "Elements")))
    fills = name.lower().startswith("memset")
    if "bytes" in args and (fills or "DtoD" in name):
        moved = whole(args, "bytes", below=MOST // 2) * (1 if fills else 2)  # a copy reads and writes them
        return KernelWork(name, "uint8", Shape(), 0.0, moved, moved)
    return None


_TF32 = ("tf32", "s1688gemm")  # parts of the names of kernels that round the factors of float32 products


def work_of_launched(work: KernelWork, kernel: str) -> KernelWork:
    """Return the work of an operator as the given kernel did it: in TF32 if the kernel's name says so."""
    rounds = work.shape.kernel == Kernel.PRODUCT and work.dtype == "float32" and any(word in kernel for word in _TF32)
    return work._replace(dtype=TF32) if rounds else work
