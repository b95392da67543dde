"""Parts of PyTorch that open connections of their own, beside the process groups: some are refused, others reported."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

from emu.cluster.rank_state.rank_state import watch_imports
from emu.cluster.rank_state.replacement import replace_attributes
from emu.cluster.strands.strand import current_strand
from emu.errors import RunError

_RPC = "torch.distributed.rpc"
_CHECKPOINT = "torch.distributed.checkpoint._async_process_executor"
_log = logging.getLogger("emu")


@contextmanager
def guard_connections() -> Iterator[None]:
    """Refuse remote procedure calls, and report processes that save checkpoints, in modules loaded before or later."""
    with ExitStack() as changes:

        def change(module: str) -> None:
            found: Any = sys.modules[module]
            if module == _RPC:
                changes.enter_context(replace_attributes((found, "init_rpc", _init_rpc)))
            else:
                saver = found._AsyncCheckpointProcess
                changes.enter_context(replace_attributes((saver, "__init__", _with_notice(saver.__init__))))

        for module in (_RPC, _CHECKPOINT):
            if module in sys.modules:
                change(module)
        with watch_imports((_RPC, _CHECKPOINT), change):
            yield


def _init_rpc(*_: object, **__: object) -> NoReturn:
    raise RunError(
        "init_rpc: remote procedure calls are not emulated, as their threads and sockets know no fabric; "
        "take collectives, send and recv, or a store"
    )


def _with_notice(start: Callable[..., None]) -> Callable[..., None]:
    """Return a function that starts the process that saves checkpoints; it logs once that this takes no virtual time."""

    def started(saver: Any, *args: Any, **kwargs: Any) -> None:
        strand = current_strand()
        if strand is not None and strand.rank == 0:
            _log.info("PyTorch saves checkpoints in processes of its own, which talk over gloo: that takes no virtual time")
        start(saver, *args, **kwargs)

    return started
