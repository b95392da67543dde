"""Ctrl-C and SIGTERM, which end a command: each is raised in it as an error, and raised again where Python ignores that."""

import os
import signal
import sys
import threading
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM)
_held = threading.local()  # its `before`: the signals that its thread does not take at other times
_AGAIN_S = 0.05
_LONGEST_S = 20  # for a command to end that was told to: whoever has told it may be gone


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a command as Ctrl-C does; a second one ends it at once, and so does the system after a while."""


STOPPED: list[KeyboardInterrupt] = []  # by what this command is to end: what is raised after it comes of it


def listen() -> None:
    """Let Ctrl-C, where it is not ignored, and SIGTERM end the command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _raise_again
    os.register_at_fork(before=_hold, after_in_parent=_let_come, after_in_child=_end_as_any_process)


def _raise_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Raise once more by what a command is to end, where Python ignores errors: it does as it forks, or lets go of objects."""
    if ignored.exc_value not in STOPPED:
        sys.__unraisablehook__(ignored)
        return
    signal.signal(signal.SIGALRM, _again)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


def _again(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if isinstance(STOPPED[-1], Terminated):
        signal.alarm(_LONGEST_S)
    raise STOPPED[-1]


def _interrupt(number: int, frame: FrameType | None) -> None:
    STOPPED.append(KeyboardInterrupt())
    raise STOPPED[-1]


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LONGEST_S)
    STOPPED.append(Terminated())
    raise STOPPED[-1]


def _hold() -> None:
    """Let no signal come between a fork and what the child does at once: Python would forget it."""
    _held.before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _let_come() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.before)


def _end_as_any_process() -> None:
    """Leave to a process that the command forks nothing of how the command hears of signals."""
    signal.set_wakeup_fd(-1)
    for number, ours, usual in (
        (signal.SIGINT, _interrupt, signal.default_int_handler),
        (signal.SIGTERM, _terminate, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is ours:
            signal.signal(number, usual)
    _let_come()
