"""Ctrl-C and SIGTERM: each raises an error that ends the command, and raises it again where Python ignores the first one."""

import os
import signal
import sys
import threading
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM)
_held = threading.local()  # `before`: the signals that its thread had blocked before the fork
_AGAIN_S = 0.05
_LONGEST_S = 20  # time in which a command must end after SIGTERM


class TerminationSignal(KeyboardInterrupt):
    """The error of SIGTERM, which ends a command as Ctrl-C does; a second SIGTERM ends it at once."""


STOPPED: list[KeyboardInterrupt] = []  # the errors that end this command; later errors are consequences


def listen() -> None:
    """Let Ctrl-C, where it is not ignored, and SIGTERM end the command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _raise_again
    os.register_at_fork(before=_hold, after_in_parent=_let_come, after_in_child=_end_as_any_process)


def _raise_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Raise the error once more after Python has ignored it, as Python does during a fork or while an object is deleted."""
    if ignored.exc_value not in STOPPED:
        sys.__unraisablehook__(ignored)
        return
    signal.signal(signal.SIGALRM, _raise_stopped)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    """Raise the error that ends the command."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if isinstance(STOPPED[-1], TerminationSignal):
        signal.alarm(_LONGEST_S)
    raise STOPPED[-1]


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise the error of Ctrl-C."""
    STOPPED.append(KeyboardInterrupt())
    raise STOPPED[-1]


def _terminate(number: int, frame: FrameType | None) -> None:
    """Raise the error of SIGTERM; the system ends the process if that takes 20 s."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_LONGEST_S)
    STOPPED.append(TerminationSignal())
    raise STOPPED[-1]


def _hold() -> None:
    """Block the signals that end a command until the fork is complete, because Python would lose them."""
    _held.before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _let_come() -> None:
    """Restore the blocked signals from before the fork."""
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.before)


def _end_as_any_process() -> None:
    """Give a process that the command has forked the usual signal handlers."""
    signal.set_wakeup_fd(-1)
    for number, ours, usual in (
        (signal.SIGINT, _interrupt, signal.default_int_handler),
        (signal.SIGTERM, _terminate, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is ours:
            signal.signal(number, usual)
    _let_come()
