"""The nodes of one file of an execution trace, unchanged: a parser of the file's protobuf messages."""

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import InputError
from emu.files import read_input
from emu.trace.formats.chakra.chakra_schema import VALUE, NodeType, chakra_messages

EXACT = "emu"  # the attribute of a file and of its nodes that Emu alone writes
WHAT = "execution trace"  # the beginning of every error message about such a file
_GZIP = b"\x1f\x8b"
_MOST_METADATA = 2**24  # bytes within which the metadata of a file end
_MOST_VARINT = 10  # limit of the bytes of a length
_MOST_INTEGER = 2**63 - 1


class ChakraNode(NamedTuple):
    """One node of an execution trace: an operation with its attributes and its dependencies."""

    id: int
    name: str
    type: int
    deps: tuple[int, ...]  # data dependencies
    callers: tuple[int, ...]  # control dependencies
    start_us: int
    lasts_us: int
    inputs: str  # the values of the operator's inputs, as text
    attrs: Mapping[str, Any]

    def whole(self, name: str, least: int = 0) -> int | None:
        """Return the value of an integer attribute; None if the node does not have the attribute.

        Raises:
            ValueError: it is no whole number, is below `least`, or needs more than 63 bits.
        """
        value = self.attrs.get(name)
        if value is None:
            return None
        if not isinstance(value, int) or not least <= value <= _MOST_INTEGER:
            raise ValueError(f"{name} must be a whole number of {least} or more and below 2**63, got {value!r}")
        return value


class NodeFile(NamedTuple):
    """The content of one file of an execution trace: the attributes of the whole, and its nodes."""

    file: str
    attrs: Mapping[str, Any]  # attributes of the whole trace
    nodes: tuple[ChakraNode, ...]

    def bad(self, node: ChakraNode, why: str) -> InputError:
        """Return the error for an invalid node; `why` says what is wrong with it."""
        return InputError(f"{WHAT}: node {node.id} ({node.name[:60]}) of {self.file!r} {why}")


def read_nodes(path: Path, known: dict[bytes, ChakraNode]) -> NodeFile:
    """Read a file of an execution trace, and return its metadata and nodes.

    Args:
        path: The file, which may be gzipped.
        known: The nodes of other files by their bytes, which gets those of this file: ranks have most of them in common.

    Raises:
        InputError: the file cannot be read, is cut off, or holds other messages.
    """
    head, *bodies = _messages(path)
    try:
        metadata = chakra_messages().metadata.FromString(head)
        if not metadata.version and not metadata.attr:
            raise ValueError("its first message is no metadata of such a trace")
    except (chakra_messages().unreadable, ValueError) as error:
        raise InputError(f"{WHAT}: {path.name!r} is none of Chakra: {_brief(error)}; write it by Chakra's converter") from None
    for number, body in enumerate(bodies):
        if body not in known:
            known[body] = _node(path.name, number, body)
    nodes = tuple(known[body] for body in bodies)
    about = _attributes(metadata.attr)
    if not nodes and EXACT not in about:  # a rank of Emu may do nothing
        raise InputError(f"{WHAT}: {path.name!r} has no node; write the trace of a rank that does something")
    return NodeFile(path.name, about, nodes)


def first_attributes(path: Path) -> Mapping[str, Any]:
    """Return the attributes of a file's metadata, read from its first bytes; empty if it is not Chakra."""
    try:
        with path.open("rb") as file:
            head = next(_split(path.name, file.read(_MOST_METADATA)), b"")
        return _attributes(chakra_messages().metadata.FromString(head).attr)
    except (chakra_messages().unreadable, InputError, OSError):
        return {}


def _brief(error: Exception) -> str:
    """Return the first line of an error."""
    return str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__


def _messages(path: Path) -> list[bytes]:
    """Return the bytes of each message of a file.

    Raises:
        InputError: the file cannot be read, is empty or is cut off.
    """
    data = read_input(WHAT, path, most=None)
    if data.startswith(_GZIP):
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error):
            raise InputError(f"{WHAT}: {path.name!r} is cut off, or no gzip; copy it again") from None
    found = list(_split(path.name, data))
    if not found:
        raise InputError(f"{WHAT}: {path.name!r} is empty; write it again")
    return found


def _split(file: str, data: bytes) -> Iterator[bytes]:
    """Yield the bytes of each message of a file; before each message stands its length.

    Raises:
        InputError: a length cannot be read, or the file ends within a message.
    """
    at, number = 0, 0
    while at < len(data):
        length = shift = 0
        while at < len(data) and data[at] & 0x80 and shift < 7 * _MOST_VARINT:
            length |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        end = at + 1 + (length | data[at] << shift) if at < len(data) else len(data) + 1
        if end > len(data):
            what = f"within message {number}, of which node {number - 1} is made" if number else "within its metadata"
            raise InputError(f"{WHAT}: {file!r} is cut off {what}, or holds something else; write or copy it again")
        yield data[at + 1 : end]
        at, number = end, number + 1


def _node(file: str, number: int, body: bytes) -> ChakraNode:
    """Return the node whose bytes are `body`.

    Raises:
        InputError: the bytes are no node.
    """
    try:
        node = chakra_messages().node.FromString(body)
        NodeType(node.type)
        if not node.name and node.type == NodeType.INVALID:
            raise ValueError("it has neither a name nor a type")
    except (chakra_messages().unreadable, ValueError) as error:
        raise InputError(
            f"{WHAT}: message {number + 1} of {file!r} is no node: {_brief(error)}; write the trace again"
        ) from None
    deps = tuple(node.data_deps), tuple(node.ctrl_deps)
    timed = node.start_time_micros, node.duration_micros
    return ChakraNode(node.id, node.name, node.type, *deps, *timed, node.inputs.values, _attributes(node.attr))


def _attributes(attrs: Iterable[Any]) -> dict[str, Any]:
    """Return the values of attributes by name; a list becomes a tuple."""
    found = {}
    for attr in attrs:
        which = attr.WhichOneof(VALUE) or ""
        value: Any = getattr(attr, which) if which else None
        found[attr.name] = tuple(value.values) if which.endswith("_list") else value
    return found
