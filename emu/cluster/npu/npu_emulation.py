"""All replacements by which a script finds NPUs while its ranks run, and their removal; or the refusal of NPUs.

The methods of a tensor that copy it to an NPU or back to the host are here; `npu` says when they copy. If autograd records,
nothing is copied, because a parameter must stay the object that its optimizer has. A tensor on the host does not count in the
NPU's memory, and a copy between the two is not in the trace. Changes in modules that load slowly are made once a script has
loaded them.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import handle_torch_function, has_torch_function_unary

from emu.backend.rank.operator_counter import OperatorCounter, current_memory, pause_counting, report_move
from emu.cluster.npu.batch_norm import batch_norm_replacements
from emu.cluster.npu.cuda import cuda_replacements
from emu.cluster.npu.npu import PINNED, Node, Npu, by_name, device_argument_replacements, is_npu, meaningless_error
from emu.cluster.rank_state.rank_state import Replacement, change_modules, replace_attributes
from emu.errors import RunError

aten = torch.ops.aten
_FSDP = "torch.distributed.fsdp.fully_sharded_data_parallel"
_RING = "torch.distributed.tensor.experimental._context_parallel._attention"
_EXTENSION = "torch.utils.cpp_extension"


def _deferred_changes(node: Node) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
    """Return the changes in modules that load slowly, by module."""
    return {
        _FSDP: lambda: _fsdp(node),
        "torch.distributed.tensor": _attention,
        _RING: lambda: replace_attributes((sys.modules[_RING], "_enable_context_parallel_dispatcher_impl", _refuse_rings)),
        _EXTENSION: _extensions,
    }


def _fsdp(node: Node) -> AbstractContextManager[None]:
    """Make FSDP1 accept the NPU's name as its device."""
    fsdp = sys.modules[_FSDP].FullyShardedDataParallel
    return replace_attributes((fsdp, "__init__", by_name(fsdp.__init__, node, "device_id")))


@contextmanager
def _attention() -> Iterator[None]:
    """Make DTensor shard attention on the CPU by batch and by heads, as it does on a GPU."""
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


def _refuse_rings(*_: object, **__: object) -> NoReturn:
    """Raise an error for context parallelism, because CPU attention has no ring implementation."""
    raise RunError(
        "context_parallel: PyTorch has a ring for the attention of GPUs only, and emulated NPUs compute on the CPU; take "
        "`emu train` or `emu estimate` with --plan cp=2, or tensor parallelism with sequences in parts"
    )


def _extensions() -> AbstractContextManager[None]:
    """Refuse the script's own CUDA kernels."""
    module = sys.modules[_EXTENSION]
    return replace_attributes(
        *((module, name, _without_kernels(getattr(module, name), name)) for name in ("load", "load_inline"))
    )


