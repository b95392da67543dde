"""The parent process of a command: it runs the command in a child, and ends everything that the child leaves behind.

The child ends, and cleans up, if this process is killed. If the child is killed, this process ends the processes that the
child has started, and prints the cause. Signals that are sent to this process alone are passed on. All this needs Linux;
elsewhere the command runs in the process that was started.

Ctrl-C and SIGTERM: each raises an error that ends the command, and raises it again where Python ignores the first one.
"""

import importlib
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

from emu.cluster.child_processes import adopt_orphans, end_with_parent

_ENDING = (signal.SIGINT, signal.SIGTERM)
_held = threading.local()  # `before`: the signals that its thread had blocked before the fork
_AGAIN_S = 0.05
_LONGEST_S = 20  # time in which a command must end after SIGTERM


class TerminationSignal(KeyboardInterrupt):
    """The exception for SIGTERM, which ends a command as Ctrl-C does; a second SIGTERM ends it at once."""


STOPPED: list[KeyboardInterrupt] = []  # the errors that end this command; later errors are consequences


def install_signal_handlers() -> None:
    """Install the handlers by which Ctrl-C and SIGTERM end the command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _raise_again
    os.register_at_fork(before=_block_signals, after_in_parent=_restore_signals, after_in_child=_end_as_any_process)


def _raise_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Raise an error again that Python has ignored, as it does during a fork or in a destructor."""
    if ignored.exc_value not in STOPPED:
        sys.__unraisablehook__(ignored)
        return
    signal.signal(signal.SIGALRM, _raise_stopped)
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    """Raise the error that ends the command after a signal such as SIGTERM."""
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


def _block_signals() -> None:
    """Block the signals that end a command until a fork is complete."""
    _held.before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _restore_signals() -> None:
    """Restore the blocked signals from before the fork."""
    signal.pthread_sigmask(signal.SIG_SETMASK, _held.before)


def _end_as_any_process() -> None:
    """Restore the usual signal handlers in a process that the command has forked."""
    signal.set_wakeup_fd(-1)
    for number, ours, usual in (
        (signal.SIGINT, _interrupt, signal.default_int_handler),
        (signal.SIGTERM, _terminate, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is ours:
            signal.signal(number, usual)
    _restore_signals()


_SENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_DIED = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL)
_TO_ALL_S = 0.05  # time in which a signal to both processes reaches both
_GRACE_S = 5.0  # time for Ray to clean up
_FAILED = 1  # exit code


def run_in_child() -> None:
    """Continue in a child of this process, and keep this process to clean up after the child."""
    if sys.platform != "linux":
        return
    last_words_fd, (signals_read, signals_write) = os.memfd_create("last words"), os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_SENT, signal.SIGCHLD))
    parent = os.getpid()
    with adopt_orphans():
        child = os.fork()
        if child:
            os.close(signals_write)
            _end_like_child(_status(child, signals_read), last_words_fd)
    os.close(signals_read)
    end_with_parent(signal.SIGTERM)
    _begin_reporting(last_words_fd, signals_write)
    if os.getppid() != parent:  # the parent was killed before this process asked for a signal
        sys.exit(128 + signal.SIGTERM)


def _begin_reporting(last_words_fd: int, signals_write: int) -> None:
    """Let this process, a child that has just begun, report signals to its parent.

    Python writes the number of each signal to a pipe as it arrives. A fatal signal, such as a segmentation fault, is written to
    a file with the line of code that ran.

    Args:
        last_words_fd: The descriptor of the file for the fatal signal.
        signals_write: The descriptor of the end of the pipe to which the numbers of signals are written.
    """
    signal.set_wakeup_fd(signals_write, warn_on_full_buffer=False)
    # It is imported here, because its own imports would take time in the first process.
    importlib.import_module("emu.cluster.rank_failure").write_last_words(last_words_fd)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_SENT, signal.SIGCHLD))


def _status(child: int, signals_read: int) -> int:
    """Wait until the child has ended while passing signals on to it, and return its wait status, as `os.waitpid` does."""
    while True:
        came = signal.sigwaitinfo((*_SENT, signal.SIGCHLD))
        if came.si_signo == signal.SIGCHLD:
            status = _reap(child)
            if status is not None:
                return status
        elif came.si_pid and not _has_come(came.si_signo, signals_read):  # a terminal's, without a sender, reach both processes
            with suppress(ProcessLookupError):
                os.kill(child, came.si_signo)


def _reap(child: int) -> int | None:
    """Reap children that have ended; return the wait status of `child`, as `os.waitpid` does, or None if it still runs."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found = ended[1] if ended[0] == child else found
    return found


def _has_come(number: int, signals_read: int) -> bool:
    """Return whether the child has received a signal as well, so that it need not be passed on."""
    time.sleep(_TO_ALL_S)
    with suppress(BlockingIOError):
        return number in os.read(signals_read, 4096)
    return False


def _end_like_child(status: int, last_words_fd: int) -> None:
    """End the processes that the child has left, then end this process as the child ended.

    If a signal ended the child, this process sends itself that signal. After a crash, such as a segmentation fault, it reports
    the crash instead and exits with the code of a failure.

    Args:
        status: The exit status of the child, as `os.waitpid` gives it.
        last_words_fd: The descriptor of the file to which the child has written its fatal signal.
    """
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        # It is imported here, because there is rarely a process to end.
        importlib.import_module("emu.cluster.child_processes").end_all(grace_s=_GRACE_S)
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and -code in _DIED:
        _report_death(signal.Signals(-code), last_words_fd)
        os._exit(_FAILED)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (-code,))
        os.kill(os.getpid(), -code)
    os._exit(code)


def _report_death(number: signal.Signals, last_words_fd: int) -> None:
    """Print the signal that ended the child, with its last words."""
    fatal = importlib.import_module("emu.cluster.rank_failure")
    said = os.pread(last_words_fd, os.fstat(last_words_fd).st_size, 0).decode(errors="replace")
    print(f"emu: {fatal.own_death_in_words(number.name, said)}", file=sys.stderr, flush=True)  # noqa: T201 - as `click.echo`
