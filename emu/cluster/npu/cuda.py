"""The replacements of functions in `torch.cuda` and `torch.accelerator`, one table a module; other names are refused.

The memory of an NPU is that of the rank's tensors; there is no allocator, so that reserved memory equals allocated memory. A
CPU and its NPU share one random generator. The time of an event is virtual in a paced run, else that of the host, because the
fabric is timed after the script.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
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

from emu.backend.rank.operator_counter import current_memory
from emu.backend.rank.rank_memory import Memory
from emu.cluster.npu.npu import NAME, Node, meaningless_error
from emu.cluster.rank_state.cpu_device import Event, Stream, StreamContext, current_stream
from emu.cluster.rank_state.rank_state import Replacement
from emu.errors import RunError

Table = Mapping[str, Any]
WARP = 32  # threads of a warp, on every GPU by NVIDIA


@dataclass(frozen=True, slots=True)
class DeviceProperties:
    """The result of `torch.cuda.get_device_properties` for an NPU; unsupported properties raise an error."""

    name: str
    total_memory: int
    major: int
    minor: int
    multi_processor_count: int
    warp_size: int = WARP
    is_integrated: int = 0
    is_multi_gpu_board: int = 0

    def __getattr__(self, name: str) -> Any:
        if name in _UNKNOWN:
            raise meaningless_error(f"torch.cuda.get_device_properties().{name}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


_UNKNOWN = (
    frozenset({"gcnArchName", "uuid", "pci_bus_id", "pci_device_id", "pci_domain_id", "L2_cache_size", "clock_rate"})
    | {"memory_clock_rate", "memory_bus_width", "regs_per_multiprocessor", "max_threads_per_multi_processor"}
    | {"max_threads_per_block", "shared_memory_per_block", "shared_memory_per_block_optin", "shared_memory_per_multiprocessor"}
)


class _CurrentDevice(AbstractContextManager[None]):
    """The context of `torch.cuda.device(1)`, in which another device is current."""

    def __init__(self, node: Node, device: Any) -> None:
        self._node, self.idx, self._before = node, node.index(device), node.current

    def __enter__(self) -> None:
        self._before, self._node.current = self._node.current, self.idx

    def __exit__(self, *error: object) -> None:
        self._node.current = self._before


def _common_answers(node: Node) -> Table:
    """Return the replacement functions that both modules have under the same names."""

    def set_device(device: Any) -> None:
        node.current = node.index(device)

    return {
        "is_available": lambda: True,
        "device_count": lambda: node.n,
        "synchronize": lambda *_, **__: Stream.await_requests(),  # a wait of the host orders no streams
        "current_stream": current_stream,
        "set_stream": lambda stream: StreamContext(stream).__enter__(),
        "empty_cache": lambda: None,
        "set_device": set_device,
        "set_device_index": set_device,
        "set_device_idx": set_device,
        "current_device": lambda: node.current,
        "current_device_index": lambda: node.current,
        "current_device_idx": lambda: node.current,
        "get_device_capability": lambda *_, **__: node.npu.capability,
        **_figures(node),
    }


def _devices(node: Node) -> Table:
    def properties(device: Any = None) -> DeviceProperties:
        node.index(device)
        return DeviceProperties(node.npu.name, node.npu.memory_bytes, *node.npu.capability, max(1, node.npu.cores))

    return {
        "device": lambda device: _CurrentDevice(node, device),
        "device_of": lambda _: nullcontext(),  # a tensor is on its rank's device
        "get_device_name": lambda device=None: properties(device).name,
        "get_device_properties": properties,
        "can_device_access_peer": lambda device, peer: node.index(device) != node.index(peer),
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "is_tf32_supported": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "get_arch_list": lambda: [f"sm_{node.npu.capability[0]}{node.npu.capability[1]}"],
        "cudart": lambda: _Names(partial(_runtime, node)),
        "get_allocator_backend": lambda: "native",
        "Stream": Stream,
        "Event": Event,
        "StreamContext": StreamContext,
        "stream": partial(StreamContext),
        "default_stream": lambda *_, **__: Stream.default(),
    }


def _runtime(node: Node, name: str) -> Any:
    """Return the replacement of a function of CUDA's runtime.

    The one for free memory answers for the NPU; those that begin and end a profile, and those that pin memory, do nothing.
    """
    nothing = ("cudaProfilerStart", "cudaProfilerStop", "cudaHostRegister", "cudaHostUnregister")
    known = {"cudaMemGetInfo": _free(node), **dict.fromkeys(nothing, lambda *_: 0)}
    if name not in known:
        raise meaningless_error(f"torch.cuda.cudart().{name}")
    return known[name]


def _accelerator(node: Node) -> Table:
    return {
        "current_accelerator": lambda *_, **__: torch.device(NAME),
        "device_index": lambda device: nullcontext() if device is None else _CurrentDevice(node, device),
        "get_device_capability": lambda *_, **__: {},
        "empty_host_cache": lambda: None,
    }


def _random(node: Node) -> Table:
    def seed_with(seed: int) -> None:
        torch.default_generator.manual_seed(seed)

    def put(state: torch.Tensor, device: object = None) -> None:
        torch.default_generator.set_state(state)

    def put_all(states: Any) -> None:
        for state in states:
            put(state)

    return {
        "manual_seed": seed_with,
        "manual_seed_all": seed_with,
        "seed": torch.default_generator.seed,
        "seed_all": torch.default_generator.seed,
        "initial_seed": torch.default_generator.initial_seed,
        "get_rng_state": lambda *_, **__: torch.default_generator.get_state(),
        "get_rng_state_all": lambda: [torch.default_generator.get_state()],
        "set_rng_state": put,
        "set_rng_state_all": put_all,
        "default_generators": (torch.default_generator,) * node.n,
    }


def _no_effects() -> Table:
    """Return the replacements of functions that set up a device and have no effect on an NPU."""
    names = (
        "init",
        "ipc_collect",
        "reset_accumulated_host_memory_stats",
        "reset_peak_host_memory_stats",
        "set_per_process_memory_fraction",
        "set_sync_debug_mode",
    )
    return {**{name: lambda *_, **__: None for name in names}, "get_sync_debug_mode": lambda: 0}


def _types(module: Any, of_cpu: Any) -> Table:
    """Return the CPU's types under the names of a module's CUDA types, such as `torch.cuda.FloatTensor`."""
    found = [name for name in dir(module) if name.endswith(("Tensor", "Storage"))]
    return {name: getattr(of_cpu, name) for name in found if hasattr(of_cpu, name)}


def _live_memory() -> Memory:
    return current_memory() or Memory()


def _free(node: Node) -> Any:
    """Return a function that gives the free memory and the total memory, in bytes."""

    def free(*_: object) -> tuple[int, int]:
        total = node.npu.memory_bytes
        if not total:
            raise RunError(f"cuda: the memory of {node.npu.name} is not known; take a device whose file has the key `memory`")
        return max(0, total - _live_memory().live_bytes), total

    return free


def _memory_stats(*_: object) -> dict[str, int]:
    """Return the rank's memory by the names of `torch.cuda.memory_stats`, in bytes."""
    memory = _live_memory()
    kinds = ("active", "allocated", "requested", "reserved")
    both = {"current": memory.live_bytes, "peak": memory.peak_since_bytes}
    figures = {f"{kind}_bytes.all.{when}": size for kind in kinds for when, size in both.items()}
    return {**figures, "num_alloc_retries": 0, "num_ooms": 0}


