"""Ranks that do not come back: told of, given up, or interrupted, wherever they are."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

SCRIPT = """
import _thread, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
how = sys.argv[1]
if dist.get_rank() == 1:
    print("begins", flush=True)
    if how == "lock":
        lock = _thread.allocate_lock()
        lock.acquire()
        lock.acquire()
    while how == "loop":
        pass
    while how == "native":
        torch.ones(400, 400) @ torch.ones(400, 400)
    if how == "sleep":
        time.sleep(1000)
    if how == "nap":
        time.sleep(6.5)
dist.barrier()
"""


@pytest.fixture
def start(tmp_path):
    """Start `emu run`; every process is ended at the end of the test."""
    (tmp_path / "script.py").write_text(SCRIPT)
    started = []

    def begin(how, *options):
        words = [sys.executable, "-m", "launch.main", "run", "--ranks", "3", "--topology", "ub-mesh:board", *options]
        code = [sys.executable, "-c", "from launch.main import main; main()", *words[3:]]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([*code, "script.py", how], cwd=tmp_path, text=True, start_new_session=True, **pipes)
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_rank_that_waits_for_a_lock_of_the_system_is_told_of_and_given_up(start):
    process = start("lock", "--patience", "6")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 1
    told, given_up = [line for line in said.splitlines() if "has not come back" in line]
    where = "rank 1 waits for a lock or a thread (script.py:10) and has not come back for"
    assert told == f"emu: {where} 5 s; 2 other ranks wait"
    assert given_up == f"emu: {where} 6 s; 2 other ranks wait"


def test_a_rank_that_sleeps_is_only_told_of(start):
    process = start("nap", "--patience", "5.5")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "emu: rank 1 waits for a time (script.py:18) and has not come back for 5 s; 2 other ranks wait" in said


@pytest.mark.parametrize(
    ("how", "lines", "number"),
    [("loop", (11, 12), signal.SIGINT), ("sleep", (16,), signal.SIGTERM), ("native", (13, 14), signal.SIGINT)],
    ids=["loop", "sleep", "native"],
)
def test_one_signal_ends_ranks_wherever_they_are_and_says_where_that_was(start, how, lines, number):
    process = start(how)
    assert process.stdout.readline() == "begins\n"
    time.sleep(0.2)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    (last,) = [line for line in said.splitlines() if line.startswith(("emu: interrupted", "emu: terminated"))]
    assert re.search(r"ranks? 0(, 2)? at script.py:19", last)
    assert any(f"rank 1 at script.py:{line}" in last for line in lines)


def test_a_patience_that_is_none_is_refused(emu):
    done = emu("run", "--ranks", "2", "--topology", "ub-mesh:board", "--patience", "0", "script.py")
    assert done.code == 2
    assert "run: --patience must be a number of seconds above 0, got 0.0" in done.err
