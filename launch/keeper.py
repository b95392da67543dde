"""The process that a person has started: it waits for a child in which the command runs, and leaves nothing behind.

The child ends, and cleans up, if this process is killed. If the child is killed, this process ends whatever that has started,
and says of what it died. Signals that are sent to this process alone are passed on. Linux has what that takes; elsewhere the
command runs in the process that was started.
"""

import importlib
import os
import signal
import sys
import time
from contextlib import suppress

from emu.cluster.rank_state.parent_process import adopt_orphans, end_with_parent

_SENT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_DIED = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGKILL)
_TO_ALL_S = 0.05  # within which a signal that was sent to both processes has come to both
_GRACE_S = 5.0  # for Ray to tidy up
_FAILED = 1  # exit code


def keep() -> None:
    """Go on in a child of this process, and keep this process for what is to be done when the child has ended."""
    if sys.platform != "linux":
        return
    words, (heard, hears) = os.memfd_create("last words"), os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.pthread_sigmask(signal.SIG_BLOCK, (*_SENT, signal.SIGCHLD))
    parent = os.getpid()
    with adopt_orphans():
        child = os.fork()
        if child:
            os.close(hears)
            _end(_status(child, heard), words)
    os.close(heard)
    end_with_parent(signal.SIGTERM)
    _begin(words, hears)
    if os.getppid() != parent:  # it was killed before this process had asked to hear of that
        sys.exit(128 + signal.SIGTERM)


def _begin(words: int, hears: int) -> None:
    """Say what comes to this process: signals, and at its end which one has ended it, and where."""
    signal.set_wakeup_fd(hears, warn_on_full_buffer=False)
    # It is imported here, because its own imports would take time in the first process.
    importlib.import_module("emu.cluster.processes.fatal_signal").write_last_words(words)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (*_SENT, signal.SIGCHLD))


def _status(child: int, heard: int) -> int:
    """Wait until the child has ended; return how."""
    while True:
        came = signal.sigwaitinfo((*_SENT, signal.SIGCHLD))
        if came.si_signo == signal.SIGCHLD:
            status = _let_go(child)
            if status is not None:
                return status
        elif came.si_pid and not _has_come(came.si_signo, heard):  # the terminal's come to both, and from no process
            with suppress(ProcessLookupError):
                os.kill(child, came.si_signo)


def _let_go(child: int) -> int | None:
    """Let go of children that have ended; return how this one did, if it is among them."""
    found = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found = ended[1] if ended[0] == child else found
    return found


def _has_come(number: int, heard: int) -> bool:
    """Return whether a signal has come to the child, too, as where somebody sends it to all processes of a command."""
    time.sleep(_TO_ALL_S)
    with suppress(BlockingIOError):
        return number in os.read(heard, 4096)
    return False


def _end(status: int, words: int) -> None:
    """End what the child has left, and this process as the child has ended."""
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        # It is imported here, because there is rarely a process to end.
        importlib.import_module("emu.cluster.rank_state.child_processes").end_all(grace_s=_GRACE_S)
    code = os.waitstatus_to_exitcode(status)
    if code < 0 and -code in _DIED:
        _say(signal.Signals(-code), words)
        os._exit(_FAILED)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (-code,))
        os.kill(os.getpid(), -code)
    os._exit(code)


def _say(number: signal.Signals, words: int) -> None:
    """Tell of what the child has died."""
    fatal = importlib.import_module("emu.cluster.processes.fatal_signal")
    said = os.pread(words, os.fstat(words).st_size, 0).decode(errors="replace")
    print(f"emu: {fatal.own_death_in_words(number.name, said)}", file=sys.stderr, flush=True)  # noqa: T201 - what `click.echo` does