def _nested(figures: Mapping[str, int]) -> dict[str, Any]:
    """Return numbers whose names have dots, such as `a.b`, as nested tables."""
    found: dict[str, Any] = {}
    for name, value in figures.items():
        *where, last = name.split(".")
        at = found
        for word in where:
            at = at.setdefault(word, {})
        at[last] = value
    return found


def _figures(node: Node) -> Table:
    """Return the answers about memory: the bytes of the rank's tensors now, and at the peak since the last reset."""

    def summary(*_: object, **__: object) -> str:
        return f"{node.npu.name}: {_live_memory().live_bytes} bytes allocated, {_live_memory().peak_since_bytes} at most"

    kinds = ("allocated", "reserved", "cached")
    resets = ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached")
    return {
        **dict.fromkeys(
            (*(f"memory_{kind}" for kind in kinds), "device_memory_used"), lambda *_, **__: _live_memory().live_bytes
        ),
        **dict.fromkeys((f"max_memory_{kind}" for kind in kinds), lambda *_, **__: _live_memory().peak_since_bytes),
        **dict.fromkeys(resets, lambda *_, **__: _live_memory().restart()),
        "reset_accumulated_memory_stats": lambda *_, **__: None,
        "mem_get_info": _free(node),
        "get_memory_info": _free(node),
        "memory_stats": _memory_stats,
        "memory_stats_as_nested_dict": lambda *_: _nested(_memory_stats()),
        "memory_summary": summary,
    }


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


