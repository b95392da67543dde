"""The events of one rank from the nodes of its file: exact for files of Emu, by Chakra's attributes for other files.

In a file of another program a computation is on the stream that its node names, else on one that all share, as simulators of
such files compute one thing at a time; operators of the host are on streams of their threads. Requests follow their
dependencies alone. A receive is posted from the start, so that a message begins when it is sent; what depends on the receive
waits for what that depends on, too. Simulators of such files buffer messages. There is one step.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from emu.collective.operation import GATHERING
from emu.errors import InputError
from emu.trace.formats.chakra.chakra_node import WHAT, ChakraNode, NodeFile
from emu.trace.formats.chakra.chakra_schema import CommType, NodeType
from emu.trace.formats.chakra.exact_columns import NodeEvent, RankAbout, exact_row
from emu.trace.formats.chakra.node_order import Waits, nodes_in_order
from emu.trace.formats.rank_group import RankGroup
from emu.trace.kernel_shape import MOVES
from emu.trace.trace import Kind

US = 1e-6  # seconds of a microsecond
OPERATIONS = {of: of.name.lower() for of in CommType} | {
    CommType.REDUCE_SCATTER_BLOCK: "reduce_scatter",
    CommType.BARRIER: "all_reduce",  # of one element
}
TYPED_AS = "bfloat16"  # the dtype of FLOPs, as nodes of other programs name none
_COMPUTATIONS = (NodeType.COMP, NodeType.MEM_LOAD, NodeType.MEM_STORE)
_ALL = "0"  # the name of the group of all ranks, where nothing else is named so
_MOST_BYTES = 2**62
_MOST_TAG = 2**31 - 1


class RankRows(NamedTuple):
    """The events that were read from one rank's file, and the groups that they name by number.

    `host_operators` counts operators of the host beside a device; `lost_callers` dependencies on nodes that the file lacks.
    """

    file: NodeFile
    about: RankAbout | None  # None: another program wrote the file
    rows: tuple[NodeEvent, ...]
    groups: tuple[RankGroup, ...]  # by the number that rows give them
    host_operators: int  # operators of the host beside a device, whose times count only if the user asks for it
    lost_callers: int  # control dependencies on nodes that the file lacks


@dataclass(frozen=True, slots=True)
class JobRanks:
    """The facts that all files of a job give together.

    The number of ranks, the process groups, and whether host time counts.
    """

    ranks: int
    groups: Mapping[str, tuple[int, ...]]  # the ranks of each group in the file of groups, by name
    host_time: bool

    def named(self, name: str, told: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the ranks of a process group; an unnamed group, or group 0 if nothing names it, has all ranks.

        Args:
            name: The name of the group.
            told: The groups, by name, that the nodes of one file themselves state.

        Raises:
            ValueError: no file names the group.
        """
        known = {**self.groups, **told}
        if name not in known and name not in ("", _ALL):
            raise ValueError(f"is of process group {name!r}, which neither a file of groups nor the trace names")
        return known.get(name) or tuple(range(self.ranks))


def rank_rows(
    rank: int, file: NodeFile, about: RankAbout | None, job: JobRanks, told: Mapping[str, tuple[int, ...]]
) -> RankRows:
    """Return the events of a rank.

    Args:
        rank: Its number.
        file: Its file.
        about: What Emu wrote of it; None: another program wrote the file.
        job: What all files say.
        told: The groups that nodes of this file tell of, by name.

    Raises:
        InputError: a node is impossible, or needs what the file lacks.
    """
    ordered = nodes_in_order(file)
    own = _named_groups(file, about, job) if about else ()
    sizes = [len(group.ranks) for group in own]
    reader = _Rows(rank, job, told, _computes_on_device(file), ordered.waits)
    row_of: dict[int, int] = {}
    rows = []
    for node in ordered.nodes:
        try:
            rows.append(exact_row(node, sizes, row_of, US) if about else reader.row(node, row_of))
        except ValueError as error:
            raise file.bad(node, str(error)) from None
        row_of[node.id] = len(row_of)
    if about:
        return RankRows(file, about, tuple(rows), own, 0, ordered.lost_callers)
    groups = tuple(reader.groups)
    return RankRows(file, None, reader.on_streams(rows), groups, reader.host_operators, ordered.lost_callers)


