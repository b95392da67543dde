"""The state of torch, numpy and other libraries of which a process has one copy and each rank needs its own.

Torch has settings of the precision of float32 products: two old ones, and a tree of new ones that affect them. The state of the
default random generator of numpy is copied as memory, because numpy reads and writes it number by number, which took most of
the time of a switch between ranks. The memory is complete unless numpy stores the second of two normal numbers that are drawn
together elsewhere.
"""

import ctypes
import random
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from emu.cluster.rank_state.rank_state import Attributes, RankState, Setting, Settings

_WORDS = 624  # the words of a Mersenne twister, without its position among them
_BYTES = 4 * (_WORDS + 1)


def _generator() -> Any:
    return np.random.get_bit_generator()  # type: ignore[attr-defined]


def _state() -> Any:
    return np.random.get_state()  # noqa: NPY002


def _memory(generator: Any) -> bytes:
    return ctypes.string_at(_address(generator), _BYTES)


@lru_cache(maxsize=1)
def _address(generator: Any) -> int:
    return int(generator.ctypes.state_address)


_native: Any = torch._C
# A setting without a value has the value of its backend, and a backend without one that of all backends.
_ALL = (("generic", "all"), ("cuda", "all"), ("mkldnn", "all"))
_OPERATIONS = tuple((backend, what) for backend in ("cuda", "mkldnn") for what in ("matmul", "conv", "rnn"))


def _old_setting(read: Callable[[], Any], write: Callable[[Any], object]) -> Setting:
    """Return one of torch's older precision settings; its value is None if it contradicts a newer setting."""

    def read_or_none() -> Any:
        try:
            return read()
        except RuntimeError:
            return None

    return read_or_none, lambda value: None if value is None else write(value)


def _new_setting(*place: str) -> Setting:
    return partial(_native._get_fp32_precision_getter, *place), partial(_native._set_fp32_precision_setter, *place)


# Old settings come first, because they write new ones, and a whole comes before its parts. Torch cannot restore that a
# convolution has TF32 by default; if a rank changes this setting, the other ranks get it as set.
_FLOAT32_PRECISION = (
    _old_setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    _old_setting(_native._get_cudnn_allow_tf32, _native._set_cudnn_allow_tf32),
    *(_new_setting(*place) for place in (*_ALL, *_OPERATIONS)),
)


_HOOKS = (
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
    "_global_buffer_registration_hooks",
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
    "_global_forward_pre_hooks",
    "_global_is_full_backward_hook",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
)
_ATTRIBUTES = {
    "concurrent.futures.thread": ("_shutdown",),
    "torch._tensor_str": tuple(f"PRINT_OPTS.{name}" for name in vars(torch._tensor_str.PRINT_OPTS)),
    "torch.nn.modules.module": _HOOKS,
    "torch.optim.optimizer": ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"),
    "torch.nn.utils.parametrize": ("_cache", "_cache_enabled"),  # set by `cached`
    "torch.utils.checkpoint": ("_enable_checkpoint_early_stop", "_checkpoint_debug_enabled"),
    "torch.autograd.graph": ("_allow_mutation_on_saved_tensors_enabled",),
    "torch.distributed._shard.api": ("_CURRENT_PROCESS_GROUP",),
    "torch.distributed.checkpoint._async_process_executor": ("_CHECKPOINT_PROCESS",),
    "torch.distributed.fsdp._fully_shard._fully_shard": ("_enable_fsdp_module_new_init",),
    "torch.distributed.fsdp._fsdp_extensions": ("_extensions",),
    "torch.distributed.tensor._api": ("DTensor._op_dispatcher._custom_op_handlers",),  # set by `loss_parallel`
    "torch.distributed.tensor._random": ("_rng_tracker",),
    "torch.distributed.tensor._redistribute": (
        "_FORCE_MIN_COST_REDISTRIBUTION_PLAN",
        "_DISABLE_REDISTRIBUTE_TRANSFORM_OPTIMIZATION",
    ),
    "accelerate.state": tuple(f"{name}State._shared_state" for name in ("Partial", "Accelerator", "Gradient")),  # one a process
    "hydra": ("core.singleton.Singleton._instances",),  # with its own settings, when it is loaded
    "omegaconf": ("basecontainer.BaseContainer._resolvers",),
}
_ATTENTION = ("flash", "mem_efficient", "math", "cudnn", "overrideable")  # set by `sdpa_kernel`
_SETTINGS = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda both: torch.set_anomaly_enabled(*both),
    ),
    (_native._get_mkldnn_enabled, _native._set_mkldnn_enabled),
    (_native._get_sdp_priority_order, _native._set_sdp_priority_order),
    *((getattr(_native, f"_get_{n}_sdp_enabled"), getattr(_native, f"_set_sdp_use_{n}")) for n in _ATTENTION),
)


class Generators:
    """The default random generators of torch, numpy and Python.

    Torch's generator starts as in a fresh process. The other two, which a fresh process seeds by chance, are seeded by the
    rank. The state of numpy's generator is its memory, or numpy's own form if it stores a number or is another kind of
    generator.
    """

    def __init__(self) -> None:
        self._loaded: bytes | None = None  # the memory of numpy's that was loaded last, if it was loaded as memory
        self._stores = True  # True if numpy may store a number elsewhere

    def of(self, rank: int) -> Any:
        """Return the states of the generators with which a rank starts."""
        of_numpy = _memory(np.random.RandomState(rank)._bit_generator)
        return torch.Generator().get_state(), of_numpy, random.Random(rank).getstate()

    def save(self) -> Any:
        """Return the present states of the generators."""
        return torch.default_generator.get_state(), self._save_numpy(), random.getstate()

    def load(self, state: Any) -> None:
        """Set the generators to saved states."""
        torch_state, numpy_state, python_state = state
        torch.default_generator.set_state(torch_state)
        self._load_numpy(numpy_state)
        random.setstate(python_state)

    def _save_numpy(self) -> Any:
        generator = _generator()
        if isinstance(generator, np.random.MT19937):
            memory = _memory(generator)
            self._stores = memory != self._loaded and bool(_state()[3])
            if not self._stores:
                return memory
        return _state()

    def _load_numpy(self, state: Any) -> None:
        generator, self._loaded = _generator(), state if isinstance(state, bytes) else None
        if self._loaded is None:
            np.random.set_state(state)  # noqa: NPY002
        elif self._stores or not isinstance(generator, np.random.MT19937):
            words = np.frombuffer(self._loaded, np.uint32)
            np.random.set_state(("MT19937", words[:-1], int(words[-1]), 0, 0.0))  # noqa: NPY002
        else:
            ctypes.memmove(_address(generator), self._loaded, _BYTES)
        self._stores = True  # until `_save_numpy` has looked


def library_state() -> tuple[Attributes, tuple[RankState, ...]]:
    """Return the attributes among the state of libraries, which must be `watched` while ranks run, and all this state."""
    attributes = Attributes(_ATTRIBUTES)
    return attributes, (Generators(), Settings((*_SETTINGS, *_FLOAT32_PRECISION)), attributes)
