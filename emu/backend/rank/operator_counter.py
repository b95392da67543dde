"""The count of a rank's computations: FLOPs, bytes and elements of each operator, and the live storage.

A dispatch mode sees every operator of its thread, forward and backward, after autograd and after DTensor: local tensors only.
FLOPs are those of matrix products and attention as executed: a causal mask halves nothing. All other operators count as bytes.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    is_traceable_wrapper_subclass,
    is_traceable_wrapper_subclass_type,
)

from emu.backend.rank.products import ADD_ROWS, flops_of, product_dtype, shape_of
from emu.backend.rank.rank_memory import WEIGHTS, Memory
from emu.trace.kernel_shape import MOVES, Shape

Tensor = torch.Tensor
aten = torch.ops.aten
_DEVICE = torch.ops.prim.device.default
_mode, _FAKE, _STRIDED = torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.FAKE, torch.strided
_HOLD_TENSORS = (list, tuple, dict)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator that ran, with its FLOPs, memory traffic and shape."""

    name: str  # e.g. "aten.mm"
    dtype: str  # the dtype of its computation, see `product_dtype`
    flops: int
    bytes: int  # bytes that it reads and writes
    count: int  # the elements of `dtype` in these bytes
    shape: Shape = MOVES


# Facts that no schema states: operators that only overwrite, that need a tensor's shape alone, or that only allocate.
_OVERWRITES = frozenset(
    {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "index_copy_", "index_fill_"}
    | {"scatter_", "_foreach_copy_", "_foreach_zero_"}
)
_ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})
_SHAPES = frozenset({"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_full"})
_SHAPES_BACKWARD = frozenset({"nll_loss_backward", "nll_loss2d_backward"})  # operators of which the shape of `self` counts
_NO_WORK = frozenset({"c10d", "_c10d_functional", "c10d_functional", "_dtensor", "profiler", "prim", "prims"})


def _written_to(table: Tensor, indices: Sequence[Tensor | None]) -> int:
    """Return the number of table elements that indices select; a mask counts as all elements."""
    chosen = [i.shape for i in indices if i is not None]
    rest = [size for size, i in itertools.zip_longest(table.shape, indices) if i is None]
    return math.prod(np.broadcast_shapes(*chosen)) * math.prod(rest)


# Operators that read or write only some elements of their first tensor: the number of these, by the arguments. None:
# as many bytes as the results have.
_LOOKED_UP: Mapping[str, Callable[[Mapping[str, Any]], int] | None] = {
    **dict.fromkeys(("embedding", "index_select", "gather", "index", "take")),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), lambda a: a["target"].numel()),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), lambda a: a["indices"].numel() * a["weight"].size(1)),
    **dict.fromkeys(("scatter_", "scatter_add_", "scatter_reduce_"), lambda a: a["index"].numel()),
    **dict.fromkeys(("index_add_", "index_copy_"), lambda a: a["source"].numel()),
    "index_fill_": lambda a: a["index"].numel() * (a["self"].numel() // a["self"].size(a["dim"])),
    "index_put_": lambda a: _written_to(a["self"], a["indices"]),
}


# Operators that fill a part of an argument and give that part back first, though their schema says neither.
_FILLED = {"all_gather_copy_in": "all_gather_output"}  # operators of FSDP2, and the result that each fills


@dataclass(frozen=True, slots=True)
class _Kind:
    """The rules by which an operator is counted, computed once for each operator.

    They say how its FLOPs are computed, which arguments it reads and writes, and whether it reads only a part of a table.
    """

    name: str
    reported: bool
    func: OpOverload  # a reference, so that no other object gets its identity
    packet: object  # the operator in all its overloads
    composite: bool  # whether it must be decomposed first (in inference mode nothing else does that)
    flops: Callable[..., int] | None
    adds: bool  # True if it adds rows to rows that may repeat
    unread: frozenset[str]  # arguments that it only overwrites, or whose shape alone it needs
    writes: frozenset[str]  # arguments that it writes to
    order: tuple[str, ...]
    looked_up: str  # the argument of which only a part is read or written
    elements: Callable[[Mapping[str, Any]], int] | None  # the elements of that part; None: as many bytes as the results have
    fills: bool  # True if it fills its first result, see `_FILLED`


_KINDS: dict[int, _Kind] = {}  # by the operator's identity, as its hash is computed in Python


