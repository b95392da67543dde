"""The removal of older trace files that a new trace of the same name does not replace, if Emu wrote them."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from emu.errors import InputError, WriteError
from emu.trace.formats.chakra.chakra_files import GROUPS, MAP, TraceFiles
from emu.trace.formats.chakra.chakra_node import EXACT, first_attributes
from emu.trace.formats.chakra.role_map import read_map


def remove_older(what: str, name: Path, written: Collection[Path]) -> None:
    """Remove the files that Emu wrote of an older trace of this name: those of ranks and of roles, the map and the groups.

    It is called when the new trace is written.

    Args:
        what: The option that names the trace.
        name: The path of the trace without its ending.
        written: The files of the new trace.

    Raises:
        WriteError: one cannot be removed.
    """
    for file in list(_older(name, written)):
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise WriteError(f"{what}: cannot remove {str(file)!r}, of an older trace: {error.strerror}") from None


def _older(name: Path, written: Collection[Path]) -> Iterator[Path]:
    """Yield the files of a trace of this name that are not among the written ones and that Emu wrote before."""
    numbered = re.compile(re.escape(name.name) + r"\.(role)?\d+\.et")
    files = [file for file in name.parent.iterdir() if numbered.fullmatch(file.name) and file not in written]
    own = [file for file in files if EXACT in first_attributes(file)]
    yield from own
    told = name.with_name(name.name + MAP)
    if told not in written and told.is_file() and _is_map(told, name.name):
        yield told
    groups = name.with_name(name.name + GROUPS)
    if groups not in written and own and len(own) == len(files):  # else they may be those of another program's files
        yield groups


def _is_map(path: Path, prefix: str) -> bool:
    """Return whether a file is a map of ranks to roles that Emu wrote."""
    try:
        read_map(TraceFiles(path.parent, prefix, {}))
    except InputError:
        return False
    return True
