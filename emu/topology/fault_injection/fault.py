"""Faults during a job: a part, its remaining speed, and its time; how a fault is written; and checks of faults.

Examples: `link 3-7 at step 2`, `npu 5 at step 3`, `nic 4 slow 0.5 from step 3 to 5`, `rank 2 kill at step 3`,
`switch 64 at 1.5ms`. The checks compare faults with the machine and the job: a part, rank or step must exist; the message names
the nearest that does. Letter: C cables (pairs of nodes that links join).
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, column
from emu.errors import InputError, must_be
from emu.topology.topology import Topology
from emu.units import format_time, parse_time, seconds

PARTS = ("link", "npu", "nic", "switch", "rank")
_GRAMMAR = re.compile(
    r"(?P<part>[a-z]+) +(?P<at>[0-9]+(-[0-9]+)?)( +slow +(?P<share>\S+)| +(?P<kill>kill))?"
    r" +(at +(?P<at_when>(step +)?\S+)|from +(?P<from_when>(step +)?\S+)( +to +(?P<to_when>(step +)?\S+))?)"
)
_SHAPE = (
    "PART at step S, or PART from step S to T; PART is link A-B, npu N, nic N or switch N, each of which may be "
    "`slow SHARE`, or rank R kill; where there is a clock, a time such as 1.5ms may stand for step S"
)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: a part of the machine (a link, switch, NPU, NIC or rank) that fails or slows down for some steps or some time.

    `at` are the numbers that name the part; `first` and `last` are steps, or ticks if `timed`; `share` is the speed that is
    left.
    """

    part: str  # one of PARTS
    at: tuple[int, ...]  # number of the part; for a link, the numbers of its two nodes
    first: int  # the first step, or the tick, of the fault
    last: int | None = None  # the last step of the fault, or the tick of its end; None: it does not end
    share: float = 0.0  # share of the part's speed that is left; 0: it has failed
    timed: bool = False  # whether `first` and `last` are ticks

    def __str__(self) -> str:
        """Return the fault in the notation of a user, such as `link 3-7 at step 2`."""
        how = " kill" if self.part == "rank" else f" slow {self.share:g}" * (self.share > 0)
        since, until = (self._moment(when) for when in (self.first, self.last))
        when = f"at {since}" if self.last is None else f"from {since} to {until.removeprefix('step ')}"
        return f"{self.what}{how} {when}"

    @property
    def what(self) -> str:
        """The failed part as text, such as `link 3-7` or `npu 5`."""
        return f"{self.part} {'-'.join(map(str, self.at))}"

    @property
    def state(self) -> str:
        """The state of the part in words, such as `link 3-7 failed`."""
        if self.part == "rank":
            return f"{self.what} was killed"
        return f"{self.what} {f'has {self.share:g} of its speed' if self.share else 'failed'}"

    def holds(self, moment: int) -> bool:
        """Return whether the fault is present in a step, or at a tick."""
        if self.part == "rank":  # a process that is started again lives
            return moment == self.first
        if self.timed:
            return self.first <= moment and (self.last is None or moment < self.last)
        return self.first <= moment and (self.last is None or moment <= self.last)

    def _moment(self, when: int | None) -> str:
        """Return a moment of the fault in words: a step, or a time with its unit."""
        if when is None:
            return ""
        return format_time(seconds(when)).replace(" ", "") if self.timed else f"step {when}"


