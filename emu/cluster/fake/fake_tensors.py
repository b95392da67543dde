"""Tensors without data, for a rank whose model is too large for this machine; shapes, dtypes and lifetimes are real.

Floating-point tensors are fake. Integers, and tensors of no dim, that depend on nothing fake keep their values: meshes,
samplers, tokens, seeds, the buckets of DDP and the step counts of optimizers consist of them, and they are small. A number read
from a fake tensor is unknown: it can be printed and averaged, but no branch can depend on it.
"""

import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.amp import GradScaler
from torch.distributed import distributed_c10d
from torch.distributed.fsdp._fully_shard import _fsdp_param as fsdp_parameter
from torch.distributed.pipelining._utils import InferenceMode
from torch.distributed.pipelining.stage import PipelineStage
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.nn.parallel import distributed as data_parallel
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type

from emu.backend.rank.operator_counter import pause_counting, tensors_in
from emu.cluster.rank_state.rank_state import Replacement, replace_attributes


class UnknownError(Exception):
    """The error that a program needs an unknown number, or the content of a fake tensor."""


class UnknownNumber:
    """An unknown number in place of a `float`."""

    def __format__(self, spec: str) -> str:
        """Return a question mark for every format."""
        return "?"

    def __repr__(self) -> str:
        return "?"

    def _propagate(self, *others: object) -> "UnknownNumber":
        if any(isinstance(other, torch.Tensor) for other in others):
            raise UnknownError("a number of it")
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _propagate
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = __round__ = _propagate

    def _refuse(self, *others: object) -> NoReturn:
        raise UnknownError("a number of it")

    __bool__ = __int__ = __float__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __hash__ = None  # type: ignore[assignment]


aten = torch.ops.aten
_FUNCTIONAL = "_c10d_functional"  # its kernels for fake tensors use no process group
_WHOLE = (
    aten.arange,
    aten.randperm,
    aten.randint,
    aten.tril_indices,
    aten.triu_indices,
)  # operators that make integers unless another dtype is given
_TRACING = "_are_we_tracing"
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


