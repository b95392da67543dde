"""What a command loads: only what it needs, so that what moves no data answers at once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

OF_TORCH = {f"torch.{name}" for name in ("_dynamo", "distributed.fsdp", "distributed.pipelining")}
HEAVY = {"torch", "ray", "matplotlib", "rich", "numba", *OF_TORCH}
SWITCH = "switch:n=4,bandwidth=50GB/s,latency=500ns"
BENCH = ("bench", "all_reduce", "--topology", SWITCH, "--size", "1KiB")
CODE = """
import json, sys
from launch.main import main
try:
    main(sys.argv[1:])
except SystemExit as leave:
    assert not leave.code, leave.code
print()
print(json.dumps([*sys.modules]))
"""


@pytest.mark.parametrize(
    ("args", "may"),
    [
        (("list", "collectives"), set()),
        (("list", "topologies"), set()),
        (("show", "topology", "ub-mesh:board"), {"numba"}),
        (("show", "collective", "all_reduce", "ring", "--ranks", "4"), {"numba"}),
        ((*BENCH, "--timing-only"), {"numba"}),
        ((*BENCH, "--timing-only", "--algorithm", "all"), {"numba"}),
        (("verify", "scatter", "--algorithm", "binomial", "--ranks", "4"), {"numba"}),
        (BENCH, {"numba", "torch"}),
        (("run", "--ranks", "2", "--topology", SWITCH, "SCRIPT"), {"numba", "torch"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_loads_no_more_than_it_needs(args: tuple[str, ...], may: set[str], tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import torch.distributed as dist\ndist.init_process_group()\ndist.barrier()\n")
    given = [str(script) if each == "SCRIPT" else each for each in args]
    done = subprocess.run([sys.executable, "-c", CODE, *given], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert HEAVY.intersection(json.loads(done.stdout.splitlines()[-1])) <= may
