"""The columns of Emu's events that Chakra has no words for: one attribute of each node, and one of the metadata.

Other programs pass over both. With them a trace that Emu wrote is read back as it was.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from emu.trace.formats.chakra.chakra_node import ChakraNode
from emu.trace.trace import Kind

EXACT = "emu"  # the name of both attributes
DTYPE = "dtype"  # attribute of a node: torch's name of its dtype
FLOPS = "flops"  # attribute of a node whose FLOPs are no whole number, which num_ops must be
# The columns in the attribute of a node; the number of waits that the trace names follows, then the split sizes.
COLUMNS = ("step", "kind", "stream", "bytes", "count", "kernel", "batch", "m", "n", "k", "group", "instance", "root", "tag")


class RankAbout(NamedTuple):
    """The words of the metadata on the rank of a file."""

    rank: int
    ranks: int  # the number of ranks of the run
    device: str  # the device whose durations the nodes have
    groups: tuple[str, ...]  # the name of each process group, by the number that events give it
    axes: tuple[str, ...]  # the axis of each process group
    peak: tuple[int, ...]  # bytes of each part of memory
    meta: tuple[tuple[str, str], ...]  # of the trace; files of other ranks than the first have its command alone

    def text(self) -> str:
        """Return the words of the attribute."""
        return json.dumps(self._asdict())

    @staticmethod
    def of(attrs: Mapping[str, Any]) -> "RankAbout | None":
        """Return what metadata say; None: another program wrote them.

        Raises:
            ValueError: the words are none of Emu.
        """
        if EXACT not in attrs:
            return None
        try:
            told = json.loads(attrs[EXACT])
            groups, axes, peak = (tuple(told[name]) for name in ("groups", "axes", "peak"))
            meta = tuple((str(k), str(v)) for k, v in told["meta"])
            return RankAbout(int(told["rank"]), int(told["ranks"]), str(told["device"]), groups, axes, peak, meta)
        except (TypeError, KeyError, ValueError):
            raise ValueError(f"the attribute {EXACT!r} of its metadata is not as Emu writes it") from None


class NodeEvent(NamedTuple):
    """One event of a rank, as it is read from a node of an execution trace.

    It has the columns of `Events` from `step` to `tag`, then the rows that it waits for, its split sizes and its seconds.
    """

    columns: tuple[Any, ...]
    waits: tuple[int, ...]  # the rows that it waits for
    splits: tuple[int, ...]
    lasts_s: float

    @property
    def kind(self) -> int:
        """A Kind."""
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


def exact_row(node: ChakraNode, row_of: Mapping[int, int], us: float) -> NodeEvent:
    """Return the event that a node has in Emu's own attribute.

    Args:
        node: The node.
        row_of: The row of each node before it, by number.
        us: Seconds of a microsecond.

    Raises:
        ValueError: the attribute is missing, or not as Emu writes it.
    """
    values, dtype = node.attrs.get(EXACT), node.attrs.get(DTYPE)
    if not isinstance(values, tuple) or len(values) <= len(COLUMNS) or not isinstance(dtype, str):
        raise ValueError(f"lacks the attributes {EXACT!r} and {DTYPE!r}, which the other nodes have; write it by Emu")
    step, kind, stream, size, count, *shape, group, instance, root, tag = values[: len(COLUMNS)]
    named, *splits = values[len(COLUMNS) :]
    Kind(kind)
    flops = float(node.attrs.get(FLOPS, node.whole("num_ops") or 0))
    columns = (step, kind, stream, node.name, dtype, flops, size, count, *shape, group, instance, root, tag)
    return NodeEvent(columns, tuple(row_of[dep] for dep in node.deps[:named]), tuple(splits), node.lasts_us * us)
