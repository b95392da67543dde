"""The emulated device (NPU) that a script sees as `cuda`, and the PyTorch functions that take a device.

Each rank has one emulated device. The name is translated where it enters PyTorch, and a tensor shows where it really is:
`torch.device("cuda", 0)` is PyTorch's own object, but a tensor or a module that is put or made there is on the CPU; its
`device` is `cpu` and its `is_cuda` False, as for meshes. So PyTorch and libraries take the path of a CPU, which works here, and
not that of a GPU, which would fail at the first kernel. `x.to("cuda")` and `x.cpu()` return a copy of x, as between a host and
its device; a tensor that is known to be there already is returned as it is. It is known of storage that was made or put on an
NPU by its name, and of all tensors of a rank that has named no NPU yet. It is not known of what is computed.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.overrides import handle_torch_function, has_torch_function
from torch.utils._device import DeviceContext, _device_constructors

from emu.backend.rank.operator_counter import current_memory
from emu.cluster.rank_state.rank_state import Replacement
from emu.errors import RunError

NAME = "cuda"
CPU = torch.device("cpu")
PINNED = "_emu_pinned"  # set on tensors in pinned memory of the host


@dataclass(frozen=True, slots=True)
class Npu:
    """The properties of every rank's device that a script can query.

    Args:
        name: The name of the device.
        memory_bytes: Its memory in bytes; 0: not known.
        capability: CUDA's compute capability; for a device that is no GPU the first with bfloat16, so that no library looks for
            kernels of its own.
        cores: The number of its cores; 0: not known.
    """

    name: str = "npu"
    memory_bytes: int = 0
    capability: tuple[int, int] = (8, 0)
    cores: int = 0


UNNAMED = Npu()


class Node(threading.local):
    """The NPUs that a rank sees, one for each rank; each thread has a current one, at first NPU 0.

    Args:
        n: The number of NPUs.
        npu: The kind of each NPU.
    """

    def __init__(self, n: int, npu: Npu) -> None:
        self.n, self.npu = n, npu
        self.current = 0  # the number of this thread's current NPU

    def index(self, device: Any = None) -> int:
        """Return the number of a device; that of the current device if none is given, or one without a number.

        Raises:
            RunError: another kind of device, or no NPU of this number.
        """
        if (memory := current_memory()) is not None:
            memory.names_npu = True
        if device is None:
            return self.current
        if isinstance(device, int):
            found: int | None = self.current if device < 0 else device
        else:
            of = torch.device(device)
            if of.type != NAME:
                raise RunError(f"cuda: {device} is no CUDA device; name one as torch.device('cuda', 0)")
            found = of.index
        if found is not None and found >= self.n:
            raise RunError(f"cuda: the script asks for device {found}, and there are {self.n}, one for each rank; count from 0")
        return self.current if found is None else found

    def host(self, device: Any) -> Any:
        """Return the device that really holds the data: the CPU for a CUDA device, else the named device.

        Raises:
            RunError: a CUDA device that does not exist.
        """
        if type(device) is int or is_npu(device):
            self.index(device)
            return CPU
        return device


def is_npu(device: Any) -> bool:
    """Return whether a device, or its name, is a CUDA device, which here stands for an NPU."""
    if isinstance(device, str):
        return device == NAME or device.startswith(f"{NAME}:")
    return isinstance(device, torch.device) and device.type == NAME


def meaningless_error(name: str) -> RunError:
    """Return the error for a function that only a GPU can do."""
    return RunError(f"cuda: {name} has no meaning on an emulated NPU, which computes on the CPU; leave it out")


_SPACES: tuple[Any, ...] = (torch, torch.fft, torch.nested)
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
_NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros")
_native: Any = torch._C
# The owner and name of a function, the place and name of its argument that is a device, and its default, if that is an NPU.
_ARGUMENTS: tuple[tuple[Any, str, int, str, *tuple[str, ...]], ...] = (
    (DeviceContext, "__init__", 1, "device"),  # for `with torch.device(...)` and `torch.set_default_device`
    (DeviceMesh, "__init__", 1, "device_type"),
    (torch.nn.Module, "to_empty", 1, "device"),
    (_native._nn, "_parse_to", 0, "device"),  # for `Module.to`
    (torch, "set_autocast_enabled", 0, "device_type"),
    (torch.amp, "custom_fwd", 1, "device_type"),
    (torch.amp, "custom_bwd", 1, "device_type"),
    (torch.UntypedStorage, "to", 1, "device"),
    (torch, "is_autocast_enabled", 0, "device_type", NAME),
    (torch.amp.GradScaler, "__init__", 1, "device", NAME),
)


def device_argument_replacements(node: Node) -> Iterator[Replacement]:
    """Yield the replacements of PyTorch's functions that take a device."""
    for space in _SPACES:
        for name in [n for n, each in vars(space).items() if n in _LIKE or (callable(each) and each in _device_constructors())]:
            yield space, name, Constructor(space.__name__, name, getattr(space, name), node)
    for name in _NEW:
        yield Tensor, name, by_name(getattr(Tensor, name), node)
    for where, name, at, argument, *default in _ARGUMENTS:
        yield where, name, _with_host_device(getattr(where, name), node, at, argument, *default)
    yield torch, "get_device_module", _device_module(torch.get_device_module)
    yield torch, "load", _loads(torch.load, node)
    yield torch, "get_autocast_dtype", _autocast_dtype(torch.get_autocast_dtype)
    yield torch, "get_autocast_gpu_dtype", partial(_autocast_dtype(torch.get_autocast_dtype), NAME)
    yield torch, "Generator", _generators(torch.Generator, node)
    yield torch.autocast, "__init__", _autocast(torch.autocast.__init__)
    yield DistributedDataParallel, "__init__", _on_no_device(DistributedDataParallel.__init__)
    yield DataParallel, "__init__", _on_one_device(DataParallel.__init__, node)