def _without_kernels(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        files = [each for of in (*args, *kwargs.values()) for each in (of if isinstance(of, list) else [of])]
        if kwargs.get("with_cuda") or kwargs.get("cuda_sources") or any(str(each).endswith(".cu") for each in files):
            raise meaningless_error(f"torch.utils.cpp_extension.{name}")
        return original(*args, **kwargs)

    return load


def _sharding_rule(n_outputs: int, n_inputs: int) -> Callable[..., Sequence[Any]]:
    """Return a DTensor sharding rule for attention: all tensors replicated, or all sharded along batch or heads.

    With a mask, all are replicated.
    """
    from torch.distributed.tensor import Replicate, Shard

    def placements(*args: Any, attn_mask: Any = None, **kwargs: Any) -> Sequence[Any]:
        numbers = [None] * (len(args) - n_inputs)
        kinds = [Replicate()] if attn_mask is not None else [Replicate(), Shard(0), Shard(1)]
        masks = [Replicate()] if attn_mask is not None else []
        return [([kind] * n_outputs, [*[kind] * n_inputs, *numbers, *masks]) for kind in kinds]

    return placements


def _tensor_to(original: Callable[..., Tensor], node: Node) -> Callable[..., Tensor]:
    @wraps(original)
    def to(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        device = args[0] if args else kwargs.get("device")
        if type(device) not in (int, str, torch.device):  # a dtype or another tensor
            return original(tensor, *args, **kwargs)
        if args:
            args = (node.host(device), *args[1:])
        else:
            kwargs["device"] = node.host(device)
        return _moved_copy(tensor, original(tensor, *args, **kwargs), type(device) is int or is_npu(device))

    return to


def _cpu(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(original)
    def cpu(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _moved_copy(tensor, original(tensor, *args, **kwargs), to_npu=False)

    return cpu


def _cuda(node: Node) -> Callable[..., Tensor]:
    def cuda(tensor: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        if has_torch_function_unary(tensor):
            return handle_torch_function(cuda, (tensor,), tensor, device, non_blocking, memory_format=memory_format)
        node.index(device)
        how = {} if memory_format is None else {"memory_format": memory_format}
        return _moved_copy(tensor, tensor.contiguous(**how) if how else tensor, to_npu=True)

    return cuda


def _moved_copy(tensor: Tensor, result: Tensor, to_npu: bool) -> Tensor:
    """Return the result of a copy between host and NPU, as a new tensor if PyTorch returned the given one.

    A tensor that is known to be on the target side already is returned as it is.
    """
    if type(result) not in (Tensor, Parameter) or result.requires_grad or _is_there(result, to_npu):
        return result
    if result is tensor:
        with pause_counting():
            result = tensor.clone()
    if to_npu:
        report_move(tensor, result)
    return result


def _is_there(tensor: Tensor, on_npu: bool) -> bool:
    """Return whether a tensor is known to be on the NPU, or else on the host."""
    memory = current_memory()
    if memory is None:
        return False
    return memory.is_named(tensor.untyped_storage()) if on_npu else not memory.names_npu


def _type(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def type_(tensor: Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        dtype = dtype.replace("torch.cuda.", "torch.") if isinstance(dtype, str) else dtype
        return original(tensor, *(() if dtype is None else (dtype, *args)), **kwargs)

    return type_


def _pin(tensor: Tensor, device: Any = None) -> Tensor:
    """Return a copy of a tensor in pinned memory, as if a device could read it directly."""
    if hasattr(tensor, PINNED):
        return tensor
    with pause_counting():
        copy = tensor.detach().clone()
    setattr(copy, PINNED, True)
    return copy


@contextmanager
def emulate_npus(npu: Npu | None, n: int) -> Iterator[None]:
    """Make the name `cuda` stand for one of n NPUs inside the context; if `npu` is None, refuse the name."""
    if npu is None:
        with replace_attributes(*_refusal_replacements()):
            yield
        return
    node = Node(n, npu)
    try:
        with replace_attributes(*_npu_replacements(node)), change_modules(_deferred_changes(node)):
            yield
    finally:
        rules = sys.modules.get("torch._dynamo.trace_rules")
        if rules is not None:  # `torch.compile` has a table of the replaced functions
            rules.clear_lru_cache()


def _npu_replacements(node: Node) -> Iterator[Replacement]:
    yield from device_argument_replacements(node)
    yield Tensor, "to", _tensor_to(Tensor.to, node)
    yield Tensor, "cpu", _cpu(Tensor.cpu)
    yield Tensor, "cuda", _cuda(node)
    yield Tensor, "type", _type(Tensor.type)
    yield Tensor, "pin_memory", _pin
    yield Tensor, "is_pinned", lambda tensor, *_, **__: hasattr(tensor, PINNED)
    yield Tensor, "record_stream", lambda *_, **__: None
    yield torch.UntypedStorage, "cuda", lambda storage, *_, **__: storage
    yield from batch_norm_replacements()
    yield from cuda_replacements(node)
    yield OperatorCounter, "host", staticmethod(node.host)
    yield dist, "is_nccl_available", lambda: True
    yield dist.distributed_c10d, "is_nccl_available", lambda: True


def _refusal_replacements() -> Iterator[Replacement]:
    """Yield replacements that refuse each use of a CUDA device; each has its own function, as torch.compile requires."""

    def refusing() -> Callable[..., NoReturn]:
        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise RunError(
                "cuda: the script asks for a CUDA device, and emulated NPUs compute on the CPU; take torch.device('cpu')"
            )

        return refuse

    yield torch.cuda, "_lazy_init", refusing()
    yield torch.cuda, "set_device", refusing()
    yield torch.cuda, "is_available", lambda: False
    yield torch.cuda, "device_count", lambda: 0
