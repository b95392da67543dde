"""`torch.cuda` and `torch.accelerator` of an emulated NPU: one table a module; what is in none of them is refused by name.

Its memory is what the rank's tensors take, which has no allocator: what is reserved is what is allocated. A CPU and its NPU
share one random generator. An event's time is the host's, as the fabric is timed after the script.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from emu.backend.rank.count import memory_here
from emu.backend.rank.memory import Memory
from emu.cluster.npu.npu import NAME, Node, no_meaning
from emu.cluster.own.device import Event, On, Stream, current_stream
from emu.cluster.threads.once import Replacement
from emu.errors import RunError

_CAPABILITY = (8, 0)  # has bfloat16, and nothing for which libraries bring kernels of their own
_Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Properties:
    """Of `torch.cuda.get_device_properties`, what has a meaning."""

    name: str
    total_memory: int
    major: int = _CAPABILITY[0]
    minor: int = _CAPABILITY[1]
    multi_processor_count: int = 1


def cuda(node: Node) -> Iterator[Replacement]:
    """What is to be replaced: all that `torch.cuda` and `torch.accelerator` say of the device."""
    tables: tuple[tuple[Any, str, _Table], ...] = (
        (torch.cuda, "torch.cuda", {**_both(node), **_devices(node), **_random(), **_nothing(), **_types()}),
        (torch.accelerator, "torch.accelerator", {**_both(node), **_accelerator(node)}),
    )
    for module, name, table in tables:
        for word in module.__all__:
            replacement = table.get(word, _refusing(f"{name}.{word}", getattr(module, word)))
            if replacement is not None:
                yield from _everywhere(module, word, replacement)
    for word in ("_create_jit_fn", "_create_multi_output_jit_fn"):
        yield torch.cuda.jiterator, word, _refusing("torch.cuda.jiterator", word.join)
    for word in ("_lazy_init", "_lazy_call"):
        yield torch.cuda, word, lambda *_, **__: None
    yield torch.cuda.nvtx, "_nvtx", _Nvtx()
    yield torch.cuda.profiler, "start", lambda: None
    yield torch.cuda.profiler, "stop", lambda: None
    yield torch, "Stream", Stream
    yield torch, "Event", Event


def _everywhere(module: Any, word: str, replacement: Any) -> Iterator[Replacement]:
    """Where a module has a name, and the part of it that it comes from."""
    original = getattr(module, word)
    parts = [each for each in vars(module).values() if isinstance(each, type(torch)) and vars(each).get(word) is original]
    made = replacement if isinstance(replacement, type) or not callable(replacement) else _apart(replacement)
    for where in (module, *parts):
        yield where, word, made


def _apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of its own: `torch.compile` keeps a table of them, and refuses one under two names."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _refusing(name: str, original: Any) -> Any:
    """In place of what has no meaning; None: it stays."""
    if not callable(original) or original in _KEPT:
        return None

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise no_meaning(name)

    return type(name.rpartition(".")[2], (), {"__new__": refuse}) if isinstance(original, type) else refuse


_KEPT = (torch.cuda.CudaError, torch.cuda.DeferredCudaCallError, torch.cuda.cudaStatus, torch.cuda.check_error)


class _Nvtx:
    """Names of ranges, which nobody reads."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: 0


class _As(AbstractContextManager[None]):
    """`torch.cuda.device(1)`: another current device."""

    def __init__(self, node: Node, device: Any) -> None:
        self._node, self.idx, self._before = node, node.index(device), node.current

    def __enter__(self) -> None:
        self._before, self._node.current = self._node.current, self.idx

    def __exit__(self, *error: object) -> None:
        self._node.current = self._before


def _both(node: Node) -> _Table:
    """What both modules have, under the same names."""

    def set_device(device: Any) -> None:
        node.current = node.index(device)

    return {
        "is_available": lambda: True,
        "device_count": lambda: node.n,
        "synchronize": lambda *_: None,  # that the host waits is no order between streams
        "current_stream": current_stream,
        "set_stream": _set_stream,
        "empty_cache": lambda: None,
        "set_device": set_device,
        "set_device_index": set_device,
        "set_device_idx": set_device,
        "current_device": lambda: node.current,
        "current_device_index": lambda: node.current,
        "current_device_idx": lambda: node.current,
        "get_device_capability": lambda *_: _CAPABILITY,
        **_figures(node),
    }