def _tables(node: Node) -> dict[Any, Table]:
    """Return, for each module, its table of replacements by name; `cuda_replacements` refuses all other exported names.

    Args:
        node: The NPUs that the ranks see.
    """
    off = dict.fromkeys(("is_enabled", "tuning_is_enabled", "record_untuned_is_enabled"), lambda: False)
    both = _common_answers(node)
    return {
        torch.cuda: {**both, **_devices(node), **_random(node), **_no_effects(), **_types(torch.cuda, torch)},
        torch.accelerator: {**both, **_accelerator(node)},
        torch.cuda.comm: {},
        torch.cuda.gds: {},
        torch.cuda.green_contexts: {},
        torch.cuda.nccl: {"version": lambda: NCCL, "is_available": lambda _: False},
        torch.cuda.sparse: _types(torch.cuda.sparse, torch.sparse),
        torch.cuda.tunable: off,
    }


def _module_replacements() -> Iterator[Replacement]:
    """Yield replacements of single functions in CUDA's modules whose other functions stay unchanged."""
    yield torch.version, "cuda", CUDA
    yield torch.cuda.nvtx, "_nvtx", _Names(lambda _: lambda *_, **__: 0)  # nobody reads the names of ranges
    yield torch.cuda.profiler, "start", lambda: None
    yield torch.cuda.profiler, "stop", lambda: None
    for word in ("_create_jit_fn", "_create_multi_output_jit_fn"):
        yield torch.cuda.jiterator, word, refusal("torch.cuda.jiterator")
    for where, word in _UNDERSCORED:
        yield where, word, refusal(f"{where.__name__}.{word}")
    backend = torch.backends.cuda
    yield backend, "is_built", lambda: True
    yield backend, "cufft_plan_cache", _Names(refusal("torch.backends.cuda.cufft_plan_cache"))
    for word in ("blas_workspace_size", "cublas_workspace_size", "cublaslt_workspace_size"):
        yield backend, word, refusal(f"torch.backends.cuda.{word}")
    for word in ("preferred_blas_library", "preferred_linalg_library", "preferred_rocm_fa_library"):
        yield backend, word, _asked_only(getattr(backend, word))


def refusal(name: str) -> Callable[..., Any]:
    """Return the replacement of a function without meaning on an NPU: it raises an error when it is called."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise meaningless_error(name)

    return refuse


def _asked_only(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns a setting of CUDA's libraries and never changes it."""
    return lambda *_, **__: original()


class _Names:
    """An object of which every attribute and every item is the result of a function."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        object.__setattr__(self, "_answer", answer)

    def __getattr__(self, name: str) -> Any:
        return self._answer(name)

    def __setattr__(self, name: str, value: object) -> None:
        self._answer(name)

    def __getitem__(self, device: object) -> Any:
        return self._answer(str(device))


def cuda_replacements(node: Node) -> Iterator[Replacement]:
    """Yield the replacements of all names by which `torch.cuda`, its modules and `torch.accelerator` describe a device.

    What has no meaning here is replaced by a refusal.

    Args:
        node: The NPUs that the ranks see.
    """
    for module, table in _tables(node).items():
        for word in exported_names(module):
            replacement = table.get(word, _refusal_of(f"{module.__name__}.{word}", getattr(module, word)))
            if replacement is not None:
                yield from _replacements_of(module, word, replacement)
    for word in ("_lazy_init", "_lazy_call"):
        yield torch.cuda, word, lambda *_, **__: None
    yield from _module_replacements()
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
    """Return a new function object that calls another function, because `torch.compile` refuses one with two names."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _refusal_of(name: str, original: Any) -> Any:
    """Return the replacement that refuses a name without meaning on an NPU; None if the name keeps its value."""
    if not callable(original) or original in _UNCHANGED:
        return None
    refuse = refusal(name)
    return type(name.rpartition(".")[2], (), {"__new__": refuse}) if isinstance(original, type) else refuse
