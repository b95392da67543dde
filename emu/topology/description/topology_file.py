"""Topologies from a user's own file; the suffix of its name gives the notation."""

from collections.abc import Callable
from pathlib import Path

from emu.errors import InputError
from emu.topology.description.assembly import TopologyDescription, assemble
from emu.topology.description.edge_list import read_csv
from emu.topology.description.toml_groups import read_toml
from emu.topology.topology import Topology


def _read_graphml(path: Path, where: str) -> TopologyDescription:
    """Read a GraphML file as `read_graphml` does, which is imported here because it loads networkx."""
    from emu.topology.description.networkx_graph import read_graphml

    return read_graphml(path, where)


READERS: dict[str, Callable[[Path, str], TopologyDescription]] = {
    ".toml": read_toml,
    ".csv": read_csv,
    ".graphml": _read_graphml,
}


def is_file(text: str) -> bool:
    """Return whether a text that names a topology names a file."""
    return any(Path(word).suffix.lower() in READERS for word in (text, text.partition(":")[0]))


def read_file(text: str) -> Topology:
    """Return the topology that a file describes; its path, as it is written, is its name.

    Raises:
        InputError: The file cannot be read, or describes no topology; the message names the file, and the line or the entry.
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
