"""`emu run` on a Ray of two nodes, as docs/run.md has it: two raylets of this machine, each with an address of its own."""

import re
import signal
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch

from tests.launch.processes import gone, wait_for
from tests.launch.ray.nodes import two_nodes
from tests.launch.ray.test_run import COMMAND, ENDLESS

pytestmark = [pytest.mark.ray, pytest.mark.slow]
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
BOARD = ("--topology", "ub-mesh:board")
WHERE = """
import os, sys
import torch.distributed as dist
import ray, beside
dist.init_process_group("gloo")
print(ray.get_runtime_context().get_node_id(), os.getpid(), beside.WORD)
print("to the other stream", file=sys.stderr)
dist.barrier()
"""


@pytest.fixture(scope="module")
def address():
    """That of a Ray with two nodes, which end with the module."""
    with two_nodes() as (found, _):
        yield found


def run(emu, address, ranks, *words):
    return emu("run", "--ranks", str(ranks), *BOARD, "--cluster", "ray", "--ray-address", address, *words)


@pytest.mark.parametrize("options", [(), ("--ranks-per-actor", "2")])
def test_two_nodes_have_the_losses_and_the_trace_of_threads(emu, address, tmp_path, options):
    files = [[str(tmp_path / f"{where}.{what}") for what in ("trace", "losses")] for where in ("ray", "local")]
    ours = run(emu, address, 4, *options, "--json", "--trace", files[0][0], str(SCRIPTS / "ddp.py"), files[0][1])
    expected = emu("run", "--ranks", "4", *BOARD, "--json", "--trace", files[1][0], str(SCRIPTS / "ddp.py"), files[1][1])
    assert ours.code == expected.code == 0, ours.err
    (got,), (wanted,) = ours.json, expected.json
    assert {k: v for k, v in got.items() if not k.startswith("wall_")} == {
        k: v for k, v in wanted.items() if not k.startswith("wall_")
    }
    assert Path(files[0][0]).read_bytes() == Path(files[1][0]).read_bytes()
    assert torch.load(files[0][1]) == torch.load(files[1][1])


def spread(out):
    """By rank: node, process, and the word of the module beside the script."""
    return {int(rank): words.split() for rank, words in re.findall(r"^\[rank (\d+)\] (.*)$", out, re.MULTILINE)}


def test_ranks_are_on_both_nodes_and_find_what_is_beside_the_script(emu, address, tmp_path):
    (tmp_path / "where.py").write_text(WHERE)
    (tmp_path / "beside.py").write_text("WORD = 'here'")
    options = tmp_path / "ray.toml"
    options.write_text('strategy = "STRICT_SPREAD"\nresources = { CPU = 1 }\n')
    done = run(
        emu,
        address,
        4,
        "--ranks-per-actor",
        "2",
        "--log-ranks",
        "0,3",
        "--ray-options",
        str(options),
        str(tmp_path / "where.py"),
    )
    assert done.code == 0, done.err
    found = spread(done.out)
    assert found.keys() == {0, 3}
    assert found[0][0] != found[3][0], "one node has both actors"
    assert {words[2] for words in found.values()} == {"here"}
    assert "[rank 3] to the other stream" in done.err


def test_what_the_nodes_have_no_room_for_is_one_line(emu, address, tmp_path):
    options = tmp_path / "ray.toml"
    options.write_text("resources = { second = 1 }\nwait_s = 1\n")
    done = run(emu, address, 3, "--ray-options", str(options), str(SCRIPTS / "ddp.py"), "x")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(
        "emu: ray: no room for 3 actors of second 1 by PACK within 1 s; the 2 nodes have second 2 together"
    )


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_interrupted_or_killed_ends_its_ranks_and_leaves_the_ray(address, tmp_path, how):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    words = ["--ranks", "2", *BOARD, "--cluster", "ray", "--ray-address", address, str(script)]
    command = subprocess.Popen([sys.executable, "-c", COMMAND, "run", *words], stdout=subprocess.PIPE, text=True)
    try:
        pids = [int(command.stdout.readline().partition("] ")[2]) for _ in range(2)]
        actors = [psutil.Process(pid) for pid in pids]
        command.send_signal(how)
        command.communicate(timeout=60)
    finally:
        command.kill()
        command.communicate()
    wait_for(partial(gone, actors))
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port))).close()
