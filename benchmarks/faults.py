"""How fast `emu faults` counts what faults leave: of ten systems for five sizes of groups on the trace, and of a large machine.

python -m benchmarks.faults [CASE ...]
"""

import json
import sys

from benchmarks.command import EMU, asked_for, ran

_SYSTEMS = (
    "infinitehbd:k=2",
    "infinitehbd:k=3",
    "big-switch:n=2880",
    "nvl:72",
    "nvl:576",
    "tpuv4:cubes=5x3x3",
    "sip-ring:size=64,rings=45",
    "railx:torus:m=4,n=9,nodes=12x15",
    "hpn:segment",
    "ub-mesh:rack-full",
)
CASES = {  # words of the command
    "trace": (*(word for system in _SYSTEMS for word in ("--topology", system)), "--tp", "4,8,16,32,64"),
    "large": ("--topology", "infinitehbd:dims=64x128x2x4", "--tp", "32", "--rate", "1.17%", "--draws", "100"),
}
TARGETS = {"trace": "30 s"}  # on two idle cores


def main() -> int:
    """Print a table, ready for the README."""
    names = asked_for(CASES, "faults")
    columns = ("case", "machines and groups", "states", "wall", "CPU", "peak", "target")
    sys.stdout.write(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    for name in names:
        done = ran(EMU, "faults", *CASES[name], "--json", quiet=True)
        rows = json.loads(done.said)["rows"]
        states = f"{sum(len(row['days']) for row in rows):,}"
        cost = (f"{done.wall_s:.1f} s", f"{done.cpu_s:.1f} s", f"{done.peak_gb:.2f} GB")
        sys.stdout.write(f"| {' | '.join((name, str(len(rows)), states, *cost, TARGETS.get(name, '')))} |\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
