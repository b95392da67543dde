"""The process in which Ray runs, as the command sees it: started, given jobs, and ended with all that it has started.

Ray prints to any terminal that it finds, takes over signals and changes the environment. In a process of its own its output
goes to a log file, and ending that process tree ends Ray.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from threading import Event
from typing import Any

import psutil

from emu.errors import InputError, RunError, must_be
from launch.ray.options import RayOptions

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_LEADER = Path(__file__).with_name("leader.py")
_OPEN = "r"  # name of Ray's own folder inside ours
_LONGEST_BASE = 22  # longest path of a temporary folder: socket paths below it have at most 107 bytes
_LABELS = (":job_id:", ":actor_name:")  # lines that Ray writes to the output of a worker
_CONNECT_S, _START_S = 5.0, 60.0
_LEAVE_S, _KILL_S = 5.0, 0.02
_LOOK_S, _END_S = 0.05, 1.0  # time between looks at a job, and for its processes to end


class RayProcess:
    """A Ray that was started here, or a connection to a running one.

    Args:
        address: The address of the Ray to join; "": one is started on this machine.
        options: The placement and the environment of actors.

    Raises:
        InputError: no Ray answers at the address.
        RunError: Ray does not start.
    """

    def __init__(self, address: str = "", options: RayOptions | None = None) -> None:
        if address:
            _check_answers(address)
        base = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _LONGEST_BASE else "/tmp"
        self._folder = Path(tempfile.mkdtemp(prefix="emu-", dir=base))  # private; Ray makes its own folder readable for all
        self.log = self._folder.with_name(f"{self._folder.name.replace('-', '-ray-')}.log")
        self._joined = bool(address)
        self._pipe, theirs = Pipe()
        try:
            with theirs, os.fdopen(os.open(self.log, _NEW, 0o600), "wb") as log:
                self._process = _start(theirs.fileno(), log.fileno(), self._joined, self._folder, self.log)
        except BaseException:
            self._forget()
            raise
        asked = options or RayOptions()
        try:
            self._send((address, str(self._folder / _OPEN), dict(asked.runtime_env), asked.placement))
            self.node = self._begin(address)
        except BaseException as error:
            self.end(keep_log=not address and isinstance(error, RunError))  # the error names the log
            raise

    def _begin(self, address: str) -> str:
        """Return the address of this machine in Ray; "" where there is no other machine.

        Raises:
            InputError: the Ray to join does not answer.
            RunError: Ray does not start.
        """
        said = str(self._receive()) if self._pipe.poll(_START_S) else f"Ray: no answer within {_START_S:g} s"
        if ": " not in said:
            return said
        line = " ".join(said.split())[:200]
        if address:
            raise _no_ray(address, line)
        raise RunError(f"ray: does not start: {line}; log: {self.log}")

    def ask(self, n: int, job: bytes, failing: Event) -> list[tuple[int, str, bytes, str]]:
        """Run a job; return (process, how, result, message) of every process, or of those that ended before one failed.

        Args:
            n: The number of processes.
            job: The pickled job.
            failing: An event that is set once the job has failed; processes that do not end soon after are ended.

        Raises:
            RunError: the process itself is gone.
        """
        self._send((n, job))
        until = float("inf")
        while not self._pipe.poll(_LOOK_S):
            if failing.is_set():
                until = min(until, time.monotonic() + _END_S)
            if time.monotonic() > until:
                self._send(())
                break
        answers: list[tuple[int, str, bytes, str]] = self._receive()
        return answers

    def _send(self, what: tuple[Any, ...]) -> None:
        """Send a message to the process."""
        with suppress(ConnectionError):  # `_receive` reports a process that has ended
            self._pipe.send(what)

    def _receive(self) -> Any:
        """Return the next message of the process.

        Raises:
            RunError: the process has ended.
        """
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            raise RunError(f"ray: its process has ended with code {self._process.wait()}; log: {self.log}") from error

    def end(self, *, keep_log: bool) -> None:
        """End Ray and every process that it has started, or leave the Ray that was joined."""
        if self._joined:
            self._pipe.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LEAVE_S)
        _kill_session(self._process.pid)
        self._process.wait()
        self._pipe.close()
        if keep_log:
            self._gather_logs()
            shutil.rmtree(self._folder, ignore_errors=True)
        else:
            self._forget()

    def _forget(self) -> None:
        """Remove the folder and the log."""
        self.log.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _gather_logs(self) -> None:
        """Append to the log what the processes of ranks printed, and Ray's errors."""
        logs = self._folder / _OPEN / "session_latest" / "logs"
        with self.log.open("a", encoding="utf-8") as log:
            for printed in sorted({*logs.glob("worker-*.*"), *logs.glob("*.err")}):
                lines = printed.read_text(encoding="utf-8", errors="replace").splitlines()
                kept = [line for line in lines if not line.startswith(_LABELS)]
                if kept:
                    log.write("\n".join((f"--- {printed.name}", *kept, "")))


def _check_answers(address: str) -> None:
    """Refuse an address where nothing listens; Ray itself would try for many minutes.

    Raises:
        InputError: the address is malformed, or nothing listens there.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise must_be("--ray-address", "the address", "HOST:PORT", address, "e.g. 127.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise _no_ray(address, str(error)) from error


def _no_ray(address: str, why: str) -> InputError:
    """Return the error of an address where no Ray answers."""
    return must_be("--ray-address", "the address", "that of a Ray that runs", address, why)


def _start(pipe: int, log: int, joined: bool, *files: Path) -> "subprocess.Popen[bytes]":
    """Start the leader process, and return it."""
    script = Path(__file__).with_name("actors.py")
    # -P: the script's own folder must not hide packages from Ray. A new session: Ctrl-C reaches this process alone.
    return subprocess.Popen(
        [sys.executable, "-P", str(_LEADER), str(script), str(pipe), "joined" if joined else "own", *map(str, files)],
        pass_fds=(pipe,),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env=os.environ | _environment(joined=joined),
    )


def _environment(*, joined: bool) -> dict[str, str]:
    """Return the environment variables of Ray's processes."""
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "OMP_NUM_THREADS": "1"}
    if joined:
        return settings
    return settings | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _kill_session(leader: int) -> None:
    """Kill a process and everything that it has started: its descendants, and orphans of its session.

    The process itself goes last, because orphans of other sessions are handed to it.
    """
    until = time.monotonic() + _LEAVE_S
    while (family := _family(leader)) and time.monotonic() < until:
        for process in family:
            with suppress(psutil.NoSuchProcess):
                if process.pid != leader or len(family) == 1:
                    process.kill()
        time.sleep(_KILL_S)


def _family(leader: int) -> set[psutil.Process]:
    """Return the living descendants of a process, and the living processes of its session."""
    found = set[psutil.Process]()
    with suppress(psutil.NoSuchProcess):
        found |= {*psutil.Process(leader).children(recursive=True)}
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == leader:
                found.add(process)
    return {process for process in found if _is_alive(process)}


def _is_alive(process: psutil.Process) -> bool:
    """Return whether a process exists and is not a zombie."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
