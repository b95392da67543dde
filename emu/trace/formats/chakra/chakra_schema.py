"""The protobuf schema of Chakra's execution traces (0.0.4 and 1.0.0); classes are made when they are first needed.

A file is a `GlobalMetadata` and then a `Node` for each operation, each message behind its length as a varint. A word such as
`data_deps:5*uint64` is a field: its name, its number, `*` if it is repeated, and its type. Enumerations are their numbers here,
which are the same on the wire.
"""

from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

_SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
    *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
_FIELDS = {
    "GlobalMetadata": "version:1 string, attr:2* AttributeProto",
    "IOInfo": "values:1 string, shapes:2 string, types:3 string",
    "Node": (
        "id:1 uint64, name:2 string, type:3 int32, ctrl_deps:4* uint64, data_deps:5* uint64, start_time_micros:6 uint64, "
        "duration_micros:7 uint64, inputs:8 IOInfo, outputs:9 IOInfo, attr:10* AttributeProto"
    ),
    "AttributeProto": "name:1 string, doc_string:2 string",  # and one value, of any of `_SCALARS` or a list of them
    **{f"{scalar.title()}List": f"values:1* {scalar}" for scalar in _SCALARS},
}
_FIRST_VALUE = 3  # the number of the first value of an attribute; each scalar is followed by its list
VALUE = "value"  # the name of the choice among the values of an attribute
_PACKAGE = "ChakraProtoMsg"


class NodeType(IntEnum):
    """The type of a Chakra node, such as a computation or a send, by its number in the format."""

    INVALID = 0
    METADATA = 1
    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class CommType(IntEnum):
    """The operation of a Chakra node for a collective, by its number in the format."""

    ALL_REDUCE = 0
    REDUCE = 1
    ALL_GATHER = 2
    GATHER = 3
    SCATTER = 4
    BROADCAST = 5
    ALL_TO_ALL = 6
    REDUCE_SCATTER = 7
    REDUCE_SCATTER_BLOCK = 8
    BARRIER = 9


class ChakraMessages(NamedTuple):
    """The protobuf classes for metadata and nodes, and the error that is raised for invalid bytes."""

    metadata: Any
    node: Any
    unreadable: type[Exception]


@cache
def chakra_messages() -> ChakraMessages:
    """Return the protobuf classes in a separate pool, so that a program can use Chakra's own classes as well."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    file = descriptor_pb2.FileDescriptorProto(name="execution_trace.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field in _typed_fields(fields):
            message.field.add(**field)
        if name == "AttributeProto":
            message.oneof_decl.add(name=VALUE)
            for field in _value_fields():
                message.field.add(**field, oneof_index=0)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in ("GlobalMetadata", "Node"))
    metadata, node = map(message_factory.GetMessageClass, found)
    return ChakraMessages(metadata, node, DecodeError)


def _typed_fields(fields: str) -> Iterator[dict[str, Any]]:
    """Yield the protobuf description of each field in a text such as `id:1 uint64, name:2 string`; `*` marks a list."""
    for word in fields.split(", "):
        (name, number), kind = word.split(" ")[0].split(":"), word.split(" ")[1]
        yield _field(name, int(number.rstrip("*")), kind, repeated=number.endswith("*"))


def _value_fields() -> Iterator[dict[str, Any]]:
    """Yield the protobuf description of each value that an attribute of a Chakra node may have: a scalar or a list of them."""
    for i, scalar in enumerate(_SCALARS):
        yield _field(f"{scalar}_val", _FIRST_VALUE + 2 * i, scalar, repeated=False)
        yield _field(f"{scalar}_list", _FIRST_VALUE + 2 * i + 1, f"{scalar.title()}List", repeated=False)


def _field(name: str, number: int, kind: str, *, repeated: bool) -> dict[str, Any]:
    """Return the protobuf description of a field of a message.

    Args:
        name: The name of the field.
        number: Its number.
        kind: Its type: a scalar, or the name of a message.
        repeated: Whether it is a list.
    """
    label = "LABEL_REPEATED" if repeated else "LABEL_OPTIONAL"
    if kind in _SCALARS:
        return {"name": name, "number": number, "label": label, "type": f"TYPE_{kind.upper()}"}
    return {"name": name, "number": number, "label": label, "type": "TYPE_MESSAGE", "type_name": f".{_PACKAGE}.{kind}"}