def _kind(func: OpOverload) -> _Kind:
    """Return the counting rules of an operator, and cache them."""
    schema, packet = func._schema, func.overloadpacket
    base, arguments = packet.__name__, schema.arguments
    writes = {a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write}
    unread = {a.name for a in arguments if a.is_out or base in _SHAPES or (a.name in writes and base in _OVERWRITES)}
    unread.update({"self"} if base in _SHAPES_BACKWARD else (), {_FILLED[base]} if base in _FILLED else ())
    if base.startswith("_fused_"):  # a fused optimizer declares that it writes the gradients: only to unscale them
        writes.discard("grads")
    aliases = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    kind = _KINDS[id(func)] = _Kind(
        name=f"{func.namespace}.{base}",
        reported=not aliases and func.namespace not in _NO_WORK and base not in _ALLOCATIONS,
        func=func,
        packet=packet,
        composite=_is_composite(func),
        flops=flops_of(func),
        adds=base in ADD_ROWS,
        unread=frozenset(unread),
        writes=frozenset(writes),
        order=tuple(a.name for a in arguments),
        looked_up=arguments[0].name if base in _LOOKED_UP else "",
        elements=_LOOKED_UP.get(base),
        fills=base in _FILLED,
    )
    return kind


def _is_composite(func: OpOverload) -> bool:
    """Return whether an operator only calls other operators and has no kernel of its own."""
    if func.namespace in _NO_WORK or not func._can_decompose():
        return False
    return not torch._C._dispatch_has_kernel_for_dispatch_key(func._name, "CPU")


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yield the tensors in lists, tuples, and values of mappings, however deep."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in([*value.values()])


