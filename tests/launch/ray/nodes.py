"""A Ray of two nodes: two raylets of this machine, each with an address of its own."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from emu.store import user_folder

SECOND = "127.0.0.2"  # the address of the second node
RAY = str(Path(sys.executable).with_name("ray"))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as freed:
        return freed.getsockname()[1]


def cache_with_compiled(folder: Path) -> dict[str, str]:
    """The environment of a process whose cache is a new folder, with nothing in it but the code that Emu has compiled."""
    (folder / "emu").mkdir(parents=True)
    (folder / "emu" / "compiled").symlink_to(user_folder() / "compiled", target_is_directory=True)
    return {"XDG_CACHE_HOME": str(folder)}


@contextmanager
def node(log, cache, *options):
    """The process of a node of a Ray, ended with all that it has started."""
    words = (RAY, "start", *options, "--object-store-memory=100000000", "--block")
    env = os.environ | cache | {"RAY_USAGE_STATS_ENABLED": "0"}
    with log.open("w") as out:
        started = subprocess.Popen(words, stdout=out, stderr=out, env=env, start_new_session=True)
    try:
        until = time.monotonic() + 240
        while "Ray runtime started" not in log.read_text():
            assert time.monotonic() < until, log.read_text()
            assert started.poll() is None, log.read_text()
            time.sleep(0.5)
        yield started
    finally:
        with suppress(psutil.NoSuchProcess):  # it was killed, and has ended
            family = psutil.Process(started.pid).children(recursive=True)
            started.terminate()
            for left in psutil.wait_procs(family, timeout=10)[1]:
                left.kill()
        started.wait()


@contextmanager
def two_nodes(cpus=2):
    """The address of a Ray with two nodes, and the process of the second, which has no part in what the first does."""
    folder = Path(tempfile.mkdtemp(prefix="emu-two-", dir="/tmp"))
    port, log, each = free_port(), folder / "head.txt", f"--num-cpus={cpus}"
    head = ("--head", f"--port={port}", f"--temp-dir={folder}", "--include-dashboard=false", '--resources={"first": 2}', each)
    other = (f"--address=127.0.0.1:{port}", f"--node-ip-address={SECOND}", '--resources={"second": 2}', each)
    cache = cache_with_compiled(folder / "cache")
    with node(log, cache, *head), node(folder / "other.txt", cache, *other) as second:
        yield re.search(r"--address='(\S+)'", log.read_text())[1], second
    shutil.rmtree(folder, ignore_errors=True)


def kill_raylet(of):
    """Kill the raylet of a node, as a crash of its machine does."""
    [raylet] = [each for each in psutil.Process(of.pid).children(recursive=True) if each.name() == "raylet"]
    raylet.kill()
