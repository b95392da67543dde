"""The process that watches over a Ray: run as a script by `launch.ray.process`, it starts the one in which Ray lives.

It ends all that Ray has started, and removes its folder and its log, when whoever has started it is gone or when it is told to
end. It does nothing else, so that it can do so at any moment.
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

from emu.cluster.own.children import end_all
from emu.cluster.own.parent import adopts

_LEAVE_S = 5.0  # for Ray's own process to leave a Ray that was joined, and for a folder to be gone
_LOOK_S = 0.02


def main() -> None:
    """Start the process that Ray lives in, wait for its end or for that of whoever waits for it, and tidy up."""
    script, pipe, joined, *files = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "joined", *map(Path, sys.argv[4:])
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes)
    for number in (signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    with adopts():
        ray = subprocess.Popen([sys.executable, "-P", script, str(pipe)], pass_fds=(pipe,))
        told = _is_told(ray, pipe, woken)
        if told and joined:
            with suppress(subprocess.TimeoutExpired):
                ray.wait(_LEAVE_S)
        end_all(grace_s=0.0)
    if told:  # nobody is left to tidy up
        for path in files:
            _remove(path)
    sys.exit(ray.poll() or 0)


def _is_told(ray: "subprocess.Popen[bytes]", pipe: int, woken: int) -> bool:
    """Wait until Ray's process has ended, or this one is to end; return whether it is."""
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
    """Remove a file, or a folder in which Ray's last processes may still write for a moment."""
    until = time.monotonic() + _LEAVE_S
    while path.exists() and time.monotonic() < until:
        path.unlink() if path.is_file() else shutil.rmtree(path, ignore_errors=True)
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    main()