def parse_fault(text: str) -> Fault:
    """Parse a fault such as `link 3-7 at step 2`, and return it.

    Raises:
        InputError: The text is no fault. The message says what is wrong, and names the nearest valid value where there is one.
    """
    said = _GRAMMAR.fullmatch(" ".join(text.split()))
    if said is None or said["part"] not in PARTS:
        raise must_be("fault", "a fault", _SHAPE, text)
    part, at = said["part"], tuple(map(int, said["at"].split("-")))
    if len(at) != 1 + (part == "link") or len(set(at)) < len(at):
        what = "two different nodes, such as link 3-7" if part == "link" else f"one number, such as {part} 3"
        raise must_be("fault", f"the {part} of {text!r}", what, said["at"])
    if (said["kill"] is not None) != (part == "rank"):
        raise InputError(f"fault: {text!r} must be `rank R kill`, or a part without `kill`: a rank is killed, a part fails")
    share = 0.0 if said["share"] is None else _share(said["share"], text)
    first, timed = _when(said["at_when"] or said["from_when"], text)
    if said["to_when"] is None:
        return Fault(part, at, first, None, share, timed)
    last, also = _when("step " * (said["to_when"].isdecimal() and not timed) + said["to_when"], text)
    if timed != also:
        raise InputError(f"fault: {text!r} must begin and end both at steps or both at times")
    if last < first + timed:
        what = f"{'later' if timed else 'no earlier'} than its beginning, {said['from_when']}"
        raise must_be("fault", f"the end of {text!r}", what, said["to_when"])
    return Fault(part, at, first, last, share, timed)


_LEAST_SHARE = 1e-9  # of a slow part: with less a message would last longer than the clock


def _share(word: str, text: str) -> float:
    """Return the share of its speed that a slow part keeps, at least a millionth and at most 1.

    Args:
        word: The number after `slow`.
        text: The whole fault, for messages.
    """
    what = f"the share of its speed that is left, {_LEAST_SHARE:g} to 1"
    try:
        share = float(word)
    except ValueError:
        raise must_be("fault", f"slow of {text!r}", what, word, "such as 0.5") from None
    if not _LEAST_SHARE <= share <= 1:
        mend = "take 1, the nearest" if share > 1 else "take 0.01, or leave `slow` out where the part has failed"
        raise must_be("fault", f"slow of {text!r}", what, word, mend)
    return share


def _when(word: str, text: str) -> tuple[int, bool]:
    """Parse a moment, and return its number and whether it is a time in ticks (true) or a step (false)."""
    if not word.startswith("step"):
        if re.fullmatch(r"[0-9.eE+-]+", word):
            mend = f"take `step {word}`, or a time such as `{word}s` where there is a clock"
            raise must_be("fault", f"the moment of {text!r}", "a step or a time with its unit", word, mend)
        return parse_time(word, f"fault: the moment of {text!r}"), True
    number = word.removeprefix("step").strip()
    if not re.fullmatch(r"[0-9]{1,9}", number) or not int(number):
        raise must_be("fault", f"the step of {text!r}", "a whole number of 1 or more", number, "take 1")
    return int(number), False


def cables(topology: Topology) -> I64:
    """Return [C, 2] the pairs of nodes that links join, lower first, each once."""
    ends = np.stack((topology.links.src, topology.links.dst)).astype(np.int64)
    return np.unique(np.sort(ends, axis=0).T, axis=0).reshape(-1, 2)


def nic_of(topology: Topology, npu: int) -> tuple[tuple[int, int], ...]:
    """Return the cables of an NPU's NIC: its cables to switches of the highest tier that it is linked to.

    Raises:
        InputError: No link joins the NPU to a switch.
    """
    links = topology.links
    out = np.flatnonzero((links.src == npu) & (links.dst >= topology.n_npus))
    if not len(out):
        near = ", ".join(f"link {npu}-{node}" for node in _neighbours(topology, npu)[:1].tolist())
        mend = f"name a link of it, such as {near}" if near else "name another"
        raise InputError(f"fault: NPU {npu} of {topology.name} has no NIC, as no switch joins it; {mend}")
    far = out[links.dimension[out] == links.dimension[out].max()]
    return tuple((npu, switch) for switch in np.unique(links.dst[far]).tolist())


def check_faults(faults: Iterable[Fault], topology: Topology, ranks: int, steps: int, *, clock: bool = False) -> None:
    """Check that every fault names a part, rank and step that exists.

    Args:
        faults: The faults of one job.
        topology: The whole machine.
        ranks: The number of ranks of the job.
        steps: The number of steps of the job; steps count from 1.
        clock: Whether faults may be at times.

    Raises:
        InputError: A fault does not. The message names the fault, and the nearest valid part or step.
    """
    for fault in faults:
        _check_when(fault, steps, clock=clock)
        if fault.part == "link":
            _check_link(fault, topology)
        else:
            _check_number(fault, topology, ranks)
        if fault.part == "nic":
            nic_of(topology, fault.at[0])


