"""The watchdog of a Ray: it ends all of Ray's processes and removes its files when its parent is gone.

It ends all processes that Ray has started, and removes Ray's folder and log, when its parent is gone or asks it to end. It does
nothing else, so that it can do so at any moment.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from emu.cluster.child_processes import adopt_orphans, end_all

_LEAVE_S = 5.0  # seconds for Ray's process to leave a joined Ray, and for a folder to disappear
_LOOK_S = 0.02


def main() -> None:
    """Start the process in which Ray lives, wait for its end or for that of the parent, and clean up."""
    script, pipe, joined, *files = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "joined", *map(Path, sys.argv[4:])
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    with adopt_orphans():
        ray = subprocess.Popen([sys.executable, "-P", script, str(pipe)], pass_fds=(pipe,))
        must_end = _must_end(ray, pipe, woken)
        if must_end and joined:
            with suppress(subprocess.TimeoutExpired):
                ray.wait(_LEAVE_S)
        end_all(grace_s=0.0)
    if must_end:  # nobody else is left to clean up
        for path in files:
            _remove(path)
    sys.exit(ray.poll() or 0)


def _must_end(ray: "subprocess.Popen[bytes]", pipe: int, woken: int) -> bool:
    """Wait until Ray's process has ended or this process must end; return True in the second case.

    Args:
        ray: Ray's process.
        pipe: The descriptor of a pipe whose other end closes when the parent ends.
        woken: The descriptor from which the numbers of this process's signals are read.
    """
    events = select.poll()
    events.register(pipe, select.POLLRDHUP)
    events.register(woken, select.POLLIN)
    while ray.poll() is None:
        if pipe in (file for file, _ in events.poll()):
            return True
        if signal.SIGTERM in os.read(woken, 4096):
            return True
    return False


def _remove(path: Path) -> None:
    """Remove a file, or a folder to which Ray's last processes may still write for a moment."""
    until = time.monotonic() + _LEAVE_S
    while path.exists() and time.monotonic() < until:
        path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main()
