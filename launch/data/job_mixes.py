"""Mixes of jobs of clusters, by figures that their papers or owners publish; see the files of `mixes`."""

from pathlib import Path

from emu.registry import unknown
from emu.study.queue.workload.job_mix import JobMix, read_mix

_MIXES = Path(__file__).with_name("mixes")
MIXES = tuple(sorted(path.stem for path in _MIXES.glob("*.toml")))


def find_mix(name: str) -> JobMix:
    """Return a mix of jobs by its name.

    Raises:
        InputError: No mix has that name.
    """
    if name not in MIXES:
        raise unknown("mix of jobs", name, MIXES)
    return read_mix(_MIXES / f"{name}.toml", name)
