"""Parts of PyTorch that open connections of their own, past the process groups: they are refused, or told of."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

from emu.cluster.own.device import replaced
from emu.cluster.own.own import loads
from emu.cluster.strands.strand import current
from emu.errors import RunError

_RPC = "torch.distributed.rpc"
_CHECKPOINT = "torch.distributed.checkpoint._async_process_executor"
_log = logging.getLogger("emu")


@contextmanager
def past_the_groups() -> Iterator[None]:
    """Refuse remote procedure calls, and tell of processes that save checkpoints, also if these modules are loaded later."""
    with ExitStack() as changes:

        def change(module: str) -> None:
            found: Any = sys.modules[module]
            if module == _RPC:
                changes.enter_context(replaced(found, "init_rpc", _init_rpc))
            else:
                saver = found._AsyncCheckpointProcess
                changes.enter_context(replaced(saver, "__init__", _telling(saver.__init__)))

        for module in (_RPC, _CHECKPOINT):
            if module in sys.modules:
                change(module)
        with loads((_RPC, _CHECKPOINT), change):
            yield


def _init_rpc(*_: object, **__: object) -> NoReturn:
    raise RunError(
        "init_rpc: remote procedure calls are not emulated, as their threads and sockets know no fabric; "
        "take collectives, send and recv, or a store"
    )


def _telling(start: Callable[..., None]) -> Callable[..., None]:
    """Return what starts the process that saves a rank's checkpoints, and says of the first that it takes no virtual time."""

    def started(saver: Any, *args: Any, **kwargs: Any) -> None:
        strand = current()
        if strand is not None and strand.rank == 0:
            _log.info("PyTorch saves checkpoints in processes of its own, which talk over gloo: that takes no virtual time")
        start(saver, *args, **kwargs)

    return started
