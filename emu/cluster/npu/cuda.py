"""`torch.cuda` and `torch.accelerator` of an emulated NPU: one table a module; what is in none of them is refused by name."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from emu.cluster.npu.answers import of_accelerator, of_cuda
from emu.cluster.npu.npu import Node, no_meaning
from emu.cluster.npu.parts import changes, parts, refusing
from emu.cluster.once import Replacement
from emu.cluster.own.device import Event, Stream


def cuda(node: Node) -> Iterator[Replacement]:
    """What is to be replaced: all that `torch.cuda`, its modules and `torch.accelerator` say of the device."""
    for module, name, table in (
        (torch.cuda, "torch.cuda", of_cuda(node)),
        (torch.accelerator, "torch.accelerator", of_accelerator(node)),
        *parts(),
    ):
        for word in words_of(module):
            replacement = table.get(word, _refused(f"{name}.{word}", getattr(module, word)))
            if replacement is not None:
                yield from _everywhere(module, word, replacement)
    for word in ("_lazy_init", "_lazy_call"):
        yield torch.cuda, word, lambda *_, **__: None
    yield from changes()
    yield torch, "Stream", Stream
    yield torch, "Event", Event


def words_of(module: Any) -> Sequence[str]:
    """What a module exports: what it says, or all of PyTorch's that is in it under a name without an underscore."""
    if "__all__" in vars(module) and module is not torch.cuda.nccl:  # whose list lacks most of its functions
        return [*module.__all__]
    made = {name: each for name, each in vars(module).items() if callable(each) and not name.startswith("_")}
    return [name for name, each in made.items() if str(each.__module__).startswith("torch.")]


def _everywhere(module: Any, word: str, replacement: Any) -> Iterator[Replacement]:
    """Where a module has a name, and the part of it that it comes from."""
    original = getattr(module, word)
    parts_of = [each for each in vars(module).values() if isinstance(each, type(torch)) and vars(each).get(word) is original]
    made = replacement if isinstance(replacement, type) or not callable(replacement) else _apart(replacement)
    for where in (module, *parts_of):
        yield where, word, made


def _apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own: `torch.compile` keeps a table of them, and refuses one under two names."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _refused(name: str, original: Any) -> Any:
    """In place of what has no meaning; None: it stays."""
    if not callable(original) or original in _KEPT:
        return None

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise no_meaning(name)

    return type(name.rpartition(".")[2], (), {"__new__": refuse}) if isinstance(original, type) else refusing(name)


_KEPT = (torch.cuda.CudaError, torch.cuda.DeferredCudaCallError, torch.cuda.cudaStatus)
