"""What the name `cuda` means to a script: the emulated NPU of its rank.

Decided: the name is taken where it goes into PyTorch, and a tensor says what it is. `torch.device("cuda", 0)` is what PyTorch
makes of it; a tensor or a module that is put there, or made there, lies on the CPU, and its `device` says `cpu` and its
`is_cuda` False, as do meshes. So PyTorch and libraries take the way of a CPU, which works here, and not that of a GPU, which
a kernel would end. `x.to("cuda")` and `x.cpu()` give a tensor apart from x, as between a host and its device.
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
        name: Of it.
        memory_bytes: It has; 0: not known.
        capability: By CUDA's count; of what is no GPU the first that has bfloat16, so that no library looks for kernels of its
            own.
        cores: Of it; 0: not known.
    """

    name: str = "npu"
    memory_bytes: int = 0
    capability: tuple[int, int] = (8, 0)
    cores: int = 0


UNNAMED = Npu()


class Node:
    """The NPUs that a rank sees: one a rank, of which every thread has one as its current one, the first at the start.

    Args:
        n: Of them.
        npu: Each of them.
    """

    def __init__(self, n: int, npu: Npu) -> None:
        self.n, self.npu = n, npu
        self._here = threading.local()

    @property
    def current(self) -> int:
        """The current one of this thread."""
        return int(getattr(self._here, "index", 0))

    @current.setter
    def current(self, index: int) -> None:
        self._here.index = index

    def index(self, device: Any = None) -> int:
        """The number that a device's name says; none: the current one.

        Raises:
            RunError: another kind of device, or none of this number.
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
            raise RunError(f"cuda: the script asks for device {found}, and there are {self.n}, one a rank; count from 0")
        return self.current if found is None else found

    def host(self, device: Any) -> Any:
        """Where a device that the script names lies: the CPU for a CUDA one, any other as it is.

        Raises:
            RunError: a CUDA device that is not there.
        """
        if type(device) is int or is_npu(device):
            self.index(device)
            return CPU
        return device


def is_npu(device: Any) -> bool:
    """Whether it is a name of a CUDA device."""
    if isinstance(device, str):
        return device == NAME or device.startswith(f"{NAME}:")
    return isinstance(device, torch.device) and device.type == NAME


def no_meaning(name: str) -> RunError:
    """Of what only a GPU can do."""
    return RunError(f"cuda: {name} has no meaning on an emulated NPU, which computes on the CPU; leave it out")
