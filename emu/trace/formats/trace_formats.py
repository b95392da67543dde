"""The formats of other programs' traces that Emu reads and writes: one row for each."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from emu.files import has_ending
from emu.trace.formats.chakra import chakra_trace
from emu.trace.formats.chakra.chakra_files import ENDING, is_chakra
from emu.trace.formats.chakra.chakra_writer import write_chakra
from emu.trace.formats.goal.goal_trace import GOAL_ENDINGS, is_goal, read_goal
from emu.trace.formats.goal.lowered_trace import write_goal
from emu.trace.formats.kineto.profile_writer import write_profile
from emu.trace.formats.kineto.profiled_trace import is_profile, read_kineto
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import Trace
from emu.trace.trace_file import check_trace, save


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A trace format of another program: how its files are recognised, read and, if Emu can, written.

    `holds` says whether a path is of this format.
    """

    noun: str  # what is in such a path, in words
    holds: Callable[[Path], bool]
    read: Callable[..., Trace]  # takes the path, `host_time` and `fill_ranks`
    endings: tuple[str, ...] = ()  # of the names of files that are written in it
    write: Callable[[TraceLayout, Path], None] | None = None  # None: it is not written
    tells_kernels: bool = False  # whether it says how long kernels of which work took


_IN_FOLDER = f"trace{ENDING}"  # the file that stands for a folder: execution traces are a file of each rank
FORMATS = (  # the first that holds a path reads it
    TraceFormat("an execution trace of Chakra", is_chakra, chakra_trace.read_chakra, (ENDING,), write_chakra),
    TraceFormat("a profile of PyTorch", is_profile, read_kineto, (".json", ".json.gz"), write_profile, tells_kernels=True),
    TraceFormat("a GOAL schedule", is_goal, read_goal, GOAL_ENDINGS, write_goal),
)


def format_of(path: Path) -> TraceFormat | None:
    """Return the format that a path has, by its name or its files; None if it is not a foreign format."""
    return next((each for each in FORMATS if each.holds(path)), None)


def read_foreign(path: Path, *, host_time: bool = False, fill_ranks: bool = False) -> Trace | None:
    """Read a trace of another program and return it; None if the path's name has no foreign format.

    Args:
        path: A file, or a folder with a file of each rank.
        host_time: Whether the time of the host between launches counts.
        fill_ranks: Whether ranks without a file do what ranks of equal groups do.

    Raises:
        InputError: it is one by its name, but cannot be read.
    """
    found = format_of(path)
    if found is None:
        return None
    trace = found.read(path, host_time=host_time, fill_ranks=fill_ranks)
    check_trace(trace)
    return trace


def output_path(given: str | os.PathLike[str]) -> Path:
    """Return the file to which a trace is written; for a folder, a file of execution traces in it.

    Args:
        given: The name of a file; or a folder, which exists or has a slash at its end.
    """
    path = Path(given)
    return path / _IN_FOLDER if os.fspath(given).endswith(os.sep) or path.is_dir() else path


def is_by_rank(path: Path) -> bool:
    """Return whether a trace of this name is written as several files: `run.et` stands for `run.0.et`, `run.1.et` and so on."""
    return has_ending(path, ENDING)


def write_trace(layout: TraceLayout, path: Path) -> None:
    """Write a trace to a file, in the format of its ending, or in Emu's own format.

    Args:
        layout: The trace, with what times it: formats that hold durations or messages have those of its device and choice.
        path: The file, as `output_path` returns it.

    Raises:
        InputError: the format cannot hold the trace.
        WriteError: the file cannot be written.
    """
    named = (each.write for each in FORMATS if each.write and has_ending(path, *each.endings))
    write = next(named, None)
    if write is None:
        save(layout.trace, path)
    else:  # computations last as in every other answer: until the slowest of all ranks is done
        write(replace(layout, device=layout.device.for_ranks(layout.trace.n_ranks)), path)
