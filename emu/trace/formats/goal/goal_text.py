"""The text form of GOAL, parsed and printed: one statement a line, in a block for each rank.

The grammar is that of LogGOPSim's txt2bin. In addition, labels may be used before they are given, statements may share a line
with a semicolon between them, and attributes have any order.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.errors import BareError, InputError, must_be
from emu.trace.formats.goal.goal_ops import MOST_CPUS, GoalOps, Op
from emu.trace.formats.rank_group import MOST_RANKS

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STATEMENT = re.compile(
    r"(?:(?P<label>[A-Za-z]\w*)\s*:\s*)?(?:calc\s+(?P<ns>\d+)|send\s+(?P<sent>\d+)\s*b\s+to\s+(?P<to>\d+)"
    r"|recv\s+(?P<got>\d+)\s*b\s+from\s+(?P<of>-?\d+))(?P<more>(?:\s+(?:tag|cpu|nic)\s+-?\d+)*)"
    r"|rank\s+(?P<rank>\d+)\s*\{|num_ranks\s+(?P<ranks>\d+)|(?P<end>\})"
    r"|(?P<later>[A-Za-z]\w*)\s+(?P<how>i?requires)\s+(?P<before>[A-Za-z]\w*)"
)
_ATTRIBUTE = re.compile(r"(tag|cpu|nic)\s+(-?\d+)")
_EXPECTED = "num_ranks, rank N {, }, send, recv, calc, requires or irequires"
_MOST = {"tag": 2**32 - 1, "cpu": MOST_CPUS, "nic": MOST_CPUS}  # limits: numbers are below these
_MOST_SIZE = 2**62
Row = tuple[int, ...]  # kind, size, peer, tag, cpu, nic, line


class LabelWait(NamedTuple):
    """A statement of a GOAL file that one operation waits for another, each by its label."""

    later: str
    before: str
    at_start: bool
    line: int


class _Block:
    """The statements of one rank while its block is parsed."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.labels: dict[str, int] = {}
        self.waits: list[LabelWait] = []

    def add(self, row: Row, label: str | None) -> None:
        """Add an operation, with its label if it has one.

        Raises:
            BareError: the label is that of an earlier one.
        """
        if label is not None and self.labels.setdefault(label, len(self.rows)) != len(self.rows):
            raise BareError(f"label {label!r} is given twice in this rank; give each operation its own")
        self.rows.append(row)


class _Reader:
    """The blocks of all ranks while a text is read."""

    def __init__(self) -> None:
        self.n_ranks = 0  # 0: not said so far
        self.blocks: dict[int, _Block] = {}
        self.open: _Block | None = None

    def take(self, said: re.Match[str], line: int) -> None:
        """Process one statement of a GOAL text.

        Raises:
            BareError: the statement is out of place, or has an impossible number.
        """
        if said["ranks"] or said["rank"]:
            self._begin(said)
        elif self.open is None:
            raise BareError(f"{said[0]!r} is in no rank; begin a block by `rank 0 {{`")
        elif said["end"]:
            self.open = None
        elif said["how"]:
            self.open.waits.append(LabelWait(said["later"], said["before"], said["how"] == "irequires", line))
        else:
            self.open.add(self._row(said, line), said["label"])

    def _begin(self, said: re.Match[str]) -> None:
        if self.open is not None:
            raise BareError(f"{said[0]!r} is within a rank; close its block by `}}` first")
        if said["ranks"]:
            if self.n_ranks:
                raise BareError(f"{said[0]!r} comes after num_ranks {self.n_ranks}; say the number of ranks once")
            self.n_ranks = _number("num_ranks", said["ranks"], 1, MOST_RANKS)
            return
        rank = _number("rank", said["rank"], 0, self.n_ranks)
        if rank in self.blocks:
            raise BareError(f"rank {rank} has a block already; write one block a rank")
        self.open = self.blocks[rank] = _Block()

    def _row(self, said: re.Match[str], line: int) -> Row:
        """Return the columns of an operation."""
        sent, got, ns = said["sent"], said["got"], said["ns"]
        kind = Op.SEND if sent else Op.RECV if got else Op.CALC
        if got and said["of"].startswith("-"):
            raise BareError(f"{said[0]!r} takes a message from any rank, which only its run decides; name the rank")
        more = {"tag": 0, "cpu": 0, "nic": 0}
        for name, value in _ATTRIBUTE.findall(said["more"]):
            if name == "tag" and value.startswith("-"):
                raise BareError(f"{said[0]!r} takes a message of any tag, which only its run decides; name the tag")
            more[name] = _number(name, value, 0, _MOST[name])
        peer = 0 if ns else _number("peer", said["to"] or said["of"], 0, self.n_ranks)
        return (kind, _number("size", sent or got or ns, 0, _MOST_SIZE), peer, more["tag"], more["cpu"], more["nic"], line)


