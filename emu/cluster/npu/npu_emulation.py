"""Everything that a script finds of NPUs while its ranks run, and its undo; or the refusal of NPUs."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn

import torch
import torch.distributed as dist

from emu.backend.rank.count import Count
from emu.cluster.npu.batch_norm import batch_norm_replacements
from emu.cluster.npu.cuda import cuda_replacements
from emu.cluster.npu.deferred_changes import deferred_changes
from emu.cluster.npu.device_arguments import device_argument_replacements
from emu.cluster.npu.npu import Node, Npu
from emu.cluster.npu.tensor_moves import tensor_move_replacements
from emu.cluster.process_services import Replacement
from emu.cluster.rank_state.cpu_device import replace_attribute
from emu.errors import RunError


@contextmanager
def emulate_npus(npu: Npu | None, n: int) -> Iterator[None]:
    """Let the name `cuda` mean one of n NPUs; if `npu` is None, refuse it."""
    with ExitStack() as changes:
        node = Node(n, npu) if npu else None
        for where, name, value in [*(_npu_replacements(node) if node else _refusal_replacements())]:
            changes.enter_context(replace_attribute(where, name, value))
        if node:
            changes.enter_context(deferred_changes(node))
            changes.callback(_forget)
        yield


def _forget() -> None:
    """Clear the table of replaced functions in `torch.compile`, if that was loaded."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is not None:
        rules.clear_lru_cache()


def _npu_replacements(node: Node) -> Iterator[Replacement]:
    yield from device_argument_replacements(node)
    yield from tensor_move_replacements(node)
    yield from batch_norm_replacements()
    yield from cuda_replacements(node)
    yield Count, "host", staticmethod(node.host)
    yield dist, "is_nccl_available", lambda: True
    yield dist.distributed_c10d, "is_nccl_available", lambda: True


def _refusal_replacements() -> Iterator[Replacement]:
    """Yield replacements that refuse each use of a CUDA device; each has its own function, as torch.compile requires."""

    def refusing() -> Callable[..., NoReturn]:
        def refuse(*args: object, **kwargs: object) -> NoReturn:
            raise RunError(
                "cuda: the script asks for a CUDA device, and emulated NPUs compute on the CPU; take torch.device('cpu')"
            )

        return refuse

    yield torch.cuda, "_lazy_init", refusing()
    yield torch.cuda, "set_device", refusing()
    yield torch.cuda, "is_available", lambda: False
    yield torch.cuda, "device_count", lambda: 0
