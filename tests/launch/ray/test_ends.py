"""A Ray of a command's own whose rank dies, or that is interrupted or killed: one line, and nothing left behind."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.launch.processes import gone, wait_for

pytestmark = pytest.mark.ray
SCRIPT = """
import os, signal, sys
from functools import partial
from pathlib import Path
import torch
import torch.distributed as dist
from emu.collective.choice import Choice
from launch import main as launched
from launch.clusters import ClusterOptions

def program(folder, rank):
    data = torch.zeros(2**16)
    dist.all_reduce(data)
    Path(folder, str(rank)).write_text(str(os.getpid()))
    while True:
        dist.all_reduce(data)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
launched.emu.main = lambda *_, **__: ClusterOptions("ray").run_traced(int(sys.argv[2]), Choice(), partial(program, sys.argv[1]))
launched.main([])
"""


@contextmanager
def endless(folder, n_ranks):
    """A command whose ranks reduce for ever: the process, all it has started, and the folder that Ray works in."""
    command = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, folder, str(n_ranks)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_for(lambda: len([f for f in folder.iterdir() if f.read_text()]) == n_ranks or command.poll() is not None, 90.0)
        started = psutil.Process(command.pid).children(recursive=True)
        (work,) = {found for p in started for found in re.findall(r"/\S*?/emu-\w{8}(?=/)", " ".join(p.cmdline()))}
        yield command, started, Path(work)
    finally:
        command.kill()
        command.communicate()


@pytest.mark.parametrize(
    ("number", "ended"),
    [
        (signal.SIGTERM, r"was ended by SIGTERM( \(<string>:\d+\))?"),
        pytest.param(signal.SIGKILL, "died without a word, as where SIGKILL ends it", marks=pytest.mark.slow),
    ],
)
def test_a_killed_rank_is_one_line_and_leaves_nothing(tmp_path, number, ended):
    with endless(tmp_path, 3) as (command, started, work):
        assert work.stat().st_mode & 0o777 == 0o700
        os.kill(int((tmp_path / "2").read_text()), number)
        out, err = command.communicate(timeout=30)
        wait_for(partial(gone, started))
    assert (out, command.returncode, work.exists()) == ("", 1, False)
    (line,) = err.splitlines()
    words, _, log = line.partition("; log: ")
    doing = r"(in|after) all_reduce \(sum\) of 65536 float32 on group world \(ranks 0, 1, 2\), call \d+"
    waits = "(; rank [01] waits in all_reduce .*, for rank [012, ]+)*"
    assert re.fullmatch(f"emu: rank 2: its process {ended}, {doing}{waits}", words)
    assert "ActorDiedError" in Path(log).read_text()
    Path(log).unlink()


@pytest.mark.slow  # a killed rank ends Ray as an interrupt does
def test_an_interrupt_leaves_nothing(tmp_path):
    with endless(tmp_path, 1) as (command, started, work):
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=30)
        wait_for(partial(gone, started))
    assert (out, err, command.returncode, work.exists()) == ("", "emu: interrupted\n", 130, False)


def test_a_ray_that_outlives_its_owner_ends_itself(tmp_path):
    with endless(tmp_path, 1) as (command, started, work):
        command.kill()
        wait_for(partial(gone, started))
        wait_for(lambda: not work.exists())
