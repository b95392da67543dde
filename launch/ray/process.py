"""The process in which Ray lives, seen from ours: started, asked, and ended with all that it has started.

Ray prints warnings and errors of its own to whatever terminal it finds, takes over signals and writes the environment; in a
process of its own its words go to a log file, and killing that process tree ends Ray.
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
_OPEN = "r"  # the folder in it that Ray works in
_LONGEST_BASE = 22  # of a folder for temporary files; with Ray's own names below it a socket's path is at most 107 bytes
_LABELS = (":job_id:", ":actor_name:")  # Ray's own, at the head of a worker's output
_CONNECT_S, _START_S = 5.0, 60.0
_LEAVE_S, _KILL_S = 5.0, 0.02
_LOOK_S, _END_S = 0.05, 1.0  # at whether a job has failed, and for its processes to end then


class RayProcess:
    """A Ray of our own, or our part in one that runs.

    Args:
        address: Of the Ray to join; "" starts one on this machine.
        options: Where actors are placed, and in which environment.

    Raises:
        InputError: no Ray answers at the address.
        RunError: Ray does not start.
    """

    def __init__(self, address: str = "", options: RayOptions | None = None) -> None:
        if address:
            _check_answers(address)
        base = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _LONGEST_BASE else "/tmp"
        self._folder = Path(tempfile.mkdtemp(prefix="emu-", dir=base))  # ours alone; Ray opens the one that it is given to all
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
            self.end(keep_log=not address and isinstance(error, RunError))  # which names it
            raise

    def _begin(self, address: str) -> str:
        """The address of this machine that Ray knows it by; "" where there is no other machine."""
        said = str(self._receive()) if self._pipe.poll(_START_S) else f"Ray: no answer within {_START_S:g} s"
        if ": " not in said:
            return said
        line = " ".join(said.split())[:200]
        if address:
            raise _no_ray(address, line)
        raise RunError(f"ray: does not start: {line}; log: {self.log}")

    def ask(self, n: int, job: bytes, failing: Event) -> list[tuple[int, str, bytes, str]]:
        """Run a job; (process, how, ended, said) of every process, or of the first to end if any failed.

        Args:
            n: Processes.
            job: Pickled.
            failing: Set once the job has failed: processes that do not end soon after are ended.

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
        with suppress(ConnectionError):  # a process that has ended is told of by `_receive`
            self._pipe.send(what)

    def _receive(self) -> Any:
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
        """Remove what this has made; a process that has been started, and that nobody knows of, ends with the pipe."""
        self.log.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _gather_logs(self) -> None:
        """Append what the ranks' own processes have printed, and Ray's errors."""
        logs = self._folder / _OPEN / "session_latest" / "logs"
        with self.log.open("a", encoding="utf-8") as log:
            for printed in sorted({*logs.glob("worker-*.*"), *logs.glob("*.err")}):
                lines = printed.read_text(encoding="utf-8", errors="replace").splitlines()
                kept = [line for line in lines if not line.startswith(_LABELS)]
                if kept:
                    log.write("\n".join((f"--- {printed.name}", *kept, "")))


def _check_answers(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would try for many minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise must_be("--ray-address", "the address", "HOST:PORT", address, "e.g. 127.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise _no_ray(address, str(error)) from error


def _no_ray(address: str, why: str) -> InputError:
    return must_be("--ray-address", "the address", "that of a Ray that runs", address, why)


def _start(pipe: int, log: int, joined: bool, *files: Path) -> "subprocess.Popen[bytes]":
    script = Path(__file__).with_name("actors.py")
    # -P: the script's own folder must not hide packages from Ray. A session of its own: Ctrl-C comes to us alone.
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
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "OMP_NUM_THREADS": "1"}
    if joined:
        return settings
    return settings | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _kill_session(leader: int) -> None:
    """Kill a process and what it has started: its descendants, and those of its session whose parents have died.

    It goes last, as it is given the descendants whose own parents have died, whatever session they are in.
    """
    until = time.monotonic() + _LEAVE_S
    while (family := _family(leader)) and time.monotonic() < until:
        for process in family:
            with suppress(psutil.NoSuchProcess):
                if process.pid != leader or len(family) == 1:
                    process.kill()
        time.sleep(_KILL_S)


def _family(leader: int) -> set[psutil.Process]:
    found = set[psutil.Process]()
    with suppress(psutil.NoSuchProcess):
        found |= {*psutil.Process(leader).children(recursive=True)}
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(process.pid) == leader:
                found.add(process)
    return {process for process in found if _lives(process)}


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
