"""Changes in modules that load slowly, made when a script has loaded them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any, NoReturn

import torch

from emu.cluster.npu.device_arguments import by_name
from emu.cluster.npu.npu import Node, meaningless_error
from emu.cluster.rank_state.cpu_device import replace_attribute
from emu.cluster.rank_state.rank_state import watch_imports
from emu.errors import RunError

aten = torch.ops.aten


@contextmanager
def deferred_changes(node: Node) -> Iterator[None]:
    """Make the changes in modules that are loaded, and in those that are loaded while the context lasts."""
    with ExitStack() as changes:
        for module in CHANGES.keys() & sys.modules.keys():
            changes.enter_context(CHANGES[module](node))
        with watch_imports(CHANGES, lambda module: changes.enter_context(CHANGES[module](node))):
            yield


@contextmanager
def _fsdp(node: Node) -> Iterator[None]:
    """Let the first FSDP accept the NPU's name as its device."""
    fsdp = sys.modules["torch.distributed.fsdp.fully_sharded_data_parallel"].FullyShardedDataParallel
    with replace_attribute(fsdp, "__init__", by_name(fsdp.__init__, node, "device_id")):
        yield


@contextmanager
def _attention(node: Node) -> Iterator[None]:
    """Let DTensor shard a CPU's attention by batch and by heads, as it does for a GPU."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.experimental import register_sharding

    propagator = DTensor._op_dispatcher.sharding_propagator
    tables: tuple[dict[Any, Any], ...] = (propagator.op_strategy_funcs, propagator.op_to_schema_info)
    before = [dict(table) for table in tables]
    register_sharding(aten._scaled_dot_product_flash_attention_for_cpu.default)(_sharding_rule(2, 3))
    register_sharding(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)(_sharding_rule(3, 6))
    try:
        yield
    finally:
        for table, old in zip(tables, before, strict=True):
            table.clear()
            table.update(old)


@contextmanager
def _rings(node: Node) -> Iterator[None]:
    """Refuse context parallelism, which would gather whole sequences in the wrong order, as CPU attention has no ring."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise RunError(
            "context_parallel: PyTorch has a ring for the attention of GPUs only, and emulated NPUs compute on the CPU; take "
            "`emu train` or `emu estimate` with --plan cp=2, or tensor parallelism with sequences in parts"
        )

    module = sys.modules["torch.distributed.tensor.experimental._context_parallel._attention"]
    with replace_attribute(module, "_enable_context_parallel_dispatcher_impl", refuse):
        yield


@contextmanager
def _extensions(node: Node) -> Iterator[None]:
    """Refuse the script's own CUDA kernels."""
    module = sys.modules["torch.utils.cpp_extension"]
    with ExitStack() as changes:
        for name in ("load", "load_inline"):
            changes.enter_context(replace_attribute(module, name, _without_kernels(getattr(module, name), name)))
        yield


def _without_kernels(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        files = [each for of in (*args, *kwargs.values()) for each in (of if isinstance(of, list) else [of])]
        if kwargs.get("with_cuda") or kwargs.get("cuda_sources") or any(str(each).endswith(".cu") for each in files):
            raise meaningless_error(f"torch.utils.cpp_extension.{name}")
        return original(*args, **kwargs)

    return load


def _sharding_rule(n_outputs: int, n_inputs: int) -> Callable[..., Sequence[Any]]:
    """Return the sharding rule of attention: all tensors whole, or all cut along [batch, heads, ...] in one way."""
    from torch.distributed.tensor import Replicate, Shard

    def placements(*args: Any, attn_mask: Any = None, **kwargs: Any) -> Sequence[Any]:
        numbers = [None] * (len(args) - n_inputs)
        kinds = [Replicate()] if attn_mask is not None else [Replicate(), Shard(0), Shard(1)]
        masks = [Replicate()] if attn_mask is not None else []
        return [([kind] * n_outputs, [*[kind] * n_inputs, *numbers, *masks]) for kind in kinds]

    return placements


CHANGES: dict[str, Callable[[Node], AbstractContextManager[None]]] = {
    "torch.distributed.fsdp.fully_sharded_data_parallel": _fsdp,
    "torch.distributed.tensor": _attention,
    "torch.distributed.tensor.experimental._context_parallel._attention": _rings,
    "torch.utils.cpp_extension": _extensions,
}
