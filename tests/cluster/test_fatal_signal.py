"""The last words of a process that a signal ends, and what is told of them."""

import signal
import subprocess
import sys
import tempfile

import pytest

from emu.cluster.rank_failure import FatalSignal, death_in_words, own_death_in_words, parse_last_words

PROCESS = """
import ctypes, os, signal, sys, threading
from emu.cluster import rank_failure

def rank(number):
    rank_failure.announce_rank(number)
    if number == 1:
        {fault}
    threading.Event().wait()

with rank_failure.last_words_to(int(sys.argv[1])), rank_failure.report_termination():
    if os.fork() == 0:  # of its own last words nothing is told
        os.abort()
    os.wait()
    for number in range(2):
        threading.Thread(target=rank, args=(number,), daemon=True).start()
    threading.Event().wait()
"""


def words_of(fault, tmp_path):
    """Return what a process says whose rank 1 has that fault, the signal that ended it, and the line that is to be named."""
    script = tmp_path / "ends.py"
    script.write_text(PROCESS.format(fault=fault))
    with tempfile.TemporaryFile() as words:
        command = [sys.executable, str(script), str(words.fileno())]
        done = subprocess.run(command, pass_fds=[words.fileno()], stderr=subprocess.DEVNULL, check=False, timeout=60)
        words.seek(0)
        return words.read().decode(), -done.returncode, f" ({script}:8)"


@pytest.mark.parametrize(
    ("fault", "number"),
    [("ctypes.string_at(0)", signal.SIGSEGV), ("os.abort()", signal.SIGABRT), ("signal.raise_signal(8)", signal.SIGFPE)],
)
def test_a_rank_that_runs_into_a_signal_is_told_with_its_line(tmp_path, fault, number):
    words, ended, line = words_of(fault, tmp_path)
    assert ended == number
    found = parse_last_words(words)
    assert (found.name, found.rank, found.at[1]) == (number.name, 1, line)
    assert own_death_in_words(number.name, words) == f"rank 1: its process was ended by {number.name}{line}"


def test_a_process_that_is_told_to_end_says_where_its_ranks_are(tmp_path):
    words, ended, line = words_of("os.kill(os.getpid(), signal.SIGTERM)", tmp_path)
    assert ended == signal.SIGTERM
    found = parse_last_words(words)
    assert (found.name, found.rank) == ("SIGTERM", None)
    assert found.at.get(1, "").startswith(line[:-3])


def test_a_process_that_is_killed_says_nothing(tmp_path):
    words, ended, _ = words_of("os.kill(os.getpid(), signal.SIGKILL)", tmp_path)
    assert (ended, parse_last_words(words)) == (signal.SIGKILL, None)
    assert own_death_in_words("SIGKILL", words).endswith(" was ended by SIGKILL")


@pytest.mark.parametrize(
    ("fatal", "doing", "others", "told"),
    [
        (None, {2: "in barrier"}, "", "rank 2: its process died without a word, as where SIGKILL ends it, in barrier"),
        (
            FatalSignal("SIGTERM", None, {0: " (a.py:1)"}),
            {0: "in barrier", 1: "after barrier"},
            "rank 2 waits",
            "ranks 0 to 1: their process was ended by SIGTERM, 0 (a.py:1) in barrier, 1 after barrier; rank 2 waits",
        ),
        (
            FatalSignal("SIGSEGV", 1, {0: " (a.py:1)", 1: " (a.py:2)"}),
            {0: "in barrier", 1: "after barrier"},
            "",
            "rank 1: its process was ended by SIGSEGV (a.py:2), after barrier",
        ),
        (FatalSignal("SIGKILL"), {0: "", 1: ""}, "", "ranks 0 to 1: their process was ended by SIGKILL"),
    ],
)
def test_the_sentence(fatal, doing, others, told):
    assert death_in_words(fatal, doing, others) == told


def test_words_of_no_rank_are_of_the_command():
    assert own_death_in_words("SIGKILL", "") == "the process of the command was ended by SIGKILL"
