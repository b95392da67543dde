"""The formats of traces that Emu reads, beside its own: a row for each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emu.trace.formats.kineto.profiled_trace import FORMAT, is_profile, read_kineto
from emu.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A format of another program: which paths it may be in, and how they are read."""

    name: str
    holds: Callable[[Path], bool]
    read: Callable[..., Trace]  # takes the path, `host_time` and `fill_ranks`


FORMATS = (TraceFormat(FORMAT, is_profile, read_kineto),)


def read_foreign(path: Path, *, host_time: bool = False, fill_ranks: bool = False) -> Trace | None:
    """Return the trace of another program that a path names; None: it is none by its name.

    Args:
        path: A file, or a folder with a file of each rank.
        host_time: Whether the time of the host between launches counts.
        fill_ranks: Whether ranks without a file do what ranks of equal groups do.

    Raises:
        InputError: it is one by its name, but cannot be read.
    """
    found = next((each for each in FORMATS if each.holds(path)), None)
    return None if found is None else found.read(path, host_time=host_time, fill_ranks=fill_ranks)
