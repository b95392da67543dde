"""Execution traces by the numbers of their fields alone: messages written byte by byte, and read as nameless fields."""

import struct
from collections import defaultdict

from google.protobuf.empty_pb2 import Empty
from google.protobuf.unknown_fields import UnknownFieldSet

META, MEM_LOAD, COMP, SEND, RECV, COLL = 1, 2, 4, 5, 6, 7  # types of nodes
ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, REDUCE_SCATTER, BARRIER = 0, 2, 5, 6, 7, 9  # types of collectives
# The fields of a node, and the fields of an attribute that hold its name and its value.
ID, NAME, TYPE, CTRL_DEPS, DATA_DEPS, START, LASTS, INPUTS, ATTR = 1, 2, 3, 4, 5, 6, 7, 8, 10
ATTR_NAME, DOUBLE, INT32, INT64, INT64_LIST, UINT64, BOOL, BOOL_LIST, STRING = 1, 3, 7, 9, 10, 13, 27, 28, 29


def varint(n):
    found = b""
    while n > 0x7F:
        found, n = found + bytes([n & 0x7F | 0x80]), n >> 7
    return found + bytes([n])


def message(*fields):
    """The bytes of a message: whole numbers are varints, words and bytes have a length, tuples are packed."""
    found = b""
    for number, value in fields:
        if isinstance(value, float):
            found += varint(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            found += varint(number << 3) + varint(int(value))
        else:
            data = b"".join(map(varint, value)) if isinstance(value, tuple) else value
            data = data.encode() if isinstance(data, str) else data
            found += varint(number << 3 | 2) + varint(len(data)) + data
    return found


def attr(name, value):
    if isinstance(value, tuple):
        return message((ATTR_NAME, name), (BOOL_LIST, message((1, tuple(map(int, value))))))
    field = {bool: BOOL, int: INT64, str: STRING}[type(value)]
    return message((ATTR_NAME, name), (field, value))


def node(number, name, kind, deps=(), callers=(), us=0, start=0, inputs="", **attrs):
    fields = [(ID, number), (NAME, name), (TYPE, kind), (CTRL_DEPS, tuple(callers)), (DATA_DEPS, tuple(deps))]
    timed = [(START, start), (LASTS, us), (INPUTS, message((1, inputs)))]
    return message(*fields, *timed, *((ATTR, attr(key, value)) for key, value in attrs.items()))


def framed(*messages):
    return b"".join(varint(len(each)) + each for each in messages)


METADATA = message((1, "0.0.4"))


def write(folder, name, *nodes, metadata=METADATA):
    path = folder / name
    path.write_bytes(framed(metadata, *nodes))
    return path


def unframed(data):
    """The messages of a file."""
    found, at = [], 0
    while at < len(data):
        length = shift = 0
        while data[at] & 0x80:
            length, at, shift = length | (data[at] & 0x7F) << shift, at + 1, shift + 7
        length, at = length | data[at] << shift, at + 1
        found.append(data[at : at + length])
        at += length
    return found


def fields(data):
    """The values of each field of a message, by number; nothing is known of the message."""
    found = defaultdict(list)
    for field in UnknownFieldSet(Empty.FromString(data)):
        found[field.field_number].append(field.data)
    return found


def packed(data):
    """The numbers of a packed field."""
    found, at = [], 0
    while at < len(data):
        number = shift = 0
        while data[at] & 0x80:
            number, at, shift = number | (data[at] & 0x7F) << shift, at + 1, shift + 7
        found.append(number | data[at] << shift)
        at += 1
    return found


def attrs_of(of_node):
    """The field and the value of each attribute of a node's fields, by its name."""
    found = {}
    for each in of_node[ATTR]:
        own = fields(each)
        (name,) = own.pop(ATTR_NAME)
        ((field, (value,)),) = own.items()
        found[name.decode()] = field, value
    return found


def without(data, *names):
    """The bytes of a node without some of its attributes."""
    own = fields(data)
    kept = [each for each in own.pop(ATTR) if fields(each)[ATTR_NAME][0].decode() not in names]
    return message(*((number, value) for number, values in own.items() for value in values), *((ATTR, each) for each in kept))
