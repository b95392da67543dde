"""The columns of Emu's events that Chakra has no words for, as one attribute of each node and one of the metadata.

Other programs ignore both. With them a trace that Emu wrote is read back as it was.
"""

import json
from collections.abc import Mapping, Sequence
from operator import le, lt
from typing import Any, NamedTuple

from emu.trace.formats.chakra.chakra_node import EXACT, ChakraNode
from emu.trace.formats.rank_group import MOST_RANKS, is_count
from emu.trace.kernel_shape import Kernel
from emu.trace.trace import Kind

_ASKS = (Kind.COLLECTIVE, Kind.SEND, Kind.RECV)
DTYPE = "dtype"  # attribute of a node: torch's name of its dtype
FLOPS = "flops"  # attribute of a node whose FLOPs are no whole number, which num_ops must be
# The columns in the attribute of a node; the number of waits that the trace names follows, then the split sizes.
COLUMNS = ("step", "kind", "stream", "bytes", "count", "kernel", "batch", "m", "n", "k", "group", "instance", "root", "tag")


class RankAbout(NamedTuple):
    """The entries that Emu writes into the metadata of a rank's file, such as the rank and its groups."""

    rank: int
    ranks: int  # the number of ranks of the run
    device: str  # the device whose durations the nodes have
    groups: tuple[str, ...]  # the name of each process group, by the number that events give it
    axes: tuple[str, ...]  # the axis of each process group
    peak: tuple[int, ...]  # bytes of each part of memory
    meta: tuple[tuple[str, str], ...]  # of the trace; files of other ranks than the first have its command alone

    def text(self) -> str:
        """Return the entries as one text, for an attribute of the file."""
        return json.dumps(self._asdict())

    @staticmethod
    def of(attrs: Mapping[str, Any]) -> "RankAbout | None":
        """Return the facts that metadata have about a rank; None if another program than Emu wrote them.

        Raises:
            ValueError: The text of the attribute is not as Emu writes it.
        """
        if EXACT not in attrs:
            return None
        try:
            told = json.loads(attrs[EXACT])
            groups, axes, peak = (tuple(told[name]) for name in ("groups", "axes", "peak"))
            meta = tuple((str(k), str(v)) for k, v in told["meta"])
            found = RankAbout(told["rank"], told["ranks"], str(told["device"]), groups, axes, peak, meta)
            if not found._is_possible():
                raise ValueError
            return found
        except (TypeError, KeyError, RecursionError, ValueError):
            raise ValueError(f"the attribute {EXACT!r} of its metadata is not as Emu writes it") from None

    def _is_possible(self) -> bool:
        """Return whether the facts are consistent: whole numbers, and a number and an axis for each group."""
        counted = is_count(self.ranks, MOST_RANKS + 1) and is_count(self.rank, self.ranks)
        named = len(self.groups) == len(self.axes) and all(isinstance(axis, str) for axis in self.axes)
        numbered = all(isinstance(name, str) and name.isdecimal() for name in self.groups)
        return counted and named and numbered and all(is_count(each, 2**63) for each in self.peak)


class NodeEvent(NamedTuple):
    """One event of a rank, read from a node of an execution trace.

    It has the columns of `Events` from `step` to `tag`, then the rows that it waits for, its split sizes and its seconds.
    """

    columns: tuple[Any, ...]
    waits: tuple[int, ...]  # the rows that it waits for
    splits: tuple[int, ...]
    lasts_s: float

    @property
    def kind(self) -> int:
        """The kind of the event, a number of `Kind`."""
        return int(self.columns[1])

    @property
    def stream(self) -> Any:
        """The number of the stream, or its name while the streams of a rank have no numbers."""
        return self.columns[2]

    @property
    def group(self) -> int:
        """The number that the rank gives its group."""
        return int(self.columns[-4])


def exact_values(columns: Sequence[int], named_waits: int, splits: Sequence[int]) -> list[int]:
    """Return the values of the attribute of a node; `columns` are those of `COLUMNS`."""
    return [*columns, named_waits, *splits]


def exact_row(node: ChakraNode, sizes: Sequence[int], row_of: Mapping[int, int], us: float) -> NodeEvent:
    """Return the event that a node has in Emu's own attribute.

    Args:
        node: The node.
        sizes: The number of ranks of each group of the rank.
        row_of: The row of each node before it, by number.
        us: The seconds of a microsecond, 1e-6.

    Raises:
        ValueError: the attribute is missing, or not as Emu writes it.
    """
    values, dtype = node.attrs.get(EXACT), node.attrs.get(DTYPE)
    if not isinstance(values, tuple) or len(values) <= len(COLUMNS) or not isinstance(dtype, str):
        raise ValueError(f"lacks the attributes {EXACT!r} and {DTYPE!r}, which the other nodes have; write it by Emu")
    named, *splits = _checked(values, sizes, len(node.deps))
    step, kind, stream, size, count, *shape, group, instance, root, tag = values[: len(COLUMNS)]
    flops = node.attrs.get(FLOPS, float(node.whole("num_ops") or 0))
    if not isinstance(flops, float):
        raise ValueError(f"must have a number as {FLOPS}, got {str(flops)[:40]}")
    columns = (step, kind, stream, node.name, dtype, flops, size, count, *shape, group, instance, root, tag)
    return NodeEvent(columns, tuple(row_of[dep] for dep in node.deps[:named]), tuple(splits), node.lasts_us * us)


def _checked(values: Sequence[Any], sizes: Sequence[int], deps: int) -> Sequence[int]:
    """Return the values behind the columns: how many waits the trace names, and the split sizes.

    Args:
        values: All values of a node's attribute.
        sizes: The number of ranks of each group of the rank.
        deps: The number of data dependencies of the node.

    Raises:
        ValueError: a value is impossible.
    """
    if type(values[0]) is not int:  # all values of a list are of one type
        raise ValueError(f"must have whole numbers in {EXACT!r}, got {str(values)[:40]}")
    asks, group = values[1] in _ASKS, values[_GROUP]
    groups = (0, len(sizes)) if asks else (-1, 0)
    members = sizes[group] if asks and 0 <= group < len(sizes) else _MOST_OTHER
    least = (*_LEAST, groups[0], 0, 0, 0, 0)
    below = (*_BELOW, groups[1], _MOST_OTHER, members, _MOST_OTHER, deps + 1)
    if not (all(map(le, least, values)) and all(map(lt, values[: len(below)], below))):
        bad = next(i for i, limit in enumerate(below) if not least[i] <= values[i] < limit)
        what = f"{_NAMES[bad]} of {least[bad]} or more and below {below[bad]}"
        raise ValueError(f"must have a {what} in {EXACT!r}, got {str(values[bad])[:40]}")
    named, *splits = values[len(COLUMNS) :]
    if splits and not 0 <= min(splits) <= max(splits) < _MOST_BYTES:
        raise ValueError(f"must have split sizes of 0 or more and below 2**62 in {EXACT!r}, got {str(splits)[:40]}")
    return named, *splits


_MOST_BYTES, _MOST_OTHER = 2**62, 2**31
_LIMITS = {"kind": len(Kind), "stream": 2**15, "bytes": _MOST_BYTES, "count": _MOST_BYTES, "kernel": len(Kernel)}
_NAMES = (*COLUMNS, "number of waits")
_GROUP = COLUMNS.index("group")
_BELOW = tuple(_LIMITS.get(name, _MOST_OTHER) for name in COLUMNS[:_GROUP])  # limits of the columns before the group
_LEAST = (0,) * _GROUP