class Constructor:
    """A replacement of a tensor constructor that compares equal to PyTorch's own, so that tables with either find both.

    Args:
        module: The module in which it is, and in which pickle finds it.
        name: Its name there.
        original: PyTorch's own function.
        node: The NPUs that names refer to.
    """

    def __init__(self, module: str, name: str, original: Callable[..., Any], node: Node) -> None:
        self.__module__, self.__name__, self.__qualname__ = module, name, name
        self.__doc__ = original.__doc__
        self._original, self._node = original, node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Create a tensor on the device that the keyword argument names."""
        if has_torch_function(args):  # a handler gets this function, and compares it with PyTorch's
            return handle_torch_function(self, args, *args, **kwargs)
        return _made_by_name(self._original, self._node, "device", args, kwargs)

    def __eq__(self, other: object) -> bool:
        return self is other or self._original is other

    def __hash__(self) -> int:
        return hash(self._original)

    def __reduce__(self) -> str:
        return self.__name__


def by_name(original: Callable[..., Any], node: Node, argument: str = "device") -> Callable[..., Any]:
    """Return the replacement of a function whose device is a keyword argument."""

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _made_by_name(original, node, argument, args, kwargs)

    return call


def _made_by_name(original: Callable[..., Any], node: Node, argument: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return the result of a function whose device is a keyword argument; what it makes on an NPU is known to be there.

    Args:
        original: PyTorch's own function.
        node: The NPUs that names refer to.
        argument: The name of the device as a keyword.
        args: The other arguments.
        kwargs: The keyword arguments; a device among them becomes the one that really holds the data.
    """
    if kwargs.pop("pin_memory", False):
        return _pinned(original(*args, **kwargs))
    device = kwargs.get(argument)
    if device is None:
        return original(*args, **kwargs)
    kwargs[argument] = host = node.host(device)
    made = original(*args, **kwargs)
    is_new = host is not device and type(made) is Tensor and made.layout == torch.strided
    if is_new and (memory := current_memory()) is not None and not any(_is_in(made, each) for each in args):
        memory.name(made.untyped_storage())
    return made


