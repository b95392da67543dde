"""Run PyTorch's `DistributedTest` in one place: python -m benchmarks.conformance.suite gloo|processes|threads OUT [NAME ...].

The tests ship with torch. Without ranks that are started, many of them pass with nothing run: here every rank leaves a file
when it begins a test, and a test has passed only where all have.
"""

import contextlib
import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from emu.backend.executor.wire import LOOPBACK
from emu.cluster.cluster import on_every_rank
from emu.cluster.processes.coordinator import Coordinator
from emu.cluster.processes.job_process import JobProcess
from emu.cluster.script_run import group_replacements
from emu.cluster.threads.threads import ThreadRanks
from emu.collective.choice import Choice

N = 3
FAILED = 10  # the exit code by which PyTorch's harness knows a failed rank
_LEAVE_S = 10.0
FORK = multiprocessing.get_context("fork")


def tests_on(place: str, folder: Path) -> type[unittest.TestCase]:
    """PyTorch's class of tests, each of which runs on N ranks at that place.

    They ask for gloo by its name, and get the emulated group, as a script does.
    """
    for name in ("barrier", "test_dir", "init_dir"):
        (folder / name).mkdir()
    os.environ |= {"BACKEND": "gloo", "WORLD_SIZE": str(N), "TEMP_DIR": str(folder), "GLOO_SOCKET_IFNAME": "lo"}
    from torch.testing._internal.distributed import distributed_test  # noqa: PLC0415 - it reads the environment

    class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._places = contextlib.ExitStack()
            _START[place](self, folder)

        def tearDown(self) -> None:
            super().tearDown()
            self._places.close()

    if place != "gloo":
        for module, name, replacement in group_replacements():
            setattr(module, name, replacement)
    if place == "threads":  # which share a process
        distributed_test.Barrier.sync = classmethod(lambda *_, **__: dist.barrier())
        torch.autograd.profiler.profile = _NoProfile
    return Tests


class _NoProfile(contextlib.nullcontext[Any]):
    """In place of a profile, of which a process can take one at a time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()


def started(folder: Path, name: str) -> int:
    """How many ranks have begun a test."""
    return len(list(folder.glob(f"started-{name}-*")))


def _body(tests: Any, folder: Path, name: str, file: str, rank: int) -> int:
    """One rank's part of a test; its exit code."""
    test = tests(name)
    test.rank, test.file_name = rank, file
    (folder / f"started-{name}-{rank}").touch()
    from torch.testing._internal import common_utils  # noqa: PLC0415
    from torch.testing._internal.common_distributed import TEST_SKIPS  # noqa: PLC0415

    common_utils.set_rng_seed()
    try:
        getattr(test, name)()
    except unittest.SkipTest:
        return int(TEST_SKIPS["generic"].exit_code)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _start_gloo(test: Any, folder: Path) -> None:
    name = test._current_test_name()

    class Rank(FORK.Process):  # type: ignore[name-defined]
        def run(self) -> None:
            (folder / f"started-{name}-{self.name.split()[-1]}").touch()
            super().run()

    test._start_processes(Rank)


def _start(test: Any, n: int, be: Callable[..., int]) -> None:
    """N processes of one function, in the way in which PyTorch's harness knows them."""
    gc.collect()
    gc.freeze()  # a store of the tests before would wait in a fork for its thread, which only the process that was forked has
    for process in range(n):
        ours, theirs = FORK.Pipe()
        started_one = FORK.Process(target=_leave_with, args=(be, process), name=f"process {process}")
        started_one.start()
        theirs.close()
        test.pid_to_pipe[started_one.pid] = ours
        test.processes.append(started_one)
    gc.unfreeze()


def _leave_with(be: Callable[[int], int], process: int) -> None:
    try:
        code = be(process)
    except BaseException:
        traceback.print_exc()
        code = FAILED
    sys.stdout.flush()
    os._exit(code)


def _start_processes(test: Any, folder: Path) -> None:
    name = test._current_test_name()
    body = partial(_body, type(test), folder, name, test.file_name)
    coordinator = test._places.enter_context(Coordinator(N, Choice(), LOOPBACK, lambda *_: None))

    def be(process: int) -> int:
        job = JobProcess(on_every_rank(body), N, 1, coordinator.address, 60.0)
        ended = job(process, LOOPBACK)
        (folder / f"ended-{name}-{process}").touch()
        until = time.monotonic() + _LEAVE_S  # others may still read what this one has sent
        while len(list(folder.glob(f"ended-{name}-*"))) < N and time.monotonic() < until:
            time.sleep(0.02)
        return int(ended.values[0]) if ended.status == "done" else FAILED

    _start(test, N, be)


def _start_threads(test: Any, folder: Path) -> None:
    body = partial(_body, type(test), folder, test._current_test_name(), test.file_name)

    def be(_: int) -> int:
        return max(ThreadRanks(N).run(body))

    _start(test, 1, be)


_START: dict[str, Callable[[Any, Path], None]] = {"gloo": _start_gloo, "processes": _start_processes, "threads": _start_threads}


class _Result(unittest.TestResult):
    """Keeps how each test ended."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.ended: dict[str, dict[str, Any]] = {}

    def _keep(self, test: Any, how: str, why: str = "") -> None:
        name = test._testMethodName
        self.ended[name] = {"how": how, "why": why, "started": started(self.folder, name)}
        print(f"{how:8} {name} {why[-300:] if how == 'failed' else why[:100]}", file=sys.stderr, flush=True)  # noqa: T201

    def addSuccess(self, test: Any) -> None:  # noqa: N802
        super().addSuccess(test)
        self._keep(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:  # noqa: N802
        super().addSkip(test, reason)
        self._keep(test, "skipped", reason)

    def addFailure(self, test: Any, err: Any) -> None:  # noqa: N802
        super().addFailure(test, err)
        self._keep(test, "failed", "".join(traceback.format_exception(*err)))

    addError = addFailure


def main(place: str, out: str, names: Sequence[str]) -> None:
    """Run the tests of those names, or all, and write how each ended."""
    with tempfile.TemporaryDirectory() as folder:
        tests = tests_on(place, Path(folder))
        of_all = unittest.TestLoader().getTestCaseNames(tests)
        result = _Result(Path(folder))
        for name in names or of_all:
            tests(name).run(result)
        Path(out).write_text(json.dumps(result.ended, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
