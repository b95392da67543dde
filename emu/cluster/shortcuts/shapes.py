"""The shapes of the results of DTensor's operators, computed once for all ranks of a process, mostly without fake tensors."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._guards import detect_fake_mode

from emu.backend.rank.count import pause_counting

Describe = Callable[[Any, Any], Any]
_aten = torch.ops.aten


def _table(gradient: torch.Tensor, _: object, rows: int, *__: object) -> torch.Tensor:
    """Return the shape of a table's gradient; PyTorch's own function loads its compiler, as that of a sum does."""
    return gradient.new_empty(rows, gradient.size(-1))


def _sum(a: torch.Tensor, b: Any, **_: object) -> torch.Tensor | None:
    """Return the shape of a sum of tensors of one layout, else None."""
    same = isinstance(b, torch.Tensor) and (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
    return a if same and a.is_contiguous() else None


# Operators whose one result has the same layout on every device, each with a function that gives it on the device "meta".
ANYWHERE: Mapping[Any, Callable[..., torch.Tensor | None]] = {
    **{
        each: each
        for each in (
            _aten.detach.default,
            _aten.embedding.default,
            _aten.mm.default,
            _aten.sum.dim_IntList,
            _aten.t.default,
            _aten.view.default,
        )
    },
    _aten.add.Tensor: _sum,
    _aten.embedding_dense_backward.default: _table,
}


def remembered_shapes(describe: Describe, specs: Any) -> Describe:
    """Return the replacement of a method of PyTorch that gives the shapes of an operator's results.

    PyTorch's own runs each operator on fake tensors, which takes milliseconds, and the first time loads PyTorch's compiler.

    Args:
        describe: PyTorch's own method, of the class that propagates shards.
        specs: The module of DTensor's specs.
    """
    known: dict[object, Any] = {}

    def told(self: Any, schema: Any) -> Any:
        if schema.op in ANYWHERE:
            with pause_counting():
                out = ANYWHERE[schema.op](*(_bare(each, specs) for each in schema.args_schema), **schema.kwargs_schema)
            if out is not None:
                return specs.TensorMeta(out.shape, out.stride(), out.dtype)
        return describe(self, schema)

    def described_once(self: Any, schema: Any) -> Any:
        if detect_fake_mode() is not None:  # whose tensors may have sizes that are not known
            return describe(self, schema)
        named = ((name, _whole(each, specs)) for name, each in schema.kwargs_schema.items())
        key = (schema.op, *(_whole(each, specs) for each in schema.args_schema), *named)
        try:
            if key not in known:
                known[key] = told(self, schema)
        except TypeError:  # an argument without a hash
            return describe(self, schema)
        return known[key]

    return described_once


def _whole(value: Any, specs: Any) -> object:
    """Return a key of the part of an argument on which shapes depend; 1, 1.0 and True have different ones."""
    if isinstance(value, specs.DTensorSpec):
        return value.tensor_meta, value.mesh.device_type
    if isinstance(value, (list, tuple)):
        return (type(value), *(_whole(each, specs) for each in value))
    return type(value), value


def _bare(value: Any, specs: Any) -> Any:
    """Return an argument without data."""
    if isinstance(value, specs.DTensorSpec):
        meta = value.tensor_meta
        return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device="meta")
    return type(value)(_bare(each, specs) for each in value) if isinstance(value, (list, tuple)) else value
