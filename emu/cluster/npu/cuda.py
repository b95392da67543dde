"""The replacements in `torch.cuda` and `torch.accelerator`: one table for each module; a name in no table is refused.

Also here: the answers of the modules inside `torch.cuda`, and of `torch.backends`, about an emulated NPU, by name.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.cuda.comm
import torch.cuda.gds
import torch.cuda.green_contexts
import torch.cuda.jiterator
import torch.cuda.nccl
import torch.cuda.nvtx
import torch.cuda.profiler
import torch.cuda.sparse
import torch.cuda.tunable

from emu.cluster.npu.answers import Table, accelerator_answers, cuda_answers, sparse_types
from emu.cluster.npu.npu import Node, meaningless_error
from emu.cluster.rank_state.cpu_device import Event, Stream
from emu.cluster.rank_state.rank_state import Replacement

CUDA, NCCL = "12.8", (2, 27, 5)  # the versions that a script sees: those of a wheel of PyTorch for GPUs
# Functions whose names begin with an underscore, and which scripts call all the same.
_UNDERSCORED: tuple[tuple[Any, str], ...] = (
    (torch.cuda, "_sleep"),
    (torch.cuda, "_compile_kernel"),
    (torch.cuda.memory, "_record_memory_history"),
    (torch.cuda.memory, "_snapshot"),
    (torch.cuda.memory, "_dump_snapshot"),
    (torch.cuda.memory, "_set_allocator_settings"),
    (torch.cuda.memory, "_save_memory_usage"),
    (torch.cuda.memory, "_save_segment_usage"),
)
_UNCHANGED = (torch.cuda.CudaError, torch.cuda.DeferredCudaCallError, torch.cuda.cudaStatus)


def cuda_modules() -> Iterator[tuple[Any, str, Table]]:
    """Yield each module, its name, and its answers; all its other names are refused."""
    off = dict.fromkeys(("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled"), lambda: False)
    tables: dict[Any, Table] = {
        torch.cuda.comm: {},
        torch.cuda.gds: {},
        torch.cuda.green_contexts: {},
        torch.cuda.nccl: {"version": lambda: NCCL, "is_available": lambda _: False},
        torch.cuda.sparse: sparse_types(),
        torch.cuda.tunable: off,
    }
    yield from ((module, module.__name__, table) for module, table in tables.items())


def module_replacements() -> Iterator[Replacement]:
    """Yield the replacements of single functions in CUDA's modules whose other functions stay as PyTorch has them."""
    yield torch.version, "cuda", CUDA
    yield torch.cuda.nvtx, "_nvtx", _Nvtx()
    yield torch.cuda.profiler, "start", lambda: None
    yield torch.cuda.profiler, "stop", lambda: None
    for word in ("_create_jit_fn", "_create_multi_output_jit_fn"):
        yield torch.cuda.jiterator, word, refusal("torch.cuda.jiterator")
    for where, word in _UNDERSCORED:
        yield where, word, refusal(f"{where.__name__}.{word}")
    backend = torch.backends.cuda
    yield backend, "is_built", lambda: True
    yield backend, "cufft_plan_cache", _RefusedValue("torch.backends.cuda.cufft_plan_cache")
    for word in ("blas_workspace_size", "cublas_workspace_size", "cublaslt_workspace_size"):
        yield backend, word, refusal(f"torch.backends.cuda.{word}")
    for word in ("preferred_blas_library", "preferred_linalg_library", "preferred_rocm_fa_library"):
        yield backend, word, _asked_only(getattr(backend, word))


def refusal(name: str) -> Callable[..., Any]:
    """Return the replacement of a function that has no meaning here; a call raises an error."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise meaningless_error(name)

    return refuse


def _asked_only(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that tells a setting of CUDA's libraries, and never changes it."""
    return lambda *_, **__: original()


class _RefusedValue:
    """The replacement of a value that has no meaning here; each use raises an error."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def __getattr__(self, name: str) -> Any:
        raise meaningless_error(self._name)

    def __setattr__(self, name: str, value: object) -> None:
        raise meaningless_error(self._name)

    def __getitem__(self, device: object) -> Any:
        raise meaningless_error(self._name)


class _Nvtx:
    """The names of ranges, which nobody reads."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_, **__: 0


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
    refuse = refusal(name)
    return type(name.rpartition(".")[2], (), {"__new__": refuse}) if isinstance(original, type) else refuse
