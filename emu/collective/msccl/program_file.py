"""MSCCL programs as algorithms of the registry, so that they are proved, shown and timed like any other."""

from collections.abc import Iterator
from pathlib import Path

from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.collective.msccl.parse import parse
from emu.collective.msccl.rows import schedule_of
from emu.collective.msccl.step_order import order_steps
from emu.collective.schedule import Schedule
from emu.collective.shape import Shape
from emu.errors import InputError
from emu.files import read_input
from emu.registry import filing


def file_program(path: Path) -> Algorithm:
    """File the MSCCL program of a file as an algorithm, and return it.

    Its name is the one in the file, else the file's own. It takes the program's number of ranks and no other. It makes no
    claim, because a program says what is sent, not how fast.

    Raises:
        InputError: The file cannot be read, its name is taken, or see `from_xml`.
    """
    layout, steps, name = parse(_text(path))
    schedule, n = schedule_of(layout, order_steps(steps)), layout.n

    def build(ranks: int) -> Schedule:
        return schedule

    def shapes(ranks: int) -> Iterator[Shape]:
        if ranks == n:
            yield n

    summary = f"Read from {path.name}: MSCCL, {n} ranks."
    found = Algorithm(layout.operation, name or path.stem, build, None, summary, shapes)
    with filing(path):
        ALGORITHMS.file(found.key, found)
    return found


def _text(path: Path) -> str:
    """Return the text of the file that `--import` names."""
    try:
        return read_input("--import", path, mend="write the algorithm in Python by @collective").decode()
    except UnicodeDecodeError:
        raise InputError(f"--import: cannot read {str(path)!r}: it is no text; give the path of an MSCCL XML file") from None
