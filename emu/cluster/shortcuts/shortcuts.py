"""Shortcuts through PyTorch: DTensor works out once for all ranks of a process what it works out again for each rank.

Its own caches tell meshes apart, and meshes of two ranks are never equal; what is kept here knows no mesh.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import unwrap
from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed._functional_collectives import _wrap_tensor_autograd
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from emu.cluster.rank_state.replacement import replace_attributes
from emu.cluster.shortcuts.shapes import described

_torch: Any = torch
_GIVEN = frozenset({"mesh", "placements", "tensor_meta"})  # of a DTensorSpec
_DYNAMO, _GUARD = "torch._dynamo", "__dynamo_disable"  # PyTorch's compiler; where a function keeps what it calls instead
_META = "_propagate_tensor_meta_non_cached"
_FLAG = "_propagate_use_strided_shard_flag"


@contextmanager
def share_shapes() -> Iterator[None]:
    """Make a DTensor without its guard against `torch.compile` and `torch.export`, which here costs more than making it.

    A product with its weights is one step of autograd. And what follows from placements, and from the shapes that an operator
    is given, is known from before.
    """
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is None:  # a script may load it later: it is slower then
        yield
        return
    specs = sys.modules["torch.distributed.tensor._dtensor_spec"]
    rules = sys.modules["torch.distributed.tensor._sharding_prop"]
    propagator = rules.ShardingPropagator
    from emu.cluster.shortcuts import linear  # it loads DTensor

    with replace_attributes(
        (functional, "linear", linear.products(functional.linear)),
        (tensor.DTensor, "__init__", lambda *_, **__: None),
        (specs.DTensorSpec, "__init__", _specify(specs)),
        (rules, _FLAG, _flagged(getattr(rules, _FLAG))),
        (propagator, _META, described(getattr(propagator, _META), specs)),
    ):
        yield


class _DynamoStandIn:
    """A stand-in for `torch._dynamo` until something imports it: it answers DDP as that would."""

    def __getattr__(self, name: str) -> Any:
        if name == "utils" and _DYNAMO not in sys.modules:
            return _UTILS
        return getattr(importlib.import_module(_DYNAMO), name)


# The part of `torch._dynamo.utils` that DDP asks for: it gives the default, which nobody has changed.
_UTILS = SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer")


@contextmanager
def drop_guards() -> Iterator[None]:
    """Keep DDP and DTensor from loading PyTorch's compiler to tell it what to leave alone: that takes as long as many a run."""
    guarded = DistributedDataParallel._inside_ddp_forward, *_wrap_tensor_autograd._backend_fns.values()
    unknown = [each for each in map(unwrap, guarded) if not hasattr(each, _GUARD)]
    for each in unknown:
        setattr(each, _GUARD, each)
    if _DYNAMO not in sys.modules:
        _torch._dynamo = _DynamoStandIn()
    try:
        yield
    finally:
        for each in unknown:
            delattr(each, _GUARD)
        if _DYNAMO not in sys.modules:
            del _torch._dynamo


def _specify(specs: Any) -> Callable[..., None]:
    """Return what makes a `DTensorSpec` as PyTorch does, and as before where the same placements were there before."""
    init, metas = specs.DTensorSpec.__init__, (specs.TensorMeta, type(None))
    known: dict[object, dict[str, Any]] = {}  # what follows from placements

    def specify(self: Any, mesh: Any, placements: Any, tensor_meta: Any = None, *order: Any, **told: Any) -> None:
        if order or type(placements) is not tuple or type(tensor_meta) not in metas or told.get("shard_order") is not None:
            init(self, mesh, placements, tensor_meta, *order, **told)
            return
        key = (placements, *map(type, placements), told.get("use_strided_shard_as_shard_order"))
        if key not in known:
            init(self, mesh, placements, tensor_meta, **told)
            known[key] = {name: self.__dict__[name] for name in self.__dict__.keys() - _GIVEN}
        self.__dict__.update(known[key], mesh=mesh, placements=placements, tensor_meta=tensor_meta)

    return specify


def _flagged(flag: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return what looks once at inputs that are alike: PyTorch looks at all for each, a million times in a step."""
    last: list[tuple[Any, SimpleNamespace]] = []  # the operator that was asked about last, and its inputs that differ

    def flagged(strategy: Any, schema: Any) -> None:
        if not last or last[0][0] is not schema:
            specs = {(spec.placements, spec.use_strided_shard_as_shard_order): spec for spec in schema.args_spec}
            last[:] = [(schema, SimpleNamespace(args_spec=(*specs.values(),)))]
        flag(strategy, last[0][1])

    return flagged
