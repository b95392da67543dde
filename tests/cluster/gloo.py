"""A script on gloo, a process a rank, as torchrun starts it: what a run of ours is held to."""

import socket
from pathlib import Path

from tests.forked import Fork, script


def run_on_gloo(file: Path, folder: Path, n: int) -> None:
    """Run a script on n ranks in a folder, which it is given as its argument."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    given = {"WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [Fork(folder, {**given, "RANK": str(rank)}, script, str(file), str(folder)) for rank in range(n)]
    ended = [rank.end() for rank in ranks]
    assert [(each.code, each.out) for each in ended] == [(0, "")] * n, ended[0].err