def _number(name: str, text: str, least: int, below: int) -> int:
    if not below:
        raise BareError("num_ranks comes before the first rank; begin with `num_ranks N`")
    value = int(text.lstrip("0")[:30] or "0")  # 30 digits are beyond any limit
    if not least <= value < below:
        raise must_be("", name, f"{least} or more and below {below}", value)
    return value


def parse_text(text: str, file: str) -> GoalOps:
    """Parse a GOAL text, and return its operations.

    Args:
        text: The content of the file.
        file: The name of the file in error messages.

    Raises:
        InputError: a line is no statement, a label is unknown or given twice, or a number is out of range.
    """
    reader, line = _Reader(), 0
    try:
        for line, statement in _statements(text):
            said = _STATEMENT.fullmatch(statement)
            if said is None:
                raise BareError(f"must be {_EXPECTED}, got {statement[:60]!r}")
            reader.take(said, line)
        if reader.open is not None or not reader.n_ranks:
            missing = "the block of the last rank is not closed by `}`" if reader.n_ranks else "the text has no num_ranks"
            raise BareError(f"{missing}; it may be cut off")
        blocks = [reader.blocks.get(rank) or _Block() for rank in range(reader.n_ranks)]
    except BareError as error:
        raise InputError(f"goal: {file!r} line {line}: {error}") from None
    return _columns(blocks, file)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield each statement with the number of its line."""
    if "/" in text:
        text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        apart = line.replace("{", "{;").replace("}", ";};").split(";") if "{" in line or "}" in line or ";" in line else (line,)
        for statement in apart:
            if bare := statement.strip():
                yield number, bare


def _columns(blocks: list[_Block], file: str) -> GoalOps:
    """Return the operations of all blocks as columns."""
    first = np.cumsum([0, *(len(block.rows) for block in blocks)])
    rows = np.array([row for block in blocks for row in block.rows], np.int64).reshape(-1, 7)
    waits: list[tuple[int, int, int]] = []
    for start, block in zip(first.tolist(), blocks, strict=False):
        for wait in block.waits:
            unknown = next((name for name in wait[:2] if name not in block.labels), None)
            if unknown is not None:
                raise InputError(
                    f"goal: {file!r} line {wait.line}: no operation of this rank has the label {unknown!r}; give it one"
                )
            waits.append((start + block.labels[wait.later], start + block.labels[wait.before], wait.at_start))
    waiting, waited, at_start = np.array(waits, np.int64).reshape(-1, 3).T
    kind, size, peer, tag, cpu, nic, line = rows.T
    return GoalOps(first, kind, size, peer, tag, cpu, nic, line, waiting, waited, at_start > 0)


_WORDS = {Op.SEND: ("send", "b to "), Op.RECV: ("recv", "b from ")}


def goal_text(ops: GoalOps) -> str:
    """Return operations as text; each waits for earlier ones."""
    waits, start = _waits_of(ops)
    lines = [f"num_ranks {ops.n_ranks}"]
    columns = [c.tolist() for c in (ops.kind, ops.size, ops.peer, ops.tag, ops.cpu, ops.nic)]
    for rank, (low, high) in enumerate(zip(ops.first[:-1].tolist(), ops.first[1:].tolist(), strict=True)):
        lines.append(f"\nrank {rank} {{")
        for op in range(low, high):
            lines.append(f"l{op - low + 1}: {_statement_text(*(c[op] for c in columns))}")
            lines += [f"l{op - low + 1} {how} l{before - low + 1}" for how, before in waits[start[op] : start[op + 1]]]
        lines.append("}")
    return "\n".join([*lines, ""])


def _statement_text(kind: int, size: int, peer: int, tag: int, cpu: int, nic: int) -> str:
    """Return the text of an operation's statement; cpu and nic are left out if they are 0."""
    on = (f" cpu {cpu}" if cpu else "") + (f" nic {nic}" if nic and kind != Op.CALC else "")
    if kind == Op.CALC:
        return f"calc {size}{on}"
    word, to = _WORDS[Op(kind)]
    return f"{word} {size}{to}{peer} tag {tag}{on}"


def _waits_of(ops: GoalOps) -> tuple[list[tuple[str, int]], list[int]]:
    """Return the word and the operation of each wait, and [O + 1] where those of each operation begin."""
    order = np.lexsort((ops.waited, ops.waiting))
    words = np.where(ops.at_start[order], "irequires", "requires").tolist()
    starts: I64 = np.searchsorted(ops.waiting[order], np.arange(len(ops.kind) + 1))
    return list(zip(words, ops.waited[order].tolist(), strict=True)), starts.tolist()
