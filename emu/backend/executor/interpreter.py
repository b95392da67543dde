"""The interpreter of compiled programs: it applies their operations to memories, and messages to the wire."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from emu.backend.executor.compiler.batches import StridedOperation, StridedRange
from emu.backend.executor.compiler.compiled_program import CompiledProgram, ProgramRound
from emu.backend.executor.compiler.crossing import WireMessage
from emu.backend.executor.reduction import FOLDS


class Pending(Protocol):
    """A transfer that has started."""

    def wait(self) -> object:
        """Block until the transfer has ended: what was sent may be overwritten, or what was received may be read."""


class Wire(Protocol):
    """A carrier of messages between this process's participants and those of others, in order within (src, dst, channel).

    A helper (a participant of n_ranks or above) lives with rank 0.
    """

    def send(self, src: int, dst: int, channel: int, data: Tensor) -> Pending:
        """Start to send `data`, which must not change until the wait is over."""

    def receive(self, src: int, dst: int, channel: int, data: Tensor) -> Pending:
        """Start to receive into `data`."""


def run_program(program: CompiledProgram, memories: Sequence[Tensor], reduce: str, wire: Wire | None) -> None:
    """Run a compiled program.

    While a round runs, the messages of the next round may arrive, and its own messages may still leave.
    """
    following = (*program.rounds, ProgramRound((), (), ()))[1:]
    coming, leaving = _receive(program.rounds[:1], memories, wire), list[Pending]()
    for each, after in zip(program.rounds, following, strict=True):
        awaited = [*coming, *leaving]
        leaving = [] if wire is None else [wire.send(t.here, t.peer, t.channel, _message_data(t, memories)) for t in each.sends]
        coming = _receive((after,), memories, wire)
        if each.overwrites:
            awaited, leaving = [*awaited, *leaving], []
        _wait(awaited)
        for batch in each.batches:
            _apply(batch, memories, reduce)
    _wait(leaving)


def _wait(under_way: Sequence[Pending]) -> None:
    for transfer in under_way:
        transfer.wait()


def _receive(rounds: Iterable[ProgramRound], memories: Sequence[Tensor], wire: Wire | None) -> list[Pending]:
    if wire is None:
        return []
    into = (t for each in rounds for t in each.receives)
    return [wire.receive(t.peer, t.here, t.channel, _stretch(memories, *t.pieces[0])) for t in into]


def _apply(batch: StridedOperation, memories: Sequence[Tensor], reduce: str) -> None:
    target, source = _view(memories, batch.target, batch.shape), _view(memories, batch.source, batch.shape)
    if batch.own is None:
        target.copy_(source)
    else:
        own = target if batch.own == batch.target else _view(memories, batch.own, batch.shape)
        FOLDS[reduce](own, source, out=target)


def _view(memories: Sequence[Tensor], stretch: StridedRange, shape: tuple[int, ...]) -> Tensor:
    found = memories[stretch.memory]
    return found.as_strided(shape, stretch.strides, found.storage_offset() + stretch.at)


def _stretch(memories: Sequence[Tensor], memory: int, at: int, count: int) -> Tensor:
    return _view(memories, StridedRange(memory, at, (1,)), (count,))


def _message_data(transfer: WireMessage, memories: Sequence[Tensor]) -> Tensor:
    pieces = [_stretch(memories, *piece) for piece in transfer.pieces]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)
