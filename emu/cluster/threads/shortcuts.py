"""Shortcuts through PyTorch: results that DTensor computes for each rank are computed once for all ranks of a process.

DTensor's own caches distinguish meshes, and the meshes of two ranks are never equal; the cache of shapes here ignores meshes.
The shapes of most results of DTensor's operators are computed without fake tensors.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import unwrap
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.distributed._functional_collectives import _wrap_tensor_autograd
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from emu.backend.rank.operator_counter import pause_counting
from emu.cluster.rank_state.rank_state import replace_attributes

_torch: Any = torch
_DYNAMO, _GUARD = "torch._dynamo", "__dynamo_disable"  # PyTorch's compiler; where a function keeps what it calls instead
_META = "_propagate_tensor_meta_non_cached"


@contextmanager
def share_shapes() -> Iterator[None]:
    """Make DTensor cheaper while the context lasts: no compile guards, cached shapes, and one-step linear layers.

    They have no guard against `torch.compile` and `torch.export`, which here costs more than a DTensor itself. A product with
    its weights is one step of autograd, and the shapes of operators' results are cached.
    """
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is None:  # a script may load it later: it is slower then
        yield
        return
    specs = sys.modules["torch.distributed.tensor._dtensor_spec"]
    propagator = sys.modules["torch.distributed.tensor._sharding_prop"].ShardingPropagator
    from emu.cluster.threads import linear  # it loads DTensor

    with replace_attributes(
        (functional, "linear", linear.one_step_linear(functional.linear)),
        (tensor.DTensor, "__init__", lambda *_, **__: None),
        (propagator, _META, remembered_shapes(getattr(propagator, _META), specs)),
    ):
        yield


def _dynamo_attribute(name: str) -> Any:
    """Return the value of a name in `torch._dynamo`, which is imported for it.

    The name `utils` imports nothing: until something else does, it is a stand-in with the one function that DDP calls.
    """
    if name == "utils" and _DYNAMO not in sys.modules:
        return _UTILS
    return getattr(importlib.import_module(_DYNAMO), name)


# The part of `torch._dynamo.utils` that DDP asks for: it gives the default, which nobody has changed.
_UTILS = SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")


@contextmanager
def drop_guards() -> Iterator[None]:
    """Keep DDP and DTensor from loading PyTorch's compiler while the context lasts.

    Loading it takes as long as many a run.
    """
    guarded = DistributedDataParallel._inside_ddp_forward, *_wrap_tensor_autograd._backend_fns.values()
    unknown = [each for each in map(unwrap, guarded) if not hasattr(each, _GUARD)]
    for each in unknown:
        setattr(each, _GUARD, each)
    if _DYNAMO not in sys.modules:
        _torch._dynamo = ModuleType(_DYNAMO)
        _torch._dynamo.__getattr__ = _dynamo_attribute
    try:
        yield
    finally:
        for each in unknown:
            delattr(each, _GUARD)
        if _DYNAMO not in sys.modules:
            del _torch._dynamo


Describe = Callable[[Any, Any], Any]
_aten = torch.ops.aten


def _table(gradient: torch.Tensor, _: object, rows: int, *__: object) -> torch.Tensor:
    """Return a tensor of the shape of an embedding table's gradient; PyTorch's own function would load its compiler."""
    return gradient.new_empty(rows, gradient.size(-1))


def _empty_sum(a: torch.Tensor, b: Any, **_: object) -> torch.Tensor | None:
    """Return a tensor with the shape of the sum of two tensors of one layout; None for other arguments."""
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
    _aten.add.Tensor: _empty_sum,
    _aten.embedding_dense_backward.default: _table,
}


def remembered_shapes(describe: Describe, specs: Any) -> Describe:
    """Return the replacement of a method of PyTorch that gives the shapes of an operator's results, with a cache.

    PyTorch's own method runs each operator on fake tensors, which takes milliseconds, and the first time loads PyTorch's
    compiler.

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
        named = ((name, _argument_key(each, specs)) for name, each in schema.kwargs_schema.items())
        key = (schema.op, *(_argument_key(each, specs) for each in schema.args_schema), *named)
        try:
            if key not in known:
                known[key] = told(self, schema)
        except TypeError:  # an argument without a hash
            return describe(self, schema)
        return known[key]

    return described_once


def _argument_key(value: Any, specs: Any) -> object:
    """Return a cache key for an argument, complete for the parts that decide result shapes.

    1, 1.0 and True have different keys.
    """
    if isinstance(value, specs.DTensorSpec):
        return value.tensor_meta, value.mesh.device_type
    if isinstance(value, (list, tuple)):
        return (type(value), *(_argument_key(each, specs) for each in value))
    return type(value), value


def _bare(value: Any, specs: Any) -> Any:
    """Return an argument without the data of its tensors."""
    if isinstance(value, specs.DTensorSpec):
        meta = value.tensor_meta
        return torch.empty_strided(meta.shape, meta.stride, dtype=meta.dtype, device="meta")
    return type(value)(_bare(each, specs) for each in value) if isinstance(value, (list, tuple)) else value