def _named_groups(file: NodeFile, about: RankAbout, job: JobRanks) -> tuple[RankGroup, ...]:
    """Return the groups of a rank whose file Emu wrote.

    Raises:
        InputError: the file of groups lacks one.
    """
    found: list[RankGroup] = []
    seen: Counter[RankGroup] = Counter()
    for name, axis in zip(about.groups, about.axes, strict=True):
        if name not in job.groups:
            raise InputError(f"{WHAT}: {file.file!r} has a group {name!r}, which no file of groups names; put that beside it")
        group = RankGroup(job.groups[name], axis)
        seen[group] += 1
        found.append(group.numbered(seen[group]))
    return tuple(found)


def _computes_on_device(file: NodeFile) -> bool:
    """Return whether any computation is on a device; if not, operators of the host are the computations."""
    return any(node.type in _COMPUTATIONS and not node.attrs.get("is_cpu_op") for node in file.nodes)


@dataclass(eq=False, slots=True)
class _Rows:
    """The builder of a rank's events from a Chakra file of another program than Emu.

    Streams have names until all are known; then they get numbers.
    """

    rank: int
    job: JobRanks
    told: Mapping[str, tuple[int, ...]]
    on_device: bool
    waits: Waits
    behind: dict[int, frozenset[int]] = field(default_factory=dict)  # what each row of a receive itself depends on
    groups: dict[RankGroup, int] = field(default_factory=dict)
    named: dict[str, RankGroup] = field(default_factory=dict)  # by name
    calls: Counter[int] = field(default_factory=Counter)  # numbers of collectives so far, by group
    host_operators: int = 0

    def row(self, node: ChakraNode, row_of: Mapping[int, int]) -> NodeEvent:
        """Return the event that a node stands for.

        Raises:
            ValueError: the node lacks what its type needs.
        """
        waits = self._waits(node, row_of)
        if node.attrs.get("is_cpu_op") and self.on_device:  # also an operator that calls a collective, beside its kernel
            self.host_operators += 1
            lasts_us = node.lasts_us * self.job.host_time
            return NodeEvent(self._mark("host", node.attrs.get("tid") or 0, node), waits, (), lasts_us * US)
        if node.type == NodeType.COMM_COLL:
            columns: tuple[Any, ...] = self._collective(node)
        elif node.type in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            columns = self._message(node)
        elif node.type not in _COMPUTATIONS:
            columns = self._mark("about", 0, node)
        else:
            columns = self._computation(node)
        return NodeEvent(columns, waits, (), node.lasts_us * US)

    def _waits(self, node: ChakraNode, row_of: Mapping[int, int]) -> tuple[int, ...]:
        """Return the rows for which a node waits: none for a receive."""
        rows = {row_of[dep] for dep in self.waits[node.id]}
        rows = rows.union(*(self.behind.get(row, ()) for row in rows))
        if node.type == NodeType.COMM_RECV:
            self.behind[len(row_of)] = frozenset(rows)
            return ()
        return tuple(sorted(rows))

    def on_streams(self, rows: Sequence[NodeEvent]) -> tuple[NodeEvent, ...]:
        """Return the rows with the number of each stream: those of devices come first."""
        words = dict.fromkeys(row.stream for row in rows)
        number = {word: i for i, word in enumerate(sorted(words, key=lambda word: (word[0] != "device", word)))}
        return tuple(row._replace(columns=(*row.columns[:2], number[row.stream], *row.columns[3:])) for row in rows)

    def _mark(self, place: str, number: object, node: ChakraNode) -> tuple[Any, ...]:
        return (1, Kind.MARK, (place, str(number)), node.name, "", 0.0, 0, 0, *MOVES, -1, 0, 0, 0)

    def _computation(self, node: ChakraNode) -> tuple[Any, ...]:
        flops, moved = float(node.whole("num_ops") or 0), node.whole("tensor_size") or 0
        place = "device", str(node.attrs.get("stream") or 0)
        return (1, Kind.COMPUTE, place, node.name, TYPED_AS, flops, moved, moved // 2, *MOVES, -1, 0, 0, 0)

    def _collective(self, node: ChakraNode) -> tuple[Any, ...]:
        kind, size = node.whole("comm_type"), node.whole("comm_size")
        if kind is None or kind >= len(CommType):
            raise ValueError(f"must have a comm_type of 0..{len(CommType) - 1}, got {kind}; convert the trace again")
        group = self._group(node)
        ranks = group.ranks
        if kind == CommType.BARRIER:
            return self._request(Kind.COLLECTIVE, "all_reduce", group, ("float32", 4, 1))
        if size is None:
            raise ValueError("lacks comm_size, its bytes; convert the trace again")
        operation = OPERATIONS[CommType(kind)]
        # The size of these is what one rank gives, of others the whole. Members of a call of nothing meet, too.
        whole = max(size, 1) * (len(ranks) if operation in GATHERING else 1)
        return self._request(Kind.COLLECTIVE, operation, group, ("uint8", whole, whole))

    def _group(self, node: ChakraNode) -> RankGroup:
        """Return the group of a collective.

        Raises:
            ValueError: nothing tells them, or the rank of the file is none of them.
        """
        name = node.attrs.get("pg_name") or ""
        if not isinstance(name, str):
            raise ValueError(f"must have a word as pg_name, got {str(name)[:40]}; convert the trace again")
        dims = node.attrs.get("involved_dim")
        if not isinstance(dims, tuple | None):
            raise ValueError(f"must have a list as involved_dim, got {str(dims)[:40]}; convert the trace again")
        if not name and not all(dims or ()):
            raise ValueError(
                "is of some dimensions of a network (involved_dim), whose sizes no trace tells; give its process group by "
                "pg_name and a file of groups"
            )
        ranks = self.job.named(name, self.told)
        if self.rank not in ranks:
            raise ValueError(f"is of process group {name!r}, which lacks rank {self.rank} itself; give the groups of this run")
        if name not in self.named:
            self.named[name] = RankGroup(ranks, "").numbered(self._number(name or _ALL, ranks))
        return self.named[name]

    def _number(self, name: str, ranks: tuple[int, ...]) -> int:
        """Return the number that tells a group from others of equal ranks.

        It counts the names of groups of these ranks, so that it is the same in the files of all members.
        """
        every = sorted({*self.job.groups, *self.told, _ALL})
        alike = [each for each in every if self.job.named(each, self.told) == ranks]
        return 1 + alike.index(name) if name in alike else 1

    def _message(self, node: ChakraNode) -> tuple[Any, ...]:
        sends = node.type == NodeType.COMM_SEND
        word = "comm_dst" if sends else "comm_src"
        peer, size, tag = node.whole(word), node.whole("comm_size"), node.whole("comm_tag") or 0
        if peer is None or size is None:
            raise ValueError(f"lacks {word if peer is None else 'comm_size'}; convert the trace again")
        if tag > _MOST_TAG:
            raise ValueError(f"must have a comm_tag below 2**31, got {tag}")
        sized = "uint8", max(size, 1), max(size, 1)
        kind = Kind.SEND if sends else Kind.RECV
        return self._request(kind, kind.name.lower(), RankGroup(tuple(range(self.job.ranks)), ""), sized, root=peer, tag=tag)

    def _request(
        self, kind: Kind, name: str, of: RankGroup, sized: tuple[str, int, int], root: int = 0, tag: int = 0
    ) -> tuple[Any, ...]:
        """Return the columns of a request; `sized` is its dtype, its bytes and its elements.

        Raises:
            ValueError: all ranks together have too many bytes.
        """
        group = self.groups.setdefault(of, len(self.groups))
        instance = self.calls[group] if kind == Kind.COLLECTIVE else 0
        self.calls[group] += kind == Kind.COLLECTIVE
        dtype, size, count = sized
        if size >= _MOST_BYTES:
            raise ValueError(f"must have a comm_size below 2**62 bytes, of all ranks together, got {size}")
        return (1, kind, ("request", ""), name, dtype, 0.0, size, count, *MOVES, group, instance, root, tag)
