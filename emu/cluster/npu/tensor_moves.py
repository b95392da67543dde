"""The methods of a tensor that copy it to an NPU or back to the host.

Where autograd records, nothing is copied, because a parameter must stay the one that its optimizer holds. A tensor on the host
is no part of the NPU's memory, and a copy between them is not in the trace.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.overrides import handle_torch_function, has_torch_function_unary

from emu.backend.rank.count import pause_counting, report_move
from emu.cluster.npu.npu import Node, is_npu
from emu.cluster.process_services import Replacement

_HERE = "_emu_on_npu"  # set on tensors that are on the NPU
_PINNED = "_emu_pinned"


def tensor_move_replacements(node: Node) -> Iterator[Replacement]:
    """Yield the replacements of the methods."""
    yield Tensor, "to", _to(Tensor.to, node)
    yield Tensor, "cpu", _cpu(Tensor.cpu)
    yield Tensor, "cuda", _cuda(node)
    yield Tensor, "type", _type(Tensor.type)
    yield Tensor, "pin_memory", _pin
    yield Tensor, "is_pinned", lambda tensor, *_, **__: hasattr(tensor, _PINNED)
    yield Tensor, "record_stream", lambda *_, **__: None
    yield torch.UntypedStorage, "cuda", lambda storage, *_, **__: storage


def _to(original: Callable[..., Tensor], node: Node) -> Callable[..., Tensor]:
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
    """Return the result, copied if it is the tensor itself and that lay on the other side."""
    if type(result) not in (Tensor, Parameter) or result.requires_grad or (to_npu and hasattr(result, _HERE)):
        return result
    if result is tensor:
        with pause_counting():
            result = tensor.clone()
    if to_npu:
        setattr(result, _HERE, True)
        report_move(tensor, result)
    return result


def _type(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def type_(tensor: Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        dtype = dtype.replace("torch.cuda.", "torch.") if isinstance(dtype, str) else dtype
        return original(tensor, *(() if dtype is None else (dtype, *args)), **kwargs)

    return type_


def _pin(tensor: Tensor, device: Any = None) -> Tensor:
    """Return a copy on the host that a device could read."""
    if hasattr(tensor, _PINNED):
        return tensor
    with pause_counting():
        copy = tensor.detach().clone()
    setattr(copy, _PINNED, True)
    return copy
