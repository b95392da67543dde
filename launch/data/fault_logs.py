"""The fault log that Emu comes with."""

from pathlib import Path

from emu.study.faults.source import FaultLog, read_log

LOG = Path(__file__).with_name("faults") / "servers-400.csv"
SERVERS, GPUS = 400, 8  # of a server
SOURCE = "the 348-day trace of 400 servers of 8 GPUs that Shou et al. publish with InfiniteHBD (Apache-2.0)"


def production_log() -> FaultLog:
    """Return the fault log of a production cluster; see its README."""
    return read_log(LOG, SERVERS)
