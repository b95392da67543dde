"""The NPU that the name `cuda` means to a script: the emulated device of its rank.

The name is translated where it enters PyTorch, and a tensor tells the truth. `torch.device("cuda", 0)` is PyTorch's own object;
a tensor or a module that is put or made there lies on the CPU: its `device` is `cpu` and its `is_cuda` False, as for meshes. So
PyTorch and libraries take the path of a CPU, which works here, and not that of a GPU, which would fail at the first kernel.
`x.to("cuda")` and `x.cpu()` give a copy of x, as between a host and its device.
"""

import threading
from dataclasses import dataclass
from typing import Any

import torch

from emu.errors import RunError

NAME = "cuda"
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Npu:
    """The device of every rank, as a script may ask for it.

    Args:
        name: The name of the device.
        memory_bytes: Its memory; 0: not known.
        capability: CUDA's compute capability; for a device that is no GPU the first with bfloat16, so that no library
            looks for kernels of its own.
        cores: The number of its cores; 0: not known.
    """

    name: str = "npu"
    memory_bytes: int = 0
    capability: tuple[int, int] = (8, 0)
    cores: int = 0


UNNAMED = Npu()


class Node:
    """The NPUs that a rank sees, one for each rank; each thread has a current one, at first NPU 0.

    Args:
        n: The number of NPUs.
        npu: The kind of each NPU.
    """

    def __init__(self, n: int, npu: Npu) -> None:
        self.n, self.npu = n, npu
        self._here = threading.local()

    @property
    def current(self) -> int:
        """The number of this thread's current NPU."""
        return int(getattr(self._here, "index", 0))

    @current.setter
    def current(self, index: int) -> None:
        self._here.index = index

    def index(self, device: Any = None) -> int:
        """Return the number in a device's name, or the current one if there is none.

        Raises:
            RunError: another kind of device, or no NPU of this number.
        """
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
        """Return the device that holds the data of a named device: the CPU for a CUDA device, else the named one.

        Raises:
            RunError: a CUDA device that does not exist.
        """
        if type(device) is int or is_npu(device):
            self.index(device)
            return CPU
        return device


def is_npu(device: Any) -> bool:
    """Return True if the name is that of a CUDA device."""
    if isinstance(device, str):
        return device == NAME or device.startswith(f"{NAME}:")
    return isinstance(device, torch.device) and device.type == NAME


def meaningless_error(name: str) -> RunError:
    """Return the error for a function that only a GPU can do."""
    return RunError(f"cuda: {name} has no meaning on an emulated NPU, which computes on the CPU; leave it out")
