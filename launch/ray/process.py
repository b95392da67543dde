"""The handle of the process that hosts Ray: it is started, sent jobs, and ended with all its processes.

Ray prints warnings and errors to any terminal that it finds, takes over signals and writes the environment. In a process of its
own its output goes to a log file, and the end of that process tree ends Ray.

The options of Ray's actors, in Ray's own words: `--ray-options FILE.toml`.
"""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from pathlib import Path
from threading import Event
from types import ModuleType
from typing import Any

import psutil
import ray

from emu.cluster.child_processes import has_ended
from emu.errors import InputError, RunError, must_be
from emu.topology.description.values import check_keys, load_toml, read_word
from emu.units import is_whole
from launch.ray.actors import ActorResult

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_KEYS = ("strategy", "resources", "wait_s", "runtime_env")


@dataclass(frozen=True, slots=True)
class RayOptions:
    """The placement and the environment of actors.

    Without a strategy or resources an actor takes no resources, and Ray spreads them over the nodes.
    """

    strategy: str | None = None  # the strategy of a placement group that has one bundle for each actor
    resources: Mapping[str, float] = field(default_factory=dict)  # the resources of each actor
    wait_s: float = 30.0  # seconds to wait for room for all actors
    runtime_env: Mapping[str, Any] = field(default_factory=dict)

    @property
    def placement(self) -> tuple[str, dict[str, float], float] | None:
        """The strategy, the resources and the seconds to wait; None: Ray places actors freely."""
        if self.strategy is None and not self.resources:
            return None
        return self.strategy or "PACK", dict(self.resources) or {"CPU": 1.0}, self.wait_s


def read_options(path: Path | None, brings: Path | None = None) -> RayOptions:
    """Return Ray's options from a file, or the defaults.

    Args:
        path: The file, which must exist; None: the defaults.
        brings: A folder that Ray copies to its nodes, unless the file names another.

    Raises:
        InputError: a file that cannot be read, an unknown key, or an invalid value.
    """
    brought = {} if brings is None else {"working_dir": str(brings)}
    if path is None:
        return RayOptions(runtime_env=brought)
    given = load_toml(path, "--ray-options", str(path))
    check_keys(given, _KEYS, path.name)
    strategy = read_word(given["strategy"], "strategy", STRATEGIES, path.name) if "strategy" in given else None
    resources = given.get("resources", {})
    if not isinstance(resources, dict) or not all(_is_amount(amount) for amount in resources.values()):
        raise must_be(path.name, "resources", "amounts above 0 by name", resources, "such as { CPU = 1, npu = 1 }")
    wait_s, env = given.get("wait_s", 30.0), given.get("runtime_env", {})
    if not _is_amount(wait_s):
        raise must_be(path.name, "wait_s", "seconds above 0", wait_s)
    if not isinstance(env, dict):
        raise must_be(path.name, "runtime_env", "a table as Ray takes it", env, "see Ray's pages on runtime environments")
    return RayOptions(strategy, resources, float(wait_s), brought | env)


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def pickled_by_value(thing: object, modules: Collection[ModuleType]) -> bytes:
    """Return an object pickled to bytes, with the code of the given modules by value."""
    cloudpickle: Any = ray.cloudpickle  # Ray has no types for it
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(thing))
    finally:
        for module in modules:
            with suppress(ValueError):
                cloudpickle.unregister_pickle_by_value(module)


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_WATCHDOG = Path(__file__).with_name("ray_watchdog.py")
_OPEN = "r"  # the folder, inside the temporary one, in which Ray works
_LONGEST_BASE = 22  # the longest base folder: with Ray's own names below it a socket's path has at most 107 bytes
_LABELS = (":job_id:", ":actor_name:")  # Ray's own lines at the head of a worker's output
_CONNECT_S, _START_S = 5.0, 60.0
_LEAVE_S, _KILL_S = 5.0, 0.02
_LOOK_S, _END_S = 0.05, 1.0  # seconds between two looks for a failed job, and for its processes to end then


