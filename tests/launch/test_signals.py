"""Signals that end a command: none is lost, and processes that it forks take them as any process does."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
BEGIN = """
import os, signal, sys, time
from launch.supervisor import TerminationSignal, install_signal_handlers

signal.signal(signal.SIGINT, signal.default_int_handler)
install_signal_handlers()
"""
IGNORED = """
class Falls:
    def __del__(self):
        signal.raise_signal({number})

try:
    Falls()  # Python goes on as if nothing were
    time.sleep(60)
except TerminationSignal:
    sys.exit(3)
except KeyboardInterrupt:
    sys.exit(4)
"""
FORKED = """
child = os.fork()
if child == 0:
    time.sleep(60)
os.kill(child, signal.SIGTERM)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) + 100)
"""


def run(text):
    return subprocess.run([sys.executable, "-c", BEGIN + text], capture_output=True, text=True, check=False, timeout=50)


@pytest.mark.parametrize(("number", "code"), [("signal.SIGTERM", 3), ("signal.SIGINT", 4)])
def test_a_signal_whose_error_python_ignores_ends_a_command_all_the_same(number, code):
    done = run(IGNORED.format(number=number))
    assert (done.returncode, done.stderr) == (code, "")


def test_a_process_that_is_forked_is_ended_by_sigterm():
    done = run(FORKED)
    assert (done.returncode, done.stderr) == (100 - 15, "")


LEFT = """
import atexit, sys, threading, time
import torch
from launch import main as launched

def work():
    data = torch.ones(64, 64, requires_grad=True)
    while True:
        (data @ data).relu().sum().backward()

for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
atexit.register(print, "at exit")
launched.emu.main = lambda *_, **__: time.sleep(0.3) or 5
sys.argv = ["emu"]
launched.main()
"""


def test_a_command_that_leaves_threads_in_native_code_ends_with_its_own_code():
    done = subprocess.run([sys.executable, "-c", LEFT], capture_output=True, text=True, check=False, timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (5, "at exit\n", "")
