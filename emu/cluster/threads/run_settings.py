"""Settings that the ranks of a process have in common: how often Python looks for cycles, and modes of PyTorch."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from emu.backend.rank.count import pause_counting

_NEW_OBJECTS = 200_000  # before the collector looks for cycles


@contextmanager
def collect_less() -> Iterator[None]:
    """Let Python's garbage collector look for cycles less often: it looks at the objects of all ranks."""
    thresholds = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


@contextmanager
def outside_modes() -> Iterator[None]:
    """Leave every mode that the running rank has set: work here is for all ranks."""
    with pause_counting(), torch._C.DisableTorchFunction(), torch.inference_mode():  # which alone may write what was made in it
        yield