class KnownNumbers(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode above a fake mode: it computes known numbers for real, and lets collectives reach their group.

    Inside `use_fake_tensors`, `item` of a fake floating-point tensor returns an unknown number; other reads are errors.
    """

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake = fake
        self._asks_item = self._answers_unknown = False
        self._unknown: dict[int, weakref.ref[torch.UntypedStorage]] = {}  # by address: real tensors whose content is not known

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: calls need no guard against torch.compile, as in `OperatorCounter`."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented
        kwargs = kwargs or {}
        if func.namespace == _FUNCTIONAL:
            return func.redispatch(_CPU, *args, **kwargs)
        if func is aten._local_scalar_dense.default and FakeTensor in types and self._asks_item:
            self._answers_unknown = True
            return float("nan")
        is_fake = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is self.fake
        if FakeTensor in types or not (is_fake and self._is_known(func, args, kwargs)):
            self._note_written(func, args, kwargs)
            return func(*args, **kwargs)
        with unset_fake_temporarily():
            out = func(*args, **kwargs)
        if isinstance(out, torch.Tensor) and out.dim() and _has_fractions(out.dtype):
            return self.fake.from_tensor(out)
        return out

    def item(self, original: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> Any:
        """Return the number of a one-element tensor, or an unknown number for a fake tensor of floating-point numbers."""
        self._asks_item, self._answers_unknown = tensor.is_floating_point(), False
        try:
            value = original(tensor)
        finally:
            self._asks_item = False
        return UnknownNumber() if self._answers_unknown else value

    def _is_known(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Return whether an operator computes numbers from known numbers only."""
        given = list(tensors_in([*args, *kwargs.values()]))
        if given:
            many = any(t.dim() and _has_fractions(t.dtype) for t in given)
            return not many and not any(t.is_meta or _address(t) in self._unknown for t in given)
        device, dtype = kwargs.get("device"), kwargs.get("dtype")
        if device is not None and torch.device(device).type == "meta":
            return False
        if dtype is None:
            return func.overloadpacket in _WHOLE and not any(isinstance(each, float) for each in args)
        return not _has_fractions(dtype)

    def _note_written(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Forget the known numbers of all tensors that an operator writes in place.

        A fake tensor has a shape but no data; some have known numbers beside it.
        """
        if not func._schema.is_mutable:
            return
        named = {**dict(zip((a.name for a in func._schema.arguments), args, strict=False)), **kwargs}
        written = (a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write)
        self.forget(tensors_in([named[name] for name in written if name in named]))

    def forget(self, tensors: Iterable[torch.Tensor]) -> None:
        """Mark the numbers of tensors as unknown from now on."""
        for tensor in tensors:
            if not isinstance(tensor, FakeTensor) and tensor.layout == torch.strided:
                address = _address(tensor)
                self._unknown[address] = weakref.ref(tensor.untyped_storage(), partial(self._gone, address))

    def _gone(self, address: int, _: object) -> None:
        self._unknown.pop(address, None)


def _has_fractions(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else 0


@contextmanager
def use_fake_tensors(numbers: KnownNumbers) -> Iterator[None]:
    """Make all tensors of this thread fake, except known numbers, while the context lasts."""
    with replace_attributes(*_replacements(numbers)), numbers.fake, numbers:
        yield


def _replacements(numbers: KnownNumbers) -> Iterator[Replacement]:
    """Yield the replacements of PyTorch functions that read the data of tensors, or that make an object for each rank."""
    read_item = torch.Tensor.item
    yield torch.Tensor, "item", lambda tensor: numbers.item(read_item, tensor)
    yield torch.Tensor, "numpy", _numpy(torch.Tensor.numpy)
    yield fsdp_parameter, "_chunk_with_empty", RankChunks
    yield data_parallel, "_verify_param_shape_across_processes", lambda *_: True
    propagate = ShardingPropagator._propagate_tensor_meta_non_cached

    def propagate_uncounted(*args: Any) -> Any:  # it works on the shapes of all ranks together, which is no rank's work
        with pause_counting():
            return propagate(*args)

    yield ShardingPropagator, "_propagate_tensor_meta_non_cached", propagate_uncounted
    # With fake tensors PyTorch assumes that it compiles: it waits earlier, and caches nothing.
    for module in [m for name, m in sys.modules.items() if name.startswith("torch.distributed.")]:
        if _TRACING in vars(module):
            yield module, _TRACING, lambda: False
    for name in ("_object_to_tensor", "_tensor_to_object"):
        yield distributed_c10d, name, _with_data(getattr(distributed_c10d, name))
    yield PipelineStage, "_warmup_forward_vote", _own_vote
    yield PipelineStage, "_warmup_backward_result", lambda _, received_result: received_result
    yield GradScaler, "_maybe_opt_step", _step_without_overflow
    yield FakeTensor, "__reduce_ex__", _refuse_to_pickle
    yield FakeTensor, "__deepcopy__", _copy


def _numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the replacement of `Tensor.numpy`, which refuses fake tensors."""

    def array(tensor: torch.Tensor, **how: Any) -> Any:
        if isinstance(tensor, FakeTensor):
            raise UnknownError("Tensor.numpy")
        return original(tensor, **how)

    return array


def _step_without_overflow(_: object, optimizer: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    """Run an optimizer step, on the assumption that no gradient has overflowed."""
    for found in state["found_inf_per_device"].values():
        found.item()
    return optimizer.step(*args, **kwargs)


def _copy(tensor: FakeTensor, memo: dict[int, Any]) -> torch.Tensor:
    """Return a copy of a fake tensor; PyTorch asks for the address of its data, and warns of that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor is deprecated")
        copied: torch.Tensor = torch.Tensor.__deepcopy__(tensor, memo)  # type: ignore[no-untyped-call]
    return copied


def _refuse_to_pickle(*_: object) -> NoReturn:
    raise UnknownError("all of it, to save or send it")


def _with_data(original: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return original(*args, **kwargs)

    return called


def _own_vote(stage: Any, has_backward: bool, received_acc: object = None) -> torch.Tensor:
    """Return this stage's vote as one element: 1 if the user gave all its shapes, 0 if PyTorch must find them by a run.

    PyTorch multiplies the votes of all stages; here the others are assumed to vote the same.

    Args:
        stage: PyTorch's pipeline stage.
        has_backward: Whether the schedule has backward passes.
        received_acc: Not used: the product of the votes of the stages before.
    """
    return torch.tensor([0 if InferenceMode.needs_dynamic(stage._user_meta, has_backward) else 1], dtype=torch.int32)


class RankChunks:
    """A lazy list of one view for each rank, in place of FSDP2's list; a view is created when it is read."""

    def __init__(self, tensor: torch.Tensor, n: int, dim: int) -> None:
        self._tensor, self._dim, self._size = tensor, dim, -(-tensor.size(dim) // n)

    def __getitem__(self, at: int) -> torch.Tensor:
        first, whole = at * self._size, self._tensor.size(self._dim)
        if first >= whole:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, first, min(self._size, whole - first))
