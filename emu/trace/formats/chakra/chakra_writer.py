"""The writer of Chakra execution traces: one file for each rank, and the process groups, as ASTRA-sim reads them.

Durations are whole microseconds. They are rounded so that the ends of the computations of a stream are, and no error grows.
Above `MOST_FILES` ranks there is one file a role and a map of ranks to roles, where a role names groups and peers by its own
numbers. Other programs may honour data dependencies alone, so that what the order of streams and queues implies is among these.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from emu.arrays import I64
from emu.collective.operation import GATHERING
from emu.errors import InputError
from emu.files import make_folder, write_file
from emu.trace.formats.chakra.chakra_files import ENDING, GROUPS, MAP
from emu.trace.formats.chakra.chakra_node import EXACT
from emu.trace.formats.chakra.chakra_schema import CommType, NodeType, chakra_messages
from emu.trace.formats.chakra.exact_columns import COLUMNS, DTYPE, FLOPS, RankAbout, exact_values
from emu.trace.formats.chakra.older_files import remove_older
from emu.trace.replay.replay import TraceLayout
from emu.trace.steps import computes, order_of
from emu.trace.trace import COMMAND, Events, Kind
from emu.trace.trace_file import check_trace
from emu.units import TICKS_PER_US

MOST_FILES = 1024  # limit of the ranks that have a file each
_FLAG = "--trace"
_VERSION = "1.0.0"
_TYPES = {Kind.COLLECTIVE: NodeType.COMM_COLL, Kind.SEND: NodeType.COMM_SEND, Kind.RECV: NodeType.COMM_RECV}
# Operations by their number; tokens that go to experts and back are exchanged by all.
_COMM_TYPES = {of.name.lower(): of for of in CommType} | {"dispatch": CommType.ALL_TO_ALL, "combine": CommType.ALL_TO_ALL}
_VALUES = {bool: "bool_val", str: "string_val", float: "double_val", int: "int64_val"}


def write_chakra(layout: TraceLayout, path: Path) -> None:
    """Write a trace as execution traces; computations last as they do on the layout's device.

    Args:
        layout: The trace and its device.
        path: A name `NAME.et`: the files are `NAME.0.et`, `NAME.1.et` and so on; `NAME.groups.json` has the groups.

    Raises:
        InputError: the trace is impossible, or has an operation that such traces lack.
        WriteError: a file cannot be written.
    """
    trace, name = layout.trace, path.with_name(path.name[: -len(ENDING)])
    check_trace(trace)
    make_folder(_FLAG, path.parent)
    roles = [_RoleNodes(layout, role) for role in range(len(trace.events))]
    written = set((_write_roles if trace.n_ranks > MOST_FILES else _write_ranks)(layout, roles, name))
    remove_older(_FLAG, name, written)


def _write_ranks(layout: TraceLayout, roles: list["_RoleNodes"], name: Path) -> Iterator[Path]:
    """Write a file of each rank, and the groups; yield each file."""
    trace = layout.trace
    for rank in range(trace.n_ranks):
        own = tuple(trace.groups[number].ranks for number in trace.group_of[rank])
        names = tuple(str(number + 1) for number in trace.group_of[rank])  # group 0 is of all ranks in ASTRA-sim
        role = roles[int(trace.role_of_rank[rank])]
        head = role.about(layout, rank, names, trace.group_of[rank])
        yield _write(name.with_name(f"{name.name}.{rank}{ENDING}"), role.file(head, names, own, rank))
    groups = {str(number): list(group.ranks) for number, group in enumerate(trace.groups, 1)}
    yield _write(name.with_name(name.name + GROUPS), json.dumps(groups).encode())


def _write(path: Path, data: bytes) -> Path:
    """Write bytes to a file, and return the path of the file."""
    write_file(_FLAG, path, data)
    return path


def _write_roles(layout: TraceLayout, roles: list["_RoleNodes"], name: Path) -> Iterator[Path]:
    """Write a file of each role, with group ranks as peers, and the map; yield each file."""
    trace = layout.trace
    for number, role in enumerate(roles):
        first = int((trace.role_of_rank == number).argmax())
        names = tuple(str(group + 1) for group in trace.group_of[first])
        own = tuple(tuple(range(len(trace.groups[group].ranks))) for group in trace.group_of[first])
        head = role.about(layout, number, names, trace.group_of[first])
        yield _write(name.with_name(f"{name.name}.role{number}{ENDING}"), role.file(head, names, own, number))
    told = {
        "role_of_rank": trace.role_of_rank.tolist(),
        "groups": [[group.axis, list(group.ranks)] for group in trace.groups],
        "group_of": trace.group_of,
    }
    yield _write(name.with_name(name.name + MAP), json.dumps(told).encode())


class _RoleNodes:
    """The events of a role as Chakra nodes. Nodes of computations are encoded once for all ranks of the role."""

    def __init__(self, layout: TraceLayout, role: int) -> None:
        self._events, self._role = layout.trace.events[role], role
        self._lasts_us = _whole_us(self._events, layout.device.ticks(self._events, layout.dtype)).tolist()
        self._deps = _dependencies(self._events)
        self._exact = np.stack([getattr(self._events, name) for name in COLUMNS], axis=1).astype(np.int64).tolist()

    def about(self, layout: TraceLayout, rank: int, names: tuple[str, ...], groups: tuple[int, ...]) -> RankAbout:
        """Return the entries of the metadata of a rank's file."""
        trace = layout.trace
        axes, peak = tuple(trace.groups[group].axis for group in groups), tuple(trace.peak_by_part[self._role].tolist())
        meta = tuple(entry for entry in trace.meta if rank == 0 or entry[0] == COMMAND)  # others are long
        return RankAbout(rank, trace.n_ranks, layout.device.name, names, axes, peak, meta)

    def file(self, about: RankAbout, names: tuple[str, ...], groups: tuple[tuple[int, ...], ...], rank: int) -> bytes:
        """Return the content of a file.

        Args:
            about: What its metadata say.
            names: The name of each group, by the number that the role gives it.
            groups: The ranks of each, by which peers are named.
            rank: The rank that sends and receives.
        """
        head = chakra_messages().metadata(version=_VERSION)
        head.attr.add(name=EXACT, string_val=about.text())
        pieces = [_framed(head)]
        for row, body in enumerate(self._bodies):
            if body is None:
                group = int(self._events.group[row])
                pieces.append(_framed(self._request(row, names[group], groups[group], rank)))
            else:
                pieces.append(body)
        return b"".join(pieces)

    @cached_property
    def _bodies(self) -> list[bytes | None]:
        """The encoded bytes of each computation and mark; None for a request."""
        computing = computes(self._events).tolist()
        return [_framed(self._computation(row)) if computing[row] else None for row in range(len(self._events))]

    def _node(self, row: int, kind: NodeType, **attrs: object) -> Any:
        """Return a node with the fields that all nodes have, the given attributes, and the exact columns of the event."""
        events, deps = self._events, self._deps[row]
        node = chakra_messages().node(id=row, name=events.name[row], type=kind, data_deps=deps)
        node.duration_micros = self._lasts_us[row]
        for name, value in (*attrs.items(), (DTYPE, events.dtype[row])):
            node.attr.add(name=name, **{_VALUES[type(value)]: value})
        named = int(events.wait_start[row + 1] - events.wait_start[row])
        splits = events.split[events.split_start[row] : events.split_start[row + 1]].tolist()
        node.attr.add(name=EXACT).int64_list.values.extend(exact_values(self._exact[row], named, splits))
        return node

    def _computation(self, row: int) -> Any:
        flops, mark = float(self._events.flops[row]), int(self._events.kind[row]) == Kind.MARK
        node = self._node(row, NodeType.COMP, is_cpu_op=mark, num_ops=round(flops), stream=int(self._events.stream[row]))
        node.attr.add(name="tensor_size", uint64_val=int(self._events.bytes[row]))
        if not flops.is_integer():
            node.attr.add(name=FLOPS, double_val=flops)
        return node

    def _request(self, row: int, name: str, ranks: tuple[int, ...], rank: int) -> Any:
        events = self._events
        kind, size = Kind(int(events.kind[row])), int(events.bytes[row])
        if kind != Kind.COLLECTIVE:
            peer = ranks[int(events.root[row])]
            ends = (rank, peer) if kind == Kind.SEND else (peer, rank)
            sent = {"comm_src": ends[0], "comm_dst": ends[1], "comm_tag": int(events.tag[row])}
            return self._with_integers(self._node(row, _TYPES[kind], is_cpu_op=False, comm_size=size), sent)
        operation = events.name[row]
        if operation not in _COMM_TYPES:
            raise InputError(f"{_FLAG}: an execution trace has no {operation!r}; write the trace in another format")
        size = -(-size // len(ranks)) if operation in GATHERING else size
        called = {"comm_type": int(_COMM_TYPES[operation]), "comm_size": size, "pg_name": name}
        return self._node(row, _TYPES[kind], is_cpu_op=False, **called)

    @staticmethod
    def _with_integers(node: Any, words: Mapping[str, int]) -> Any:
        """Return the node with 32-bit integer attributes, in which Chakra's feeders look for the ends of messages."""
        for name, value in words.items():
            node.attr.add(name=name, int32_val=value)
        return node


def _framed(message: Any) -> bytes:
    """Return the bytes of a protobuf message, with their length in front."""
    from google.protobuf import proto

    stream = BytesIO()
    proto.serialize_length_prefixed(message, stream)
    return stream.getvalue()


def _whole_us(events: Events, ticks: I64) -> I64:
    """Return [E] durations in whole microseconds, rounded so that the end of each computation is exact to one rounding."""
    found = np.zeros(len(events), np.int64)
    for stream in np.unique(events.stream).tolist():
        own = np.flatnonzero((events.stream == stream) & computes(events))
        ends = np.cumsum(ticks[own])
        found[own] = np.diff((ends + TICKS_PER_US // 2) // TICKS_PER_US, prepend=0)
    return found


def _dependencies(events: Events) -> list[list[int]]:
    """Return the events that each event waits for: those named by the trace, then those implied by queues and streams."""
    bounds = events.wait_start.tolist()
    waits = events.wait.tolist()
    found = [waits[low:high] for low, high in pairwise(bounds)]
    for event, waited in _implied(events):
        if waited not in found[event]:
            found[event].append(waited)
    return found


def _implied(events: Events) -> Iterator[tuple[int, int]]:
    """Yield pairs of an event and an earlier one for which it waits."""
    event, waited = order_of(events)
    yield from zip(event.tolist(), waited.tolist(), strict=True)
