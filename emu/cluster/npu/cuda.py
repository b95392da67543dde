"""The replacements in `torch.cuda` and `torch.accelerator`: one table for each module; a name in no table is refused."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from emu.cluster.npu.answers import accelerator_answers, cuda_answers
from emu.cluster.npu.cuda_modules import cuda_modules, module_replacements, refusal
from emu.cluster.npu.npu import Node, meaningless_error
from emu.cluster.process_services import Replacement
from emu.cluster.rank_state.cpu_device import Event, Stream


def cuda_replacements(node: Node) -> Iterator[Replacement]:
    """Yield the replacements of everything that `torch.cuda`, its modules and `torch.accelerator` say of the device."""
    for module, name, table in (
        (torch.cuda, "torch.cuda", cuda_answers(node)),
        (torch.accelerator, "torch.accelerator", accelerator_answers(node)),
        *cuda_modules(),
    ):
        for word in exported_names(module):
            replacement = table.get(word, _refusal_of(f"{name}.{word}", getattr(module, word)))
            if replacement is not None:
                yield from _replacements_of(module, word, replacement)
    for word in ("_lazy_init", "_lazy_call"):
        yield torch.cuda, word, lambda *_, **__: None
    yield from module_replacements()
    yield torch, "Stream", Stream
    yield torch, "Event", Event


def exported_names(module: Any) -> Sequence[str]:
    """Return the names that a module exports: those of `__all__`, or PyTorch's callables without an underscore."""
    if "__all__" in vars(module) and module is not torch.cuda.nccl:  # its `__all__` lacks most of its functions
        return [*module.__all__]
    made = {name: each for name, each in vars(module).items() if callable(each) and not name.startswith("_")}
    return [name for name, each in made.items() if str(each.__module__).startswith("torch.")]


def _replacements_of(module: Any, word: str, replacement: Any) -> Iterator[Replacement]:
    """Yield the replacement of a name in a module, and in the submodule that defines it."""
    original = getattr(module, word)
    parts_of = [each for each in vars(module).values() if isinstance(each, type(torch)) and vars(each).get(word) is original]
    made = replacement if isinstance(replacement, type) or not callable(replacement) else _wrapper(replacement)
    for where in (module, *parts_of):
        yield where, word, made


def _wrapper(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a new function that calls another: `torch.compile` keeps a table of functions and refuses one with two names."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _refusal_of(name: str, original: Any) -> Any:
    """Return the replacement of a name that has no meaning here, or None if the name keeps its value."""
    if not callable(original) or original in _UNCHANGED:
        return None

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise meaningless_error(name)

    return type(name.rpartition(".")[2], (), {"__new__": refuse}) if isinstance(original, type) else refusal(name)


_UNCHANGED = (torch.cuda.CudaError, torch.cuda.DeferredCudaCallError, torch.cuda.cudaStatus)