def check_clocks(faults: Sequence[Fault]) -> None:
    """Check that faults do not mix the two kinds of moments, steps and times.

    Raises:
        InputError: They are mixed; the message names one of each.
    """
    steps, times = ([fault for fault in faults if fault.timed == timed] for timed in (False, True))
    if steps and times:
        said = f"{str(times[0])!r} is at a time, and {str(steps[0])!r} at a step"
        raise InputError(f"fault: {said}; take all at times or all at steps")


def check_before_end(faults: Iterable[Fault], ended_s: float) -> None:
    """Check that every fault is at a time before the job ended.

    Args:
        faults: Faults at times.
        ended_s: When the job ended, in seconds.

    Raises:
        InputError: A fault is not; the message names it.
    """
    for fault in faults:
        if seconds(fault.first) >= ended_s:
            what = f"before {format_time(ended_s)}, when the job has ended"
            raise must_be("fault", f"the moment of {str(fault)!r}", what, format_time(seconds(fault.first)))


def _check_when(fault: Fault, steps: int, *, clock: bool) -> None:
    """Check that a fault with a time is allowed (`clock`), and that a fault at a step is within the steps of the job."""
    if fault.timed and not clock:
        mend = "take a step, such as `at step 1`; `emu outage`, `emu replay` and --pace have a clock"
        when = format_time(seconds(fault.first))
        raise must_be("fault", f"the moment of {str(fault)!r}", "a step, as there is no clock here", when, mend)
    if not fault.timed and fault.first > steps:
        raise must_be("fault", f"the step of {str(fault)!r}", f"1..{steps}, the steps of the job", fault.first, f"take {steps}")


def _check_link(fault: Fault, topology: Topology) -> None:
    """Check that a link joins the two nodes of a link fault."""
    a, b = fault.at
    for node in fault.at:
        _check_range(fault, topology, node, 0, topology.n_nodes, "a node")
    near = _neighbours(topology, a)
    if b in near:
        return
    if not len(near):
        raise InputError(f"fault: {fault.what} of {topology.name} is not there, as no link leads from {topology.node_name(a)}")
    nearest = int(near[np.argmin(np.abs(near - b))])
    what = f"a link of {topology.name}; {topology.node_name(a)} has links to {_list_numbers(near)}"
    raise must_be("fault", f"the link of {str(fault)!r}", what, f"{a}-{b}", f"take {a}-{nearest}, the nearest")


def _check_number(fault: Fault, topology: Topology, ranks: int) -> None:
    """Check that the rank, switch or NPU of a fault exists."""
    n, n_nodes = topology.n_npus, topology.n_nodes
    if fault.part == "switch" and n_nodes == n:
        raise InputError(f"fault: {str(fault)!r} names a switch, and {topology.name} has none; name a link or an NPU")
    ranges = {"rank": (0, ranks, "a rank"), "switch": (n, n_nodes, "a switch")}
    _check_range(fault, topology, fault.at[0], *ranges.get(fault.part, (0, n, "an NPU")))


def _check_range(fault: Fault, topology: Topology, number: int, low: int, end: int, what: str) -> None:
    """Check that a number in a fault is at least `low` and below `end`; the error offers the nearest valid number."""
    if not low <= number < end:
        of = "the job" if what == "a rank" else topology.name
        nearest = low if number < low else end - 1
        raise must_be("fault", f"{what} of {str(fault)!r}", f"{low}..{end - 1} of {of}", number, f"take {nearest}, the nearest")


def _neighbours(topology: Topology, node: int) -> I64:
    """Return the nodes that have a link to or from this node."""
    links = topology.links
    return column(np.unique(np.concatenate((links.dst[links.src == node], links.src[links.dst == node]))), np.int64)


def _list_numbers(numbers: Sequence[int] | I64) -> str:
    """Return numbers as text; of more than eight only the first two and the last."""
    words = [str(int(number)) for number in numbers]
    return ", ".join(words) if len(words) <= 8 else f"{words[0]}, {words[1]}, ... {words[-1]}"
