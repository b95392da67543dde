"""Faults while a job runs: which part, how much of its speed is left, from when until when; and the text of a fault.

Examples: `link 3-7 at step 2`, `npu 5 at step 3`, `nic 4 slow 0.5 from step 3 to 5`, `rank 2 kill at step 3`,
`switch 64 at 1.5ms`.
"""

import re
from dataclasses import dataclass

from emu.errors import InputError, must_be
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
    """A part that fails or slows down, for some steps or some time."""

    part: str  # one of PARTS
    at: tuple[int, ...]  # number of the part; for a link, the numbers of its two nodes
    first: int  # the first step, or the tick, of the fault
    last: int | None = None  # the last step of the fault, or the tick of its end; None: it does not end
    share: float = 0.0  # share of the part's speed that is left; 0: it has failed
    timed: bool = False  # whether `first` and `last` are ticks

    def __str__(self) -> str:
        """Return the fault as it is written."""
        how = " kill" if self.part == "rank" else f" slow {self.share:g}" * (self.share > 0)
        since, until = (self._moment(when) for when in (self.first, self.last))
        when = f"at {since}" if self.last is None else f"from {since} to {until.removeprefix('step ')}"
        return f"{self.what}{how} {when}"

    @property
    def what(self) -> str:
        """The part in words, such as `link 3-7`."""
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
    """Return the fault that a text such as `link 3-7 at step 2` names.

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
        raise must_be("fault", f"the end of {text!r}", f"no earlier than its beginning, {said['from_when']}", said["to_when"])
    return Fault(part, at, first, last, share, timed)


def _share(word: str, text: str) -> float:
    """Return the share of its speed that a slow part keeps, from the word of `slow`."""
    what = "the share of its speed that is left, above 0 and at most 1"
    try:
        share = float(word)
    except ValueError:
        raise must_be("fault", f"slow of {text!r}", what, word, "such as 0.5") from None
    if not 0 < share <= 1:
        mend = "take 1, the nearest" if share > 1 else "take 0.01, or leave `slow` out where the part has failed"
        raise must_be("fault", f"slow of {text!r}", what, word, mend)
    return share


def _when(word: str, text: str) -> tuple[int, bool]:
    """Return a moment, and whether it is a time in ticks rather than a step."""
    if not word.startswith("step"):
        if re.fullmatch(r"[0-9.eE+-]+", word):
            raise must_be("fault", f"the moment of {text!r}", "a step or a time with its unit", word, f"take `step {word}`")
        return parse_time(word, f"fault: the moment of {text!r}"), True
    number = word.removeprefix("step").strip()
    if not re.fullmatch(r"[0-9]{1,9}", number) or not int(number):
        raise must_be("fault", f"the step of {text!r}", "a whole number of 1 or more", number, "take 1")
    return int(number), False