def _devices(node: Node) -> _Table:
    def properties(device: Any = None) -> Properties:
        node.index(device)
        return Properties(node.npu.name, node.npu.memory_bytes)

    def can_access(device: Any, peer: Any) -> bool:
        return node.index(device) != node.index(peer)

    return {
        "device": lambda device: _As(node, device),
        "device_of": lambda _: nullcontext(),  # a tensor is on its rank's
        "get_device_name": lambda device=None: properties(device).name,
        "get_device_properties": properties,
        "can_device_access_peer": can_access,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "is_tf32_supported": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "get_arch_list": list,
        "Stream": Stream,
        "Event": Event,
        "StreamContext": On,
        "stream": partial(On),
        "default_stream": lambda *_: Stream.default(),
    }


def _accelerator(node: Node) -> _Table:
    return {
        "current_accelerator": lambda *_, **__: torch.device(NAME),
        "device_index": lambda device: nullcontext() if device is None else _As(node, device),
        "get_device_capability": lambda *_: {},
        "empty_host_cache": lambda: None,
    }


def _set_stream(stream: Stream | None) -> None:
    On(stream).__enter__()


def _random() -> _Table:
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
        "get_rng_state": lambda *_: torch.default_generator.get_state(),
        "get_rng_state_all": lambda: [torch.default_generator.get_state()],
        "set_rng_state": put,
        "set_rng_state_all": put_all,
    }


def _nothing() -> _Table:
    """What is asked of a device and changes nothing here."""
    names = (
        "init",
        "ipc_collect",
        "reset_accumulated_host_memory_stats",
        "reset_peak_host_memory_stats",
        "set_per_process_memory_fraction",
        "set_sync_debug_mode",
    )
    return {**{name: lambda *_, **__: None for name in names}, "get_sync_debug_mode": lambda: 0}


def _types() -> _Table:
    """Such as `torch.cuda.FloatTensor`: the CPU's."""
    found = [name for name in torch.cuda.__all__ if name.endswith(("Tensor", "Storage"))]
    return {name: getattr(torch, name) for name in found if hasattr(torch, name)}


def _here() -> Memory:
    return memory_here() or Memory()


def _figures(node: Node) -> _Table:
    """The memory that the rank's tensors take, and the most since it was asked for anew."""

    def free() -> tuple[int, int]:
        total = node.npu.memory_bytes
        if not total:
            raise RunError(f"cuda: how much memory {node.npu.name} has is not known; take a device whose file says `memory`")
        return max(0, total - _here().live_bytes), total

    def stats(*_: object) -> dict[str, int]:
        memory = _here()
        kinds = ("active", "allocated", "requested", "reserved")
        both = {"current": memory.live_bytes, "peak": memory.peak_since_bytes}
        told = {f"{kind}_bytes.all.{when}": size for kind in kinds for when, size in both.items()}
        return {**told, "num_alloc_retries": 0, "num_ooms": 0}

    def summary(*_: object, **__: object) -> str:
        return f"{node.npu.name}: {_here().live_bytes} bytes allocated, {_here().peak_since_bytes} at most"

    now, most, anew = (lambda *_: _here().live_bytes), (lambda *_: _here().peak_since_bytes), (lambda *_: _here().restart())
    return {
        "memory_allocated": now,
        "memory_reserved": now,
        "memory_cached": now,
        "device_memory_used": now,
        "max_memory_allocated": most,
        "max_memory_reserved": most,
        "max_memory_cached": most,
        "reset_peak_memory_stats": anew,
        "reset_max_memory_allocated": anew,
        "reset_max_memory_cached": anew,
        "reset_accumulated_memory_stats": lambda *_: None,
        "mem_get_info": lambda *_: free(),
        "get_memory_info": lambda *_: free(),
        "memory_stats": stats,
        "memory_summary": summary,
    }
