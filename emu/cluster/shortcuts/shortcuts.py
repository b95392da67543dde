"""Shortcuts through PyTorch: DTensor computes once for all ranks of a process what it would compute again for each rank.

Its own caches distinguish meshes, and meshes of two ranks are never equal; the cache of shapes here does not know meshes.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import unwrap
from types import SimpleNamespace
from typing import Any

import torch
from torch.distributed._functional_collectives import _wrap_tensor_autograd
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from emu.cluster.rank_state.replacement import replace_attributes
from emu.cluster.shortcuts.shapes import remembered_shapes

_torch: Any = torch
_DYNAMO, _GUARD = "torch._dynamo", "__dynamo_disable"  # PyTorch's compiler; where a function keeps what it calls instead
_META = "_propagate_tensor_meta_non_cached"


@contextmanager
def share_shapes() -> Iterator[None]:
    """Make a DTensor without its guard against `torch.compile` and `torch.export`, which here costs more than making it.

    A product with its weights is one step of autograd, and the shapes that come out of an operator are known from before.
    """
    tensor = sys.modules.get("torch.distributed.tensor")
    if tensor is None:  # a script may load it later: it is slower then
        yield
        return
    specs = sys.modules["torch.distributed.tensor._dtensor_spec"]
    propagator = sys.modules["torch.distributed.tensor._sharding_prop"].ShardingPropagator
    from emu.cluster.shortcuts import linear  # it loads DTensor

    with replace_attributes(
        (functional, "linear", linear.one_step_linear(functional.linear)),
        (tensor.DTensor, "__init__", lambda *_, **__: None),
        (propagator, _META, remembered_shapes(getattr(propagator, _META), specs)),
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