class RayProcess:
    """A Ray that was started here, or a connection to one that was already running.

    Args:
        address: The address of the Ray to join; "" starts one on this machine.
        options: The placement and the environment of actors.
        script: The script beside this file that is run in the process in which Ray lives.

    Raises:
        InputError: no Ray answers at the address.
        RunError: Ray does not start.
    """

    def __init__(self, address: str = "", options: RayOptions | None = None, script: str = "actors.py") -> None:
        if address:
            _check_answers(address)
        base = tempfile.gettempdir() if len(tempfile.gettempdir()) <= _LONGEST_BASE else "/tmp"
        self._folder = Path(tempfile.mkdtemp(prefix="emu-", dir=base))  # private; Ray opens its own folder to all users
        self.log = self._folder.with_name(f"{self._folder.name.replace('-', '-ray-')}.log")
        self._joined = bool(address)
        self._pipe, theirs = Pipe()
        try:
            with theirs, os.fdopen(os.open(self.log, _NEW, 0o600), "wb") as log:
                self._process = _start(script, theirs.fileno(), log.fileno(), self._joined, self._folder, self.log)
        except BaseException:
            self._forget()
            raise
        asked = options or RayOptions()
        try:
            self.send((address, str(self._folder / _OPEN), dict(asked.runtime_env), asked.placement))
            self.node = self._begin(address)
        except BaseException as error:
            self.end(keep_log=not address and isinstance(error, RunError))  # the error names the log
            raise

    def _begin(self, address: str) -> str:
        """Wait until Ray has started or is joined, and return this machine's address as Ray knows it; "" if it is alone."""
        said = str(self.receive()) if self._pipe.poll(_START_S) else f"Ray: no answer within {_START_S:g} s"
        if ": " not in said:
            return said
        line = " ".join(said.split())[:200]
        if address:
            raise _no_ray(address, line)
        raise RunError(f"ray: does not start: {line}; log: {self.log}")

    def ask(self, n: int, job: bytes, failing: Event) -> list[ActorResult]:
        """Run a job, and return (process, how, ended, said) of every process, or of the first to end if one failed.

        Args:
            n: The number of processes.
            job: The pickled job.
            failing: An event that is set when the job has failed: processes that do not end soon after are ended.

        Raises:
            RunError: the process in which Ray lives is gone.
        """
        self.send((n, job))
        until = float("inf")
        while not self._pipe.poll(_LOOK_S):
            if failing.is_set():
                until = min(until, time.monotonic() + _END_S)
            if time.monotonic() > until:
                self.send(())
                break
        answers: list[ActorResult] = self.receive()
        return answers

    def send(self, what: Any) -> None:
        """Send a message to the process in which Ray lives."""
        with suppress(ConnectionError):  # `receive` reports a process that has ended
            self._pipe.send(what)

    def has_sent(self) -> bool:
        """Return whether a message from the process is waiting, or the process has ended."""
        return self._pipe.poll()

    def receive(self) -> Any:
        """Return the next message from the process in which Ray lives.

        Raises:
            RunError: the process is gone.
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
        """Remove the folder and the log; a process that was started unnoticed ends with the pipe."""
        self.log.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _gather_logs(self) -> None:
        """Append the output of the ranks' processes, and Ray's errors, to the log."""
        logs = self._folder / _OPEN / "session_latest" / "logs"
        with self.log.open("a", encoding="utf-8") as log:
            for printed in sorted({*logs.glob("worker-*.*"), *logs.glob("*.err")}):
                lines = printed.read_text(encoding="utf-8", errors="replace").splitlines()
                kept = [line for line in lines if not line.startswith(_LABELS)]
                if kept:
                    log.write("\n".join((f"--- {printed.name}", *kept, "")))


def _check_answers(address: str) -> None:
    """Check that something listens at an address; Ray itself would try for many minutes."""
    host, _, port = address.rpartition(":")
    if not host or not is_whole(port):
        raise must_be("--ray-address", "the address", "HOST:PORT", address, "e.g. 127.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        raise _no_ray(address, str(error)) from error


def _no_ray(address: str, why: str) -> InputError:
    return must_be("--ray-address", "the address", "that of a Ray that runs", address, why)


def _start(name: str, pipe: int, log: int, joined: bool, *files: Path) -> "subprocess.Popen[bytes]":
    script = Path(__file__).with_name(name)
    # -P: the script's own folder must not hide packages from Ray. A session of its own: Ctrl-C comes to us alone.
    return subprocess.Popen(
        [sys.executable, "-P", str(_WATCHDOG), str(script), str(pipe), "joined" if joined else "own", *map(str, files)],
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
    # As on other systems, where Ray takes 127.0.0.1 for the address of this machine, and then listens nowhere else.
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    return settings | loopback | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def _kill_session(leader: int) -> None:
    """Kill a process and all processes that it has started: its descendants, and those of its session whose parents died.

    The process goes last, because it adopts the descendants whose own parents have died, whatever session they are in.
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
    return {process for process in found if not has_ended(process)}
