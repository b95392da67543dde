"""SimGrid's SMPI and Emu on one ring all_reduce of real float32, the sums checked: `python -m benchmarks.peers [RANKS ...]`.

1 MiB a rank round one switch, links of 12.5 GB/s and 500 ns. Each is a command of its own, timed from its start to its end.
Needs smpicc and smpirun on the path: Debian and Ubuntu have them in libsimgrid-dev.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.command import EMU, Ran, ran
from emu.units import format_time

RANKS, BYTES = (64, 128, 256, 512, 1024), 2**20
BANDWIDTH_BPS, LATENCY_S = 12.5e9, 500e-9
SMPI = (
    "--cfg=smpi/allreduce:lr",  # reduce_scatter and all_gather round a logical ring (Patarasuk and Yuan, 2009)
    "--cfg=network/model:CM02",  # max-min shares and latencies as they are, none of SMPI's factors fitted to Ethernet
    "--cfg=network/crosstraffic:no",  # a flow slows none that comes the other way
    "--cfg=smpi/simulate-computation:no",  # adding is free, as it is to Emu
    "--cfg=smpi/wtime:0",
    "--log=root.thresh:error",
)
PLATFORM = """<?xml version="1.0"?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="star" prefix="h" suffix="" radical="0-{last}" speed="1Gf"
           bw="{bandwidth:.0f}Bps" lat="{latency}s" sharing_policy="SPLITDUPLEX"/>
</platform>
"""


def smpi(n: int, folder: Path) -> tuple[float, Ran]:
    """Virtual seconds of SMPI, and its run.

    Raises:
        ValueError: a sum is wrong.
    """
    (folder / "star.xml").write_text(PLATFORM.format(last=n - 1, bandwidth=BANDWIDTH_BPS, latency=LATENCY_S))
    (folder / "hosts").write_text("".join(f"h{i}\n" for i in range(n)))
    files = "-platform", folder / "star.xml", "-hostfile", folder / "hosts"
    run = ran("smpirun", "-np", str(n), *files, *SMPI, folder / "ring", str(BYTES // 4))
    found = re.search(r"virtual_s (\S+) wrong 0$", run.said, re.MULTILINE)
    if found is None:
        raise ValueError(f"SMPI: {run.said}")
    return float(found[1]), run


def emu(n: int, *more: str) -> tuple[float, Ran]:
    """Virtual seconds of Emu, and its run."""
    topology = f"switch:n={n},bandwidth={BANDWIDTH_BPS / 1e9}GB/s,latency={LATENCY_S * 1e9:.0f}ns"
    asked = "--algorithm", "ring", "--topology", topology, "--size", f"{BYTES}B", "--json"
    run = ran(EMU, "bench", "all_reduce", *asked, *more)
    return json.loads(run.said)[0]["time_s"], run


def line(n: int, folder: Path) -> str:
    """One row of the table."""
    closed_s = 2 * (n - 1) * (2 * LATENCY_S + BYTES / n / BANDWIDTH_BPS)
    theirs, ours, timing = smpi(n, folder), emu(n), emu(n, "--timing-only")
    virtual = " | ".join(format_time(time_s) for time_s in (closed_s, theirs[0], ours[0]))
    return f"| {n:,} | {virtual} | {theirs[1]} | {ours[1]} | {timing[1]} |"


def main() -> int:
    """Print the table."""
    if not (shutil.which("smpicc") and shutil.which("smpirun")):
        sys.stderr.write("peers: no smpicc and smpirun on the path; Debian and Ubuntu: apt-get install libsimgrid-dev\n")
        return 2
    sys.stdout.write("| ranks | closed form | SMPI, virtual | Emu, virtual | SMPI | Emu | Emu, timing only |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run(["smpicc", "-O2", Path(__file__).with_name("ring.c"), "-o", folder / "ring"], check=True)
        for n in map(int, sys.argv[1:] or RANKS):
            sys.stdout.write(line(n, folder) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