def _local(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the plain tensors inside a wrapper such as DTensor, or the tensor itself."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        inner = [getattr(tensor, name) for name in names]  # a mesh may be among them
        for each in (t for t in inner if isinstance(t, Tensor)):
            yield from _local(each)
    else:
        yield tensor


def _fake_mode() -> bool:
    return _mode(_FAKE) is not None


_TensorEntry = tuple[torch.dtype, int, int]  # dtype, bytes, and address of the storage (0: none) of a tensor


def _tensor_entry(tensor: Tensor) -> _TensorEntry:
    """Return the dtype, the bytes and the address of the storage of an operator's input or output."""
    if tensor.layout != _STRIDED:
        return tensor.dtype, tensor.numel() * tensor.itemsize, 0
    storage = tensor.untyped_storage()
    return tensor.dtype, min(tensor.nbytes, storage.nbytes()), storage._cdata  # an expanded tensor is read once


class OperatorCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that calls `sink` for every operator of this thread that does work, and counts live storage.

    There is one mode for each thread of a rank, entered on that thread. A view costs nothing and is not reported; communication
    is not work.

    Args:
        sink: A function that gets each operator.
        memory: The account of the rank's storage, if other threads of the rank count too; None: a new one.

    Raises:
        RunError: from inside the program, an operator multiplies matrices and no formula for its FLOPs is known.
    """

    host: Callable[[Any], Any] | None = (
        None  # maps a device that the program names to the device that holds its data; None: the named one
    )

    def __init__(self, sink: Callable[[Operator], None], memory: Memory | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = Memory() if memory is None else memory
        self._sink = sink
        self._fake = False
        self._paused = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that calls have no guard against `torch.compile`: nothing is compiled while a mode is set."""
        return False

    def __enter__(self) -> "OperatorCounter":
        self._fake = _fake_mode()
        return super().__enter__()  # type: ignore[no-any-return, no-untyped-call]

    def track(self, tensors: Iterable[Tensor]) -> None:
        """Count the storage of existing weights as live from now on."""
        weights = list(tensors)
        for local in chain.from_iterable(map(_local, weights)):
            self._hold(local)
        self.mark(weights, WEIGHTS)

    def mark(self, tensors: Iterable[Tensor], part: int) -> None:
        """Set the part of memory, an index into PARTS such as weights, to which the storage of tensors belongs."""
        for local in chain.from_iterable(map(_local, tensors)):
            if local.layout == torch.strided:
                self.memory.mark(local.untyped_storage(), part)

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _DEVICE:  # a fake tensor asks for it as often as it runs operators
            return args[0].device
        # A DTensor answers first, and its local operators come here again: else global FLOPs would be counted.
        if types and any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented
        kwargs = kwargs or {}
        if "device" in kwargs and self.host is not None:
            kwargs = {**kwargs, "device": self.host(kwargs["device"])}  # TorchScript asks for operators itself
        if self._paused or (not self._fake and _fake_mode()):  # the first time, DTensor runs an operator on shapes alone
            return func(*args, **kwargs)
        kind = _KINDS.get(id(func)) or _kind(func)
        if kind.composite:
            with self:
                return func.decompose(*args, **kwargs)
        out = func(*args, **kwargs)
        made = [out] if isinstance(out, Tensor) else list(tensors_in(out))
        for tensor in made:
            self._hold(tensor)
        if kind.reported:
            self._report(kind, args, kwargs, out, made)
        return out

    def _report(self, kind: _Kind, args: tuple[Any, ...], kwargs: dict[str, Any], out: object, made: list[Tensor]) -> None:
        read: list[tuple[str, _TensorEntry]] = []
        for name, value in (*zip(kind.order, args, strict=False), *kwargs.items()):
            if isinstance(value, Tensor):
                read.append((name, _tensor_entry(value)))
            elif isinstance(value, _HOLD_TENSORS):
                read += [(name, _tensor_entry(t)) for t in tensors_in(value)]
        known = {storage for _, (_, _, storage) in read}
        results = [_tensor_entry(t) for t in made]
        fresh = results[:1] if kind.fills else [each for each in results if not each[2] or each[2] not in known]
        if made and not fresh and not kind.writes:
            return  # a view that the schema does not call one
        traffic = [(dtype, size) for dtype, size, _ in fresh]
        looked_up = _looked_up(kind, _by_name(kind, args, kwargs), fresh) if kind.looked_up else 0
        for name, (dtype, size, _) in read:
            moved = dtype, (min(size, looked_up) if name == kind.looked_up else size)
            if name not in kind.unread:
                traffic.append(moved)
            if name in kind.writes:
                traffic.append(moved)
        flops = kind.flops(*args, **kwargs, out_val=out) if kind.flops else 0
        shape = shape_of(kind.packet, _by_name(kind, args, kwargs)) if flops or kind.adds else MOVES
        self._sink(_operator(kind, traffic, [*results, *(each for _, each in read)], flops, shape))

    def _hold(self, tensor: Tensor) -> None:
        """Count the storage of a tensor (for a wrapper, of its inner tensors) as live."""
        if type(tensor) is not Tensor and is_traceable_wrapper_subclass(tensor):
            for local in _local(tensor):
                self._hold(local)
        elif tensor.layout == torch.strided:
            self.memory.hold(tensor.untyped_storage())


def _looked_up(kind: _Kind, named: Mapping[str, Any], fresh: Sequence[_TensorEntry]) -> int:
    """Return the bytes of a table that an operator reads or writes, if it uses only part of it.

    Args:
        kind: The rules of the operator.
        named: Its arguments by name.
        fresh: Its results.
    """
    if kind.elements is None:
        return sum(size for _, size, _ in fresh)
    return kind.elements(named) * int(named[kind.looked_up].itemsize)


def _by_name(kind: _Kind, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operator, positional ones too, by their names."""
    return {**dict(zip(kind.order, args, strict=False)), **kwargs}


def _operator(
    kind: _Kind, traffic: Sequence[tuple[torch.dtype, int]], seen: Sequence[_TensorEntry], flops: int, shape: Shape
) -> Operator:
    dtype = _main_dtype(seen)
    moved = of_dtype = 0
    for of, size in traffic:  # every operator comes here, and a sum() over a generator is slower
        moved += size
        if of is dtype:
            of_dtype += size
    return Operator(kind.name, product_dtype(dtype, kind.name, shape), flops, moved, of_dtype // dtype.itemsize, shape)


def _main_dtype(seen: Sequence[_TensorEntry]) -> torch.dtype:
    """Return the first floating-point dtype among some tensors, or the first dtype if there is none; uint8 without tensors."""
    for dtype, _, _ in seen:
        if dtype.is_floating_point:
            return dtype
    return seen[0][0] if seen else torch.uint8


def report_resize(storage: torch.UntypedStorage) -> None:
    """Tell the counting modes of this thread that a storage was resized."""
    for memory in _memories():
        memory.resized(storage)


def _memories() -> Iterator[Memory]:
    return (mode.memory for mode in _get_current_dispatch_mode_stack() if isinstance(mode, OperatorCounter))


def report_move(source: Tensor, copy: Tensor) -> None:
    """Tell the counting modes of this thread that a tensor was copied from the host to the NPU."""
    for memory in _memories():
        memory.leave(source.untyped_storage())
        memory.hold(copy.untyped_storage()).named = True


def current_memory() -> Memory | None:
    """Return the memory account of this thread; None if the thread is not counted."""
    return next(_memories(), None)


def track(tensors: Iterable[Tensor]) -> None:
    """Count tensors of this thread that were created while its counting was paused."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, OperatorCounter):
            mode.track(tensors)


def pause_counting() -> AbstractContextManager[None]:
    """Return a context in which this thread counts no FLOPs and no bytes, for work that does not belong to a rank."""
    if _fake_mode():
        return suspend_counting()
    guard: AbstractContextManager[None] = torch._C._DisableTorchDispatch()
    return guard


@contextmanager
def suspend_counting() -> Iterator[None]:
    """Pause the counting modes of this thread while the context lasts; other modes stay on."""
    modes = [mode for mode in _get_current_dispatch_mode_stack() if isinstance(mode, OperatorCounter) and not mode._paused]
    for mode in modes:
        mode._paused = True
    try:
        yield
    finally:
        for mode in modes:
            mode._paused = False
