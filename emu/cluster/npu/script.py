"""All that a script finds of the NPUs, while its ranks run, and its undo; or their refusal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NoReturn

import torch
import torch.distributed as dist

from emu.backend.rank.count import Count
from emu.cluster.npu.cuda import cuda
from emu.cluster.npu.later import later
from emu.cluster.npu.moves import moves
from emu.cluster.npu.norms import norms
from emu.cluster.npu.npu import Node, Npu
from emu.cluster.npu.takes import takes
from emu.cluster.once import Replacement
from emu.cluster.own.device import replaced
from emu.errors import RunError


@contextmanager
def as_npus(npu: Npu | None, n: int) -> Iterator[None]:
    """The name `cuda` means one of n NPUs; without any it is refused."""
    with ExitStack() as changes:
        node = Node(n, npu) if npu else None
        for where, name, value in [*(_named(node) if node else _refused())]:
            changes.enter_context(replaced(where, name, value))
        if node:
            changes.enter_context(later(node))
            changes.callback(_forget)
        yield


def _forget() -> None:
    """What `torch.compile` has taken down of functions that were replaced, if it was loaded meanwhile."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    if rules is not None:
        rules.clear_lru_cache()


def _named(node: Node) -> Iterator[Replacement]:
    yield from takes(node)
    yield from moves(node)
    yield from norms()
    yield from cuda(node)
    yield Count, "host", staticmethod(node.host)
    yield dist, "is_nccl_available", lambda: True
    yield dist.distributed_c10d, "is_nccl_available", lambda: True


def _refused() -> Iterator[Replacement]:
    """In place of what every use of a CUDA device comes by; a function each, as torch.compile keeps a table of them."""

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
