"""Signals that end a command: none is lost, and processes that it forks take them as any process does."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
BEGIN = """
import os, signal, sys, time
from launch.signals import Terminated, listen

signal.signal(signal.SIGINT, signal.default_int_handler)
listen()
"""
IGNORED = """
class Falls:
    def __del__(self):
        signal.raise_signal({number})

try:
    Falls()  # Python goes on as if nothing were
    time.sleep(60)
except Terminated:
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
