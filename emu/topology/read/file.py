"""Topologies of a user's own, from a file: the notation follows from how its name ends."""

import importlib
from collections.abc import Callable
from pathlib import Path

from emu.errors import InputError
from emu.topology.read.described import Described, assemble
from emu.topology.read.edge_list import read_csv
from emu.topology.read.groups import read_toml
from emu.topology.topology import Topology


def _read_graphml(path: Path, where: str) -> Described:
    """As `read_graphml` does, whose file is loaded when there is such a file to read, because it loads networkx."""
    described: Described = importlib.import_module("emu.topology.read.graph").read_graphml(path, where)
    return described


READERS: dict[str, Callable[[Path, str], Described]] = {".toml": read_toml, ".csv": read_csv, ".graphml": _read_graphml}


def is_file(text: str) -> bool:
    """Whether a word where a topology is asked for means a file."""
    return any(Path(word).suffix.lower() in READERS for word in (text, text.partition(":")[0]))


def read_file(text: str) -> Topology:
    """The topology that a file describes, named by its path as it is written.

    Raises:
        InputError: a file that cannot be read, or describes none; the message names it, and the line or the entry.
    """
    path = Path(text)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"topology: {text!r} is a file, which takes no settings; write them into it")
    try:
        described = reader(path, text)
    except OSError as error:
        raise InputError(f"topology: cannot read {text!r}: {error.strerror}") from None
    return assemble(described)
