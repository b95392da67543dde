"""A command that is killed: whatever its ranks have started ends with it, and it is said of what it died."""

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.launch.processes import gone, wait_for

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux has what it takes to keep a command")
EMU = Path(sys.executable).with_name("emu")
SCRIPT = """
import multiprocessing, os, signal, subprocess, time
import torch.distributed as dist

dist.init_process_group()
if dist.get_rank() == 1:
    sleep = ["sleep", "3600"]
    started = [subprocess.Popen(sleep).pid, subprocess.Popen(sleep, start_new_session=True, env={}).pid]
    started.append(os.posix_spawn("/bin/sleep", sleep, {}))
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
    worker.start()
    read, write = os.pipe()
    if os.fork() == 0:  # a daemon that takes no notice of SIGTERM
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(write, str(os.getpid()).encode())
            time.sleep(3600)
        os._exit(0)
    print(*started, worker.pid, int(os.read(read, 20)), flush=True)
dist.barrier()
"""
# Two ranks in one loop are at one line of it, or each at another one.
WHERE = re.compile(r"emu: terminated: (ranks 0, 1 at train\.py:\d+|rank 0 at train\.py:\d+; rank 1 at train\.py:\d+)")
WAITS = "while True:\n    time.sleep(0.01)\n    dist.barrier()\n"
FAILS = "if dist.get_rank() == 1:\n    import ctypes\n    ctypes.string_at(0)\ndist.barrier()\n"


@pytest.fixture
def command(tmp_path):
    """Starts a script on two ranks, and waits until it has started processes."""
    started = []

    def start(rest):
        (tmp_path / "train.py").write_text(SCRIPT + "import time\n" + rest)
        words = [EMU, "run", "--ranks", "2", "--topology", "ub-mesh:board", "train.py"]
        process = subprocess.Popen(
            words,
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        children = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
        started.extend([process, *children])
        assert len(children) == 5
        return process, children

    yield start
    for each in started:
        if isinstance(each, psutil.Process) and not each.is_running():
            continue
        each.kill()
    if started:
        started[0].communicate()


def only_child(process):
    (child,) = psutil.Process(process.pid).children()
    return child


def test_all_that_ranks_have_started_ends_with_a_run_that_comes_to_its_end(command):
    process, children = command("")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (0, False)
    assert gone(children)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_all_that_ranks_have_started_ends_with_a_command_that_is_killed(command, number):
    process, children = command(WAITS)
    children.append(only_child(process))
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    wait_for(partial(gone, children))
    assert process.returncode == (-9 if number == signal.SIGKILL else 143)
    assert number == signal.SIGKILL or WHERE.fullmatch(err.splitlines()[-1]), err


def test_a_command_whose_child_is_killed_says_so_and_ends_what_that_has_started(command):
    process, children = command(WAITS)
    only_child(process).kill()
    _, err = process.communicate(timeout=60)
    assert gone(children)
    assert (process.returncode, err.splitlines()[-1]) == (1, "emu: ranks 0 to 1: their process was ended by SIGKILL")


def test_a_rank_that_native_code_ends_is_told_with_its_line(command):
    process, children = command(FAILS)
    _, err = process.communicate(timeout=60)
    assert gone(children)
    line = SCRIPT.count("\n") + 4
    assert (process.returncode, err.splitlines()[-1]) == (1, f"emu: rank 1: its process was ended by SIGSEGV (train.py:{line})")


ENDS = """
import os, signal, sys, time
from launch.supervisor import run_in_child
run_in_child()
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
print(os.getpid(), flush=True)
until = time.monotonic() + 0.5
while time.monotonic() < until:
    time.sleep(0.01)
sys.exit(len(came))
"""


@pytest.mark.parametrize("to_all", [False, True])
def test_a_signal_comes_once_to_the_child_be_it_sent_to_one_process_or_to_all(to_all):
    process = subprocess.Popen([sys.executable, "-c", ENDS], stdout=subprocess.PIPE, start_new_session=True)
    assert int(process.stdout.readline()) != process.pid
    (os.killpg if to_all else os.kill)(process.pid, signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 1
