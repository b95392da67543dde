"""PyTorch's functions that take a device: each as before, but that the name of an NPU means the CPU."""

from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils._device import DeviceContext, _device_constructors

from emu.cluster.npu.npu import CPU, NAME, Node, is_npu
from emu.cluster.once import Replacement
from emu.errors import RunError

_SPACES: tuple[Any, ...] = (torch, torch.fft, torch.nested)
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")
_native: Any = torch._C
# Whose, its name, and the place and name of the argument that is a device.
_ARGUMENTS: tuple[tuple[Any, str, int, str], ...] = (
    (DeviceContext, "__init__", 1, "device"),  # of `with torch.device(...)` and `torch.set_default_device`
    (DeviceMesh, "__init__", 1, "device_type"),
    (torch.nn.Module, "to_empty", 1, "device"),
    (_native._nn, "_parse_to", 0, "device"),  # of `Module.to`
    (torch, "set_autocast_enabled", 0, "device_type"),
    (torch.amp, "custom_fwd", 1, "device_type"),
    (torch.amp, "custom_bwd", 1, "device_type"),
    (torch.UntypedStorage, "to", 1, "device"),
)


def takes(node: Node) -> Iterator[Replacement]:
    """What is to be replaced."""
    for space in _SPACES:
        for name in [n for n, each in vars(space).items() if n in _LIKE or _is_constructor(each)]:
            yield space, name, Constructor(space.__name__, name, getattr(space, name), node)
    for name in _NEW:
        yield Tensor, name, by_name(getattr(Tensor, name), node)
    for where, name, at, argument in _ARGUMENTS:
        yield where, name, _at(getattr(where, name), at, argument, node)
    yield torch, "load", _loads(torch.load, node)
    yield torch, "is_autocast_enabled", _is_autocast(torch.is_autocast_enabled)
    yield torch, "get_autocast_dtype", _autocast_dtype(torch.get_autocast_dtype)
    yield torch, "get_autocast_gpu_dtype", partial(_autocast_dtype(torch.get_autocast_dtype), NAME)
    yield torch, "Generator", _generators(torch.Generator, node)
    yield torch.autocast, "__init__", _autocast(torch.autocast.__init__)
    yield torch.amp.GradScaler, "__init__", _scaler(torch.amp.GradScaler.__init__)
    yield DistributedDataParallel, "__init__", _on_no_device(DistributedDataParallel.__init__)
    yield DataParallel, "__init__", _on_one_device(DataParallel.__init__, node)


def _is_constructor(each: Any) -> bool:
    return callable(each) and each in _device_constructors()


class Constructor:
    """A function that makes tensors, equal to PyTorch's own: who keeps a table of functions finds either by the other.

    Args:
        module: Where it is, and pickle finds it.
        name: In there.
        original: PyTorch's own.
        node: Whose devices are named.
    """

    def __init__(self, module: str, name: str, original: Callable[..., Any], node: Node) -> None:
        self.__module__, self.__name__, self.__qualname__ = module, name, name
        self.__doc__ = original.__doc__
        self._original, self._node = original, node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make a tensor; its device is a keyword."""
        if has_torch_function(args):  # who is to be asked first is told this function, and compares it with the one in PyTorch
            return handle_torch_function(self, args, *args, **kwargs)
        if kwargs.get("device") is not None:
            kwargs["device"] = self._node.host(kwargs["device"])
        return self._original(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self is other or self._original is other

    def __hash__(self) -> int:
        return hash(self._original)

    def __reduce__(self) -> str:
        return self.__name__


def by_name(original: Callable[..., Any], node: Node, argument: str = "device") -> Callable[..., Any]:
    """A function whose device is a keyword."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get(argument) is not None:
            kwargs[argument] = node.host(kwargs[argument])
        return original(*args, **kwargs)

    return call


def _at(original: Callable[..., Any], at: int, argument: str, node: Node) -> Callable[..., Any]:
    """A function whose device has a place among the arguments; a text stays one."""

    def host(device: Any) -> Any:
        return node.host(device).type if isinstance(device, str) and is_npu(device) else node.host(device)

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > at:
            args = (*args[:at], host(args[at]), *args[at + 1 :])
        elif argument in kwargs:
            kwargs[argument] = host(kwargs[argument])
        return original(*args, **kwargs)

    return call


def _loads(original: Callable[..., Any], node: Node) -> Callable[..., Any]:
    """`torch.load`: where to, for all or by where it was."""

    @wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = {was: node.host(to) for was, to in map_location.items()}
        return original(f, node.host(map_location), *args, **kwargs)

    return load


def _generators(original: Any, node: Node) -> Any:
    """`torch.Generator`, which is asked, too, whether something is one."""

    class Named(type):
        def __call__(cls, device: Any = CPU) -> Any:
            return original(node.host(device))

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

    return Named("Generator", (), {"__doc__": original.__doc__, "__module__": torch.__name__})


def _is_autocast(original: Callable[..., bool]) -> Callable[..., bool]:
    """Of a GPU if no device is named."""

    @wraps(original)
    def is_autocast_enabled(device_type: str = NAME) -> bool:
        return original(CPU.type if is_npu(device_type) else device_type)

    return is_autocast_enabled


def _autocast_dtype(original: Callable[..., torch.dtype]) -> Callable[..., torch.dtype]:
    """Of a GPU that of its autocast, which here is a CPU's; where there is none, a GPU's."""

    @wraps(original)
    def get_autocast_dtype(device_type: str) -> torch.dtype:
        return original(CPU.type if is_npu(device_type) and torch.is_autocast_enabled(CPU.type) else device_type)

    return get_autocast_dtype


def _autocast(original: Callable[..., None]) -> Callable[..., None]:
    """Of a GPU float16, unless another dtype is asked for."""

    @wraps(original)
    def autocast(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if is_npu(device_type):
            device_type, dtype = CPU.type, dtype or torch.get_autocast_dtype(device_type)
        original(self, device_type, dtype, *args, **kwargs)

    return autocast


def _scaler(original: Callable[..., None]) -> Callable[..., None]:
    """Which is a GPU's if nothing else is said."""

    @wraps(original)
    def scaler(self: Any, device: str = CPU.type, *args: Any, **kwargs: Any) -> None:
        original(self, CPU.type if is_npu(device) else device, *args, **kwargs)

    return scaler


def _on_no_device(original: Callable[..., None]) -> Callable[..., None]:
    """DDP takes no number of a device where the module lies on the CPU."""

    @wraps(original)
    def wrapped(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any) -> None:
        original(self, module, None, None, *args, **kwargs)

    return wrapped


def _on_one_device(original: Callable[..., None], node: Node) -> Callable[..., None]:
    """`torch.nn.DataParallel` on one device is the module itself, as PyTorch has it where there is none."""

    @wraps(original)
    def wrapped(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        named = range(node.n) if device_ids is None else device_ids
        if len(named) > 1:
            raise RunError(
                f"cuda: torch.nn.DataParallel has a process compute on {len(named)} devices, and a rank has one; take "
                f"torch.nn.parallel.DistributedDataParallel, or device_ids=[rank]"
            )
        torch.nn.Module.__init__(self)
        self.module, self.device_ids, self.dim = module, [], dim

    return wrapped