def _pinned(made: Tensor) -> Tensor:
    """Return a new tensor after a note that it is in pinned memory, which is the host's."""
    setattr(made, PINNED, True)
    if (memory := current_memory()) is not None:
        memory.leave(made.untyped_storage())
    return made


def _is_in(made: Tensor, argument: object) -> bool:
    """Return whether a tensor lies in the memory of an argument, as the result of `torch.as_tensor` may."""
    if not isinstance(argument, Tensor) or argument.layout != torch.strided:
        return False
    return bool(argument.untyped_storage()._cdata == made.untyped_storage()._cdata)


def _with_host_device(
    original: Callable[..., Any], node: Node, at: int, argument: str, default: str = ""
) -> Callable[..., Any]:
    """Return the replacement of a function whose device is a positional argument; a device given as text stays text.

    Args:
        original: PyTorch's own function.
        node: The NPUs that names refer to.
        at: The position of the device among the arguments.
        argument: The name of the device as a keyword.
        default: The device if none is given.
    """

    def host(device: Any) -> Any:
        return node.host(device).type if isinstance(device, str) and is_npu(device) else node.host(device)

    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > at:
            args = (*args[:at], host(args[at]), *args[at + 1 :])
        elif argument in kwargs or default:
            kwargs[argument] = host(kwargs.get(argument, default))
        return original(*args, **kwargs)

    return call


def _loads(original: Callable[..., Any], node: Node) -> Callable[..., Any]:
    """Return the replacement of `torch.load`, whose `map_location` may name NPUs."""

    @wraps(original)
    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = {was: node.host(to) for was, to in map_location.items()}
        return original(f, node.host(map_location), *args, **kwargs)

    return load


def _device_module(original: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return the replacement of `get_device_module`, which gives the module of NPUs if no device is named."""

    @wraps(original)
    def get_device_module(device: Any = None) -> Any:
        return original(NAME if device is None else device)

    return get_device_module


def _generators(original: Any, node: Node) -> Any:
    """Return the replacement of `torch.Generator`, which also serves in `isinstance`."""

    class GeneratorType(type):
        def __call__(cls, device: Any = CPU) -> Any:
            return original(node.host(device))

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, original)

    return GeneratorType("Generator", (), {"__doc__": original.__doc__, "__module__": torch.__name__})


def _autocast_dtype(original: Callable[..., torch.dtype]) -> Callable[..., torch.dtype]:
    """Return the replacement of `get_autocast_dtype`, which gives an NPU the autocast dtype of the CPU if that is on."""

    @wraps(original)
    def get_autocast_dtype(device_type: str) -> torch.dtype:
        return original(CPU.type if is_npu(device_type) and torch.is_autocast_enabled(CPU.type) else device_type)

    return get_autocast_dtype


def _autocast(original: Callable[..., None]) -> Callable[..., None]:
    """Return the replacement of `autocast`'s constructor, by which an NPU has a GPU's default dtype, float16."""

    @wraps(original)
    def autocast(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if is_npu(device_type):
            device_type, dtype = CPU.type, dtype or torch.get_autocast_dtype(device_type)
        original(self, device_type, dtype, *args, **kwargs)

    return autocast


def _on_no_device(original: Callable[..., None]) -> Callable[..., None]:
    """Return the replacement of DDP's constructor, which passes no device number, because the module is on the CPU."""

    @wraps(original)
    def wrapped(self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any) -> None:
        original(self, module, None, None, *args, **kwargs)

    return wrapped


def _on_one_device(original: Callable[..., None], node: Node) -> Callable[..., None]:
    """Return the replacement of `torch.nn.DataParallel`'s constructor, which on one device returns the module itself."""

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
